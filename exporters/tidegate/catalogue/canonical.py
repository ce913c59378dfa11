"""The canonical quantities Tidegate reads of every replica."""

from tidegate.catalogue.quantity import Fold, Kind, Quantity, Unit

RUNNING = Quantity(
    name="running_requests",
    kind=Kind.GAUGE,
    unit=Unit.REQUESTS,
    required=True,
    meaning="Requests in the running batch.",
)
WAITING = Quantity(
    name="waiting_requests",
    kind=Kind.GAUGE,
    unit=Unit.REQUESTS,
    required=True,
    meaning="Requests accepted by the engine and not yet scheduled.",
)
KV_USED = Quantity(
    name="kv_used_ratio",
    kind=Kind.GAUGE,
    unit=Unit.RATIO,
    required=True,
    fold=Fold.MAX,
    highest=1.0,
    meaning="Share of the KV cache in use; of several engines the fullest.",
)
FINISHED = Quantity(
    name="finished_requests",
    kind=Kind.COUNTER,
    unit=Unit.REQUESTS,
    required=True,
    meaning="Requests that ended, for whatever reason.",
)
PROMPT_TOKENS = Quantity(
    name="prompt_tokens",
    kind=Kind.COUNTER,
    unit=Unit.TOKENS,
    required=True,
    meaning="Prompt tokens processed, cache hits included.",
)
OUTPUT_TOKENS = Quantity(
    name="output_tokens",
    kind=Kind.COUNTER,
    unit=Unit.TOKENS,
    required=True,
    meaning="Tokens generated.",
)
PREEMPTIONS = Quantity(
    name="preemptions",
    kind=Kind.COUNTER,
    unit=Unit.EVENTS,
    required=False,
    meaning="Running requests put back for lack of KV space.",
)
PROMPT_LENGTH = Quantity(
    name="prompt_length",
    kind=Kind.HISTOGRAM,
    unit=Unit.TOKENS,
    required=False,
    meaning="Prompt tokens per finished request.",
)
OUTPUT_LENGTH = Quantity(
    name="output_length",
    kind=Kind.HISTOGRAM,
    unit=Unit.TOKENS,
    required=False,
    meaning="Generated tokens per finished request.",
)
TTFT = Quantity(
    name="ttft",
    kind=Kind.HISTOGRAM,
    unit=Unit.SECONDS,
    required=False,
    meaning="From arrival at the engine's front end to the first token.",
)
TPOT = Quantity(
    name="tpot",
    kind=Kind.HISTOGRAM,
    unit=Unit.SECONDS,
    required=False,
    meaning="Mean time per output token after the first; one observation per request.",
)
ITL = Quantity(
    name="itl",
    kind=Kind.HISTOGRAM,
    unit=Unit.SECONDS,
    required=False,
    meaning="Gap between two tokens; one observation per token step.",
)
E2E = Quantity(
    name="e2e",
    kind=Kind.HISTOGRAM,
    unit=Unit.SECONDS,
    required=False,
    meaning="From arrival to the last token.",
)

QUANTITIES: tuple[Quantity, ...] = (
    RUNNING,
    WAITING,
    KV_USED,
    FINISHED,
    PROMPT_TOKENS,
    OUTPUT_TOKENS,
    PREEMPTIONS,
    PROMPT_LENGTH,
    OUTPUT_LENGTH,
    TTFT,
    TPOT,
    ITL,
    E2E,
)
GAUGES: tuple[Quantity, ...] = tuple(q for q in QUANTITIES if q.kind is Kind.GAUGE)
COUNTERS: tuple[Quantity, ...] = tuple(q for q in QUANTITIES if q.kind is Kind.COUNTER)
LATENCIES: tuple[Quantity, ...] = (TTFT, TPOT, ITL, E2E)
LENGTHS: tuple[Quantity, ...] = (PROMPT_LENGTH, OUTPUT_LENGTH)
BY_NAME: dict[str, Quantity] = {q.name: q for q in QUANTITIES}
