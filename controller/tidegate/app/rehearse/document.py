"""The result of a rehearsal as one document; its fields, units and meanings are the schema.

Fields are added, never renamed or given another meaning, while the schema's name stays. What could not be worked out is
null and has a reason beside it.
"""

from dataclasses import dataclass
from typing import Annotated

SCHEMA = "tidegate.io/rehearsal/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Token counts of one kind over all requests."""

    mean: Annotated[float, "mean"]
    p50: Annotated[float, "median"]
    p99: Annotated[float, "99th percentile"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOverTime:
    """The load as drawn in the report."""

    step_s: Annotated[float, "seconds a step covers; step i begins at i times this"]
    requests: Annotated[tuple[int, ...], "requests that arrived in each step"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecastable:
    """Whether the load can be foreseen a cold start ahead."""

    member: Annotated[str, "the forecaster with the least error"]
    wape_ratio: Annotated[float, "its error at the start-up horizon: sum of absolute errors over sum of load"]
    horizon_s: Annotated[float, "seconds ahead: the cold start's 95th percentile"]
    forecastable: Annotated[bool, "whether the error is at most 0.15"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFacts:
    """The load that was played."""

    name: Annotated[str, "name of the load, from its files"]
    files: Annotated[tuple[str, ...], "files it came from"]
    format: Annotated[str, "how they were written"]
    requests: Annotated[int, "requests played, under the first seed"]
    seconds: Annotated[float, "time of the last arrival"]
    requests_per_s: Annotated[float, "mean arrival rate"]
    peak_requests_per_s: Annotated[float, "arrival rate of the busiest 10 minutes"]
    prompt_tokens: Annotated[Lengths, "prompt tokens per request"]
    output_tokens: Annotated[Lengths, "output tokens per request"]
    hash_block_tokens: Annotated[int, "prompt tokens a prefix hash stands for; 0 when the load has none"]
    scale: Annotated[float, "factor the load was multiplied by"]
    seed: Annotated[int, "first seed of scaling, drawn arrivals, spreading and routing"]
    forecastable: Annotated[Forecastable | None, "whether it can be foreseen"] = None
    forecastable_reason: Annotated[str | None, "why that is not known"] = None
    load: Annotated[LoadOverTime, "load over time"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """One promise of the policy."""

    name: Annotated[str, "its name"]
    indicator: Annotated[str, "what is measured per request"]
    threshold_s: Annotated[float | None, "the most it may be; null for availability"]
    objective_ratio: Annotated[float, "share of requests that must keep it, by the policy"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolFacts:
    """One pool of the rehearsed fleet."""

    name: Annotated[str, "service/pool"]
    role: Annotated[str, "aggregated, prefill or decode"]
    profile: Annotated[str, "engine profile of its replicas"]
    gpus_per_replica: Annotated[int, "GPUs a replica occupies"]
    cost_usd_per_h: Annotated[float, "price of a replica"]
    min_replicas: Annotated[int, "least replicas allowed"]
    max_replicas: Annotated[int, "most replicas allowed"]
    cold_start_s: Annotated[float, "from order to ready, 95th percentile"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionsFacts:
    """What all policies shared."""

    policy: Annotated[str, "name of the policy file's service"]
    model: Annotated[str, "model served"]
    objectives: Annotated[tuple[Objective, ...], "what is promised"]
    pools: Annotated[tuple[PoolFacts, ...], "the fleet"]
    routing: Annotated[str, "how requests find a replica"]
    target_ratio: Annotated[float, "attainment that all policies are matched at"]
    seeds: Annotated[tuple[int, ...], "seeds played; figures without a seed are their median"]
    scoring: Annotated[str, "where the scoring rules are written down"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobFacts:
    """The one setting of a policy that is searched for a matched comparison."""

    name: Annotated[str, "its name, in the policy's own words"]
    unit: Annotated[str, "its unit"]
    default: Annotated[float, "value as shipped, which the policy's own figures are for"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What one play came to."""

    attainment_ratio: Annotated[float, "share of requests that met TTFT and TPOT jointly; what failed missed"]
    gpu_hours: Annotated[float, "GPU time from each order to the end of its drain"]
    cost_usd: Annotated[float, "the same in money"]
    goodput_per_s: Annotated[float, "requests/s that met all objectives"]
    ttft_p50_s: Annotated[float | None, "median time to first token; null when nothing was answered"]
    ttft_p95_s: Annotated[float | None, "95th percentile"]
    ttft_p99_s: Annotated[float | None, "99th percentile"]
    tpot_p50_s: Annotated[float | None, "median time per output token; null when no answer had two tokens"]
    tpot_p95_s: Annotated[float | None, "95th percentile"]
    tpot_p99_s: Annotated[float | None, "99th percentile"]
    scale_events: Annotated[int, "changes of the asked replica count"]
    failed: Annotated[int, "requests refused, cut or not answered in time"]
    replicas_peak: Annotated[int, "most replicas that existed at once"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedFigures(Figures):
    """One play of one seed."""

    seed: Annotated[int, "the seed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched(Figures):
    """The cheapest play found whose attainment is at least the target."""

    setting: Annotated[float | None, "the knob's value; null for a policy without one"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierPoint:
    """One setting of the knob that was played."""

    setting: Annotated[float | None, "the knob's value"]
    attainment_ratio: Annotated[float, "attainment with it"]
    gpu_hours: Annotated[float, "GPU time with it"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityCheck:
    """The matched comparison again with engines of another speed than anybody believes."""

    capacity_ratio: Annotated[float, "real speed of the engines over the believed one"]
    attainment_ratio: Annotated[float, "with the policy's default setting"]
    gpu_hours: Annotated[float, "with the policy's default setting"]
    matched_gpu_hours: Annotated[float | None, "at the target; null when out of reach"]
    matched_gpu_hours_reason: Annotated[str | None, "why it is null"] = None
    rank: Annotated[int | None, "place by matched GPU hours, 1 is cheapest; null when out of reach"]
    flips_with: Annotated[tuple[str, ...], "policies whose order with this one is another than at the believed speed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultFigures(Figures):
    """One play with something going wrong."""

    fault: Annotated[str, "what goes wrong"]
    start_s: Annotated[float, "when"]
    duration_s: Annotated[float | None, "for how long; null: it does not heal"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicasOverTime:
    """Replica counts as drawn in the report, all pools together."""

    at_s: Annotated[tuple[float, ...], "moments"]
    ready: Annotated[tuple[int, ...], "replicas that take requests"]
    existing: Annotated[tuple[int, ...], "replicas that cost money: starting, ready and draining"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyResult(Figures):
    """One policy or oracle; its figures are the median over the seeds, with its default setting."""

    name: Annotated[str, "name, as taken by --against"]
    kind: Annotated[str, '"policy", or "oracle" for a bound that knows the future']
    summary: Annotated[str, "its law in a line"]
    source: Annotated[str, "whose law it is and where it is written down"]
    period_s: Annotated[float | None, "seconds between two decisions; null when it never decides"]
    attained: Annotated[dict[str, float], "share of requests that met each objective alone, by objective"]
    knob: Annotated[KnobFacts | None, "the searched setting; null when it has none"]
    gap_closed_ratio: Annotated[float | None, "(best static - this) / (best static - fair oracle), matched GPU hours"]
    gap_closed_ratio_reason: Annotated[str | None, "why it is null"] = None
    matched_gpu_hours: Annotated[float | None, "GPU hours at the target attainment, the knob searched"]
    matched_gpu_hours_reason: Annotated[str | None, "why it is null"] = None
    matched: Annotated[Matched | None, "all figures of that play"]
    rank: Annotated[int | None, "place among policies by matched GPU hours, 1 is cheapest; null when out of reach"]
    seeds: Annotated[tuple[SeedFigures, ...], "each seed, with the default setting"]
    frontier: Annotated[tuple[FrontierPoint, ...], "settings played, by GPU hours"]
    capacity_check: Annotated[tuple[CapacityCheck, ...], "comparison at other engine speeds; empty when not asked for"]
    faults: Annotated[tuple[FaultFigures, ...], "the same with faults; empty when none was asked for"]
    replicas: Annotated[ReplicasOverTime | None, "replicas over time, first seed; null for a bound that has none"]
    notes: Annotated[tuple[str, ...], "what a reader must know of these figures"] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastPair:
    """Tidegate with its forecast and without, otherwise alike."""

    on: Annotated[Figures, "with it"]
    off: Annotated[Figures, "without it: sized for the load seen now"]
    matched_gpu_hours_on: Annotated[float | None, "at the target, with it"]
    matched_gpu_hours_off: Annotated[float | None, "at the target, without it"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """What `tidegate rehearse --json` and `tidegate backtest --json` print."""

    schema: Annotated[str, "name of this schema"] = SCHEMA
    version: Annotated[str, "version of Tidegate"]
    trace: Annotated[TraceFacts, "the load"]
    conditions: Annotated[ConditionsFacts, "what all policies shared"]
    policies: Annotated[tuple[PolicyResult, ...], "results, in the order asked for"]
    forecast: Annotated[ForecastPair | None, "Tidegate with and without its forecast"]
    forecast_reason: Annotated[str | None, "why that is null"] = None
    notes: Annotated[tuple[str, ...], "what a reader must know of all figures"] = ()
