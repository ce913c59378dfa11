"""llm-d's token-aware law: prompt tokens in flight against how fast an idle replica prefills, and KV use.

Prefill needs `tokens / velocity / threshold` replicas: the time one replica would take for what is in flight, against
the queueing time allowed. Decode needs KV use summed over 0.8; an aggregated pool needs the higher of the two. KEDA and
an HPA of default behaviour carry it out. Tokens in flight are those of requests without a first token, over the whole
service. Without data KEDA reads 0: an empty answer counts as no load, a failed query as no valid metric.

Source: llm-d, autoscaling guide "token-aware"; KEDA's Prometheus scaler (`ignoreNullValues` true); Kubernetes HPA v2.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tidegate.baselines.hpa import SYNC_S, Behavior, HpaState, average_value, follow, of_several, value
from tidegate.baselines.law import LawMemory, PoolFacts, PoolRule, Proposal, failed, number_of, pool_law
from tidegate.perf.profile import PS_PER_S, EngineProfile
from tidegate.perf.steptime import step_ps
from tidegate.sim.policies import Contender, Knob, KnobScale, Rival, Wants, World
from tidegate.terms.fleet import ReplicaState, Role
from tidegate.terms.observation import PoolObservation
from tidegate.terms.slo import Indicator

VELOCITY_CHUNK_TOKENS = 8192  # the prompt whose idle TTFT is measured
KV_TARGET = 0.8
THRESHOLD_S = 1.5  # the guide's, for a TTFT limit of 3 s and its engine
# The guide's rule for other limits: 0.6 to 0.7 of what the limit leaves beside the request's own prefill.
ROOM_PART = 0.65


def velocity_tokens_per_s(profile: EngineProfile) -> float:
    """Return the prefill velocity an idle replica shows: an 8192-token prompt over its own time to first token."""
    done, spent_ps = 0, profile.front_end_ps
    while done < VELOCITY_CHUNK_TOKENS:
        chunk = min(profile.token_budget, VELOCITY_CHUNK_TOKENS - done)
        spent_ps += step_ps(
            profile, tokens=chunk, kv_read_tokens=0, double_pairs=chunk * (2 * done + chunk), sequences=1
        )
        done += chunk
    return VELOCITY_CHUNK_TOKENS * PS_PER_S / spent_ps


def threshold_s(ttft_s: float | None, prompt_tokens: float, velocity: float) -> float:
    """Return the queueing time the guide's rule allows under a TTFT limit; its own figure when there is none.

    A limit that the prefill of a mean prompt already uses up leaves a tenth of itself.
    """
    if ttft_s is None:
        return THRESHOLD_S
    return ROOM_PART * max(0.1 * ttft_s, ttft_s - prompt_tokens / velocity)


def prefill_replicas(tokens: float, velocity: float, threshold: float, replicas: int, *, tolerance: float = 0.1) -> int:
    """Return the count for `tokens` (>= 0) in flight, as an AverageValue target gives it."""
    return average_value(tokens / velocity, replicas, threshold, tolerance=tolerance)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSettings:
    """The law's constants for one pool."""

    velocity_tokens_per_s: float
    threshold_s: float
    behavior: Behavior = field(default_factory=Behavior)


def token_rule(settings: dict[str, TokenSettings]) -> PoolRule[HpaState]:
    """Return the law for one pool; settings by the name of the pool's profile."""

    def rule(facts: PoolFacts, before: HpaState | None) -> tuple[Proposal, HpaState]:
        own = settings[facts.pool.profile]
        found: list[int | None] = []
        if facts.pool.role is not Role.DECODE:
            found.append(_by_tokens(facts, own))
        if facts.pool.role is not Role.PREFILL:
            found.append(_by_kv(facts, own))
        return follow(of_several(found, facts.asked), facts, before, own.behavior)

    return rule


def _by_tokens(facts: PoolFacts, own: TokenSettings) -> int | None:
    signal = facts.served.pending_prompt_tokens if facts.served else None
    if failed(signal) and signal is not None:
        return None
    tokens = number_of(signal) or 0.0
    return prefill_replicas(
        tokens, own.velocity_tokens_per_s, own.threshold_s, facts.existing, tolerance=own.behavior.tolerance
    )


def _by_kv(facts: PoolFacts, own: TokenSettings) -> int | None:
    used, broken = _kv_used(facts.seen)
    if broken and not used:
        return None
    if facts.pool.role is Role.DECODE:
        return average_value(sum(used), facts.existing, KV_TARGET, tolerance=own.behavior.tolerance)
    mean = sum(used) / len(used) if used else 0.0
    return value(mean, facts.asked, facts.ready, KV_TARGET, tolerance=own.behavior.tolerance)


def _kv_used(seen: PoolObservation | None) -> tuple[Sequence[float], bool]:
    """Return the KV use of each ready replica that reported, and whether a query failed."""
    ready = [r for r in seen.replicas if r.replica.state is ReplicaState.READY] if seen else []
    numbers = [n for r in ready if (n := number_of(r.kv_used_ratio)) is not None]
    return numbers, any(failed(r.kv_used_ratio) for r in ready)


def _default_s(world: World, velocity: float) -> float:
    return threshold_s(world.policy.threshold_s(Indicator.TTFT), world.prompt_tokens, velocity)


def _knob(world: World) -> Knob:
    default = min(_default_s(world, velocity_tokens_per_s(p)) for p in world.profiles.values())
    return Knob(name="thr", unit="s", safe=0.02 * default, thrifty=50.0 * default, default=default, scale=KnobScale.LOG)


def _make(world: World, setting: float | None) -> Contender:
    settings = {}
    for name, profile in world.profiles.items():
        velocity = velocity_tokens_per_s(profile)
        allowed = _default_s(world, velocity) if setting is None else setting
        settings[name] = TokenSettings(velocity_tokens_per_s=velocity, threshold_s=allowed)
    return Contender(
        name="llmd-token",
        law=pool_law(token_rule(settings)),
        start=LawMemory(),
        wants=Wants(period_s=SYNC_S, replicas=True),
        setting=setting,
    )


RIVALS: tuple[Rival, ...] = (
    Rival(
        name="llmd-token",
        summary="llm-d token-aware: prompt tokens in flight over prefill velocity, and KV use over 0.8",
        source="llm-d autoscaling guide, token-aware KEDA law",
        knob=_knob,
        make=_make,
    ),
)
