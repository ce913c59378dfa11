"""The policy file as pydantic models: spelling, types, ranges and descriptions. Nothing of it travels inward.

Descriptions are the documentation: the JSON Schema and the tables of `docs/policy.md` are made from them.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel

from tidegate.app.config_quantity import BYTES_PATTERN, DURATION_PATTERN, parse_bytes, parse_duration_s
from tidegate.terms.fleet import EngineKind, Role
from tidegate.terms.slo import Indicator

API_VERSION = "tidegate.io/v1alpha1"
LABEL_PATTERN = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
DAY_S = 86_400.0
_MAX_REPLICAS = 10_000


def _seconds(low_s: float, high_s: float, must: str) -> BeforeValidator:
    def check(value: object) -> float:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            value = f"{value:g}"
        if not isinstance(value, str):
            msg = "a duration such as 500ms, 90s, 1h30m or 28d"
            raise ValueError(msg)  # noqa: TRY004  (pydantic collects ValueError only)
        seconds = parse_duration_s(value)
        if not low_s <= seconds <= high_s:
            raise ValueError(must)
        return seconds

    return BeforeValidator(check)


def _bytes(low: int, high: int, must: str) -> BeforeValidator:
    def check(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            msg = "a number of bytes such as 8Mi, 80Gi, 1.5G or 1048576"
            raise ValueError(msg)  # noqa: TRY004  (pydantic collects ValueError only)
        number = parse_bytes(str(value))
        if not low <= number <= high:
            raise ValueError(must)
        return number

    return BeforeValidator(check)


def _duration_schema(must: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": DURATION_PATTERN, "x-range": must})


def _bytes_schema(low: int, must: str) -> WithJsonSchema:
    text = {"type": "string", "pattern": BYTES_PATTERN}
    return WithJsonSchema({"anyOf": [text, {"type": "integer", "minimum": low}], "x-range": must})


_TO_1D = "a duration from 1ms to 1d"
_TO_366D = "a duration from 1m to 366d"
_TO_1H = "a duration from 1s to 1h"
_TO_1GI = "from 1Ki to 1Gi"
Span = Annotated[float, _seconds(0.001, DAY_S, _TO_1D), _duration_schema(_TO_1D)]
Window = Annotated[float, _seconds(60.0, 366 * DAY_S, _TO_366D), _duration_schema(_TO_366D)]
StaleSpan = Annotated[float, _seconds(1.0, 3_600.0, _TO_1H), _duration_schema(_TO_1H)]
BodySize = Annotated[int, _bytes(1024, 2**30, _TO_1GI), _bytes_schema(1024, _TO_1GI)]
Label = Annotated[str, Field(pattern=LABEL_PATTERN)]
# What the gateway can route on: the name is compared with a header value.
MODEL_PATTERN = r"^[!-~]+$"
ModelName = Annotated[str, Field(min_length=1, max_length=256, pattern=MODEL_PATTERN)]
Words = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[^\x00-\x1f\x7f]+$")]
Enum = Field(strict=False)  # text is how an enum is written in YAML


class _Model(BaseModel):
    model_config = ConfigDict(
        strict=True,
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_name=False,
        validate_by_alias=True,
        use_enum_values=False,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )


class Metadata(_Model):
    """Names the object."""

    name: Label
    """Name of the service: lower-case letters, digits and dashes, at most 63 characters. Unique over all files."""


def _one_of_percentile_and_objective(schema: dict[str, Any]) -> None:
    schema["oneOf"] = [{"required": ["percentile"]}, {"required": ["objective"]}]


class SloModel(_Model):
    """One promise about the share of requests that are good."""

    model_config = ConfigDict(json_schema_extra=_one_of_percentile_and_objective)

    name: Label
    """Name of the objective, unique within the service."""
    indicator: Annotated[Indicator, Enum]
    """What is measured per request: time to first token, mean time per output token, gap between tokens, whole duration, or whether it was answered without a server error."""  # noqa: E501
    percentile: float | None = Field(default=None, ge=1, lt=100)
    """Percentile that must stay under the threshold, in percent: 95 means `objective: 0.95`. Give one of the two."""
    objective: float | None = Field(default=None, gt=0, lt=1)
    """Share of requests that must be good. Give this or `percentile`."""
    threshold: Span | None = None
    """Longest time a good request may take. Required for each indicator but availability, which has none."""
    window: Window = Field(default=28 * DAY_S, json_schema_extra={"default": "28d"})
    """Time over which the promise is accounted (the error budget's period)."""


class ParallelismModel(_Model):
    """How one replica's model is split. The product of the degrees is `gpusPerReplica`."""

    tensor: int = Field(default=1, ge=1, le=1024)
    """Tensor-parallel degree."""
    pipeline: int = Field(default=1, ge=1, le=1024)
    """Pipeline-parallel degree."""


class ScaleTargetModel(_Model):
    """The object whose replica count is set."""

    kind: Literal["Local", "Deployment"]
    """Local: engine twins on this machine, for demos and rehearsals. Deployment: Kubernetes (not built yet)."""
    name: Label | None = Field(default=None, json_schema_extra={"x-default": "the pool's name"})
    """Name of the object."""


class PoolModel(_Model):
    """A set of equal replicas."""

    name: Label
    """Name of the pool, unique within the service."""
    role: Annotated[Role, Enum] = Role.AGGREGATED
    """What its replicas do: both phases, or one of them (prefill and decode: not built yet)."""
    engine: Annotated[EngineKind, Enum]
    """Engine software; decides how its metrics are read."""
    accelerator: Label
    """Accelerator type, e.g. nvidia-a100-80gb; must be the engine profile's."""
    gpus_per_replica: int = Field(default=1, ge=1, le=1024)
    """Devices one replica takes."""
    parallelism: ParallelismModel = Field(default=ParallelismModel(), json_schema_extra={"default": {}})
    """How the model is split over them."""
    engine_profile: Words
    """Name of a shipped engine profile, or the path of a profile file (relative to the policy file)."""
    min_replicas: int = Field(ge=0, le=_MAX_REPLICAS)
    """Fewest replicas ever asked for (0: not built yet)."""
    max_replicas: int = Field(ge=1, le=_MAX_REPLICAS)
    """Most replicas ever asked for."""
    cold_start: Span
    """Time from order to first answer, at its 95th percentile; used until enough starts were measured."""
    cost_per_hour: float = Field(ge=0, le=1_000_000)
    """Price of one replica in USD per hour."""
    scale_target: ScaleTargetModel
    """What is scaled."""


class ScalingModel(_Model):
    """Limits on movement, shared by all pools of the service."""

    max_grow_replicas: int = Field(default=4, ge=1, le=_MAX_REPLICAS)
    """Most replicas added to a pool by one decision."""
    max_shrink_replicas: int = Field(default=1, ge=1, le=_MAX_REPLICAS)
    """Most replicas taken from a pool by one decision."""
    shrink_stabilisation: Span | None = Field(
        default=None, json_schema_extra={"x-default": "twice the measured cold start"}
    )
    """A pool shrinks only to the highest need seen within this time."""
    target_utilisation: float = Field(default=0.85, gt=0, le=1)
    """Share of a replica's capacity that is planned for."""
    forecast_quantile: float = Field(default=0.9, gt=0, lt=1)
    """Quantile of the forecast demand that must be carried."""
    stale_after: StaleSpan = Field(default=30.0, json_schema_extra={"default": "30s"})
    """A signal older than this may raise a pool but never lower it."""


class BudgetModel(_Model):
    """Caps over all pools of the service."""

    max_cost_per_hour: float | None = Field(default=None, gt=0, json_schema_extra={"x-default": "no cap"})
    """Most USD per hour over all pools."""
    max_gpus: int | None = Field(default=None, ge=1, json_schema_extra={"x-default": "no cap"})
    """Most devices over all pools."""


class GatewayModel(_Model):
    """How the gateway treats the service's requests."""

    retries: int = Field(default=3, ge=0, le=10)
    """Attempts after the first, and only while no byte of the answer was sent."""
    idle_timeout: Span = Field(default=300.0, json_schema_extra={"default": "300s"})
    """Longest silence between two bytes of an answer."""
    max_body_bytes: BodySize = Field(default=8 * 2**20, json_schema_extra={"default": "8Mi"})
    """Largest request body; a larger one is answered 413."""


class OffloadModel(_Model):
    """KV-cache offload to host memory or a pool."""

    enabled: bool = False
    """Whether the cache is offloaded (true: not built yet)."""


class CacheModel(_Model):
    """KV cache."""

    offload: OffloadModel = Field(default=OffloadModel(), json_schema_extra={"default": {}})
    """Offload of KV blocks."""


class SpecModel(_Model):
    """What is promised and what is allowed."""

    model: ModelName
    """Model name as clients send it; unique over all files."""
    mode: Literal["advise", "shadow", "act"] = "advise"
    """advise: decide and show, write nothing. act: carry decisions out. shadow: not built yet."""
    priority: int = Field(default=100, ge=0, le=1_000_000)
    """Who goes first when not all can be served; higher wins."""
    slos: list[SloModel] = Field(min_length=1, max_length=32)
    """The promises."""
    pools: list[PoolModel] = Field(min_length=1, max_length=64)
    """The pools that serve the model."""
    scaling: ScalingModel = Field(default=ScalingModel(), json_schema_extra={"default": {}})
    """Limits on movement."""
    budget: BudgetModel = Field(default=BudgetModel(), json_schema_extra={"default": {}})
    """Caps on spending."""
    gateway: GatewayModel = Field(default=GatewayModel(), json_schema_extra={"default": {}})
    """Request handling."""
    cache: CacheModel = Field(default=CacheModel(), json_schema_extra={"default": {}})
    """KV cache."""
    preemption: dict[str, Any] | None = None
    """Whom this service may take devices from (not built yet)."""
    events: list[Any] | None = None
    """Known future load (not built yet)."""


class ServicePolicyModel(_Model):
    """One service: a model, its promises, its pools."""

    api_version: Literal["tidegate.io/v1alpha1"]
    """Version of this format."""
    kind: Literal["ServicePolicy"]
    """Kind of object."""
    metadata: Metadata
    """Identity."""
    spec: SpecModel
    """Content."""


class NodeModel(_Model):
    """One machine with accelerators."""

    name: Label
    """Name of the node, unique over all files."""
    accelerator: Label
    """Accelerator type of all its devices."""
    gpus: int = Field(ge=0, le=1024)
    """Devices it has."""
    topology_domain: Annotated[str, Field(max_length=253, pattern=r"^[^\x00-\x1f\x7f]*$")] = ""
    """Rack, or other domain within which links are fast."""


class InventorySpecModel(_Model):
    """The nodes."""

    nodes: list[NodeModel] = Field(max_length=10_000)
    """Nodes that replicas may be placed on."""


class InventoryModel(_Model):
    """The declared nodes, where no cluster says what exists."""

    api_version: Literal["tidegate.io/v1alpha1"]
    """Version of this format."""
    kind: Literal["Inventory"]
    """Kind of object."""
    metadata: Metadata
    """Identity."""
    spec: InventorySpecModel
    """Content."""
