"""Rules of a policy that no single field shows: minima and maxima, sums, names given twice, what is not built yet."""

from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel

from tidegate.app.config_model import BudgetModel, PoolModel, SloModel
from tidegate.app.config_problem import FieldPath, Problem, got_must, shown_value
from tidegate.app.config_validate import validate
from tidegate.app.config_yaml import Document
from tidegate.terms.fleet import Role
from tidegate.terms.slo import Indicator

_M = TypeVar("_M", bound=BaseModel)
_NOT_BUILT = "is not built yet"
_MAX_ENTRIES = 64  # of pools and of SLOs; the model refuses longer lists


class ProfileFacts(Protocol):
    """What of an engine profile a policy can contradict."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def model(self) -> str: ...  # noqa: D102
    @property
    def accelerator(self) -> str: ...  # noqa: D102
    @property
    def engine(self) -> str: ...  # noqa: D102
    @property
    def tensor_parallel(self) -> int: ...  # noqa: D102


FindProfile = Callable[[str], ProfileFacts | str]  # the text says why there is none


def check_policy(document: Document, find_profile: FindProfile) -> tuple[list[Problem], list[Problem]]:
    """Return (problems, warnings) of one policy document, looking at each part that is well formed by itself."""
    spec = _mapping(_mapping(document.value).get("spec"))
    problems = list(_not_built(document, spec))
    warnings: list[Problem] = []
    problems += _twice(document, spec.get("pools"), ("spec", "pools"))
    problems += _twice(document, spec.get("slos"), ("spec", "slos"))
    for path, slo in _sound(document, spec.get("slos"), ("spec", "slos"), SloModel):
        problems += _check_slo(document, path, slo)
    problems += _check_bounds(document, spec.get("pools"))
    pools = list(_sound(document, spec.get("pools"), ("spec", "pools"), PoolModel))
    for path, pool in pools:
        problems += _check_pool(document, path, pool)
    problems += _check_profiles(document, spec, dict(pools), find_profile, warnings)
    budget = validate(BudgetModel, document, spec.get("budget", {}), ("spec", "budget"))
    if isinstance(budget, BudgetModel):
        problems += _check_budget(document, budget, [pool for _, pool in pools])
    return problems, warnings


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _entries(value: object) -> list[Any]:
    """Return the entries of a list, no more than are allowed anyway: what is beyond is refused by its length."""
    return value[:_MAX_ENTRIES] if isinstance(value, list) else []


def _sound(document: Document, items: object, path: FieldPath, model: type[_M]) -> Iterator[tuple[FieldPath, _M]]:
    for i, item in enumerate(_entries(items)):
        made = validate(model, document, item, (*path, i))
        if isinstance(made, model):
            yield (*path, i), made


def _twice(document: Document, items: object, path: FieldPath) -> Iterator[Problem]:
    seen: dict[str, int] = {}
    for i, item in enumerate(_entries(items)):
        name = _mapping(item).get("name")
        if not isinstance(name, str):
            continue
        if name in seen:
            first = document.lines.get((*path, seen[name], "name"), document.line)
            yield document.problem((*path, i, "name"), f"{shown_value(name)} is given twice, first on line {first}")
        seen.setdefault(name, i)


def _not_built(document: Document, spec: dict[str, Any]) -> Iterator[Problem]:
    def refuse(text: str, *path: str | int) -> Problem:
        return document.problem(("spec", *path), f"{text} {_NOT_BUILT}", not_built=True)

    if spec.get("mode") == "shadow":
        yield refuse("shadow mode", "mode")
    for name in ("preemption", "events"):
        if name in spec:
            yield refuse(name, name)
    if _mapping(_mapping(spec.get("cache")).get("offload")).get("enabled") is True:
        yield refuse("cache offload", "cache", "offload", "enabled")
    pools = spec.get("pools")
    for i, pool in enumerate(_entries(pools)):
        fields = _mapping(pool)
        if fields.get("role") in (Role.PREFILL.value, Role.DECODE.value):
            yield refuse(f"role {fields['role']}", "pools", i, "role")
        if fields.get("minReplicas") == 0 and not isinstance(fields.get("minReplicas"), bool):
            yield refuse("scaling to zero (minReplicas 0)", "pools", i, "minReplicas")
        if _mapping(fields.get("scaleTarget")).get("kind") == "Deployment":
            yield refuse("scaling a Deployment", "pools", i, "scaleTarget", "kind")


def _check_slo(document: Document, path: FieldPath, slo: SloModel) -> Iterator[Problem]:
    if slo.percentile is not None and slo.objective is not None:
        yield document.problem((*path, "objective"), "percentile and objective are both given, must be one of them")
    if slo.percentile is None and slo.objective is None:
        yield document.problem((*path, "objective"), "missing, must be given (or percentile)")
    if slo.indicator is Indicator.AVAILABILITY:
        if slo.percentile is not None:
            text = f"availability is a share of requests, must be objective: {slo.percentile / 100:g}"
            yield document.problem((*path, "percentile"), text)
        if slo.threshold is not None:
            yield document.problem((*path, "threshold"), "availability has no threshold, must be left out")
    elif slo.threshold is None:
        text = f"missing, must be the longest good {slo.indicator.value}, such as 500ms"
        yield document.problem((*path, "threshold"), text)


def _check_bounds(document: Document, pools: object) -> Iterator[Problem]:
    for i, raw in enumerate(_entries(pools)):
        low, high = _mapping(raw).get("minReplicas"), _mapping(raw).get("maxReplicas")
        if isinstance(low, int) and isinstance(high, int) and low > high:
            yield document.problem(("spec", "pools", i, "maxReplicas"), got_must(high, f">= minReplicas ({low})"))


def _check_pool(document: Document, path: FieldPath, pool: PoolModel) -> Iterator[Problem]:
    degrees = pool.parallelism.tensor * pool.parallelism.pipeline
    if degrees != pool.gpus_per_replica:
        text = (
            f"tensor {pool.parallelism.tensor} x pipeline {pool.parallelism.pipeline} is {degrees}, "
            f"must be gpusPerReplica ({pool.gpus_per_replica})"
        )
        yield document.problem((*path, "parallelism"), text)


def _check_profiles(
    document: Document,
    spec: dict[str, Any],
    sound: dict[FieldPath, PoolModel],
    find_profile: FindProfile,
    warnings: list[Problem],
) -> Iterator[Problem]:
    """Yield what is wrong with the profiles named; a pool that is wrong elsewhere has its profile's name checked."""
    pools = spec.get("pools")
    for i, raw in enumerate(_entries(pools)):
        path = ("spec", "pools", i)
        name = _mapping(raw).get("engineProfile")
        if not isinstance(name, str) or not name:
            continue  # reported by its type
        found = find_profile(name)
        if isinstance(found, str):
            yield document.problem((*path, "engineProfile"), found)
        elif path in sound:
            yield from _check_profile(document, path, sound[path], found)
            warnings += _doubts(document, path, sound[path], found, model=spec.get("model"))


def _check_profile(document: Document, path: FieldPath, pool: PoolModel, profile: ProfileFacts) -> Iterator[Problem]:
    if profile.accelerator != pool.accelerator:
        must = f"{profile.accelerator}, as in engine profile {profile.name}"
        yield document.problem((*path, "accelerator"), got_must(pool.accelerator, must))
    if profile.tensor_parallel != pool.parallelism.tensor:
        must = f"{profile.tensor_parallel}, as in engine profile {profile.name}"
        yield document.problem((*path, "parallelism", "tensor"), got_must(pool.parallelism.tensor, must))


def _doubts(
    document: Document, path: FieldPath, pool: PoolModel, profile: ProfileFacts, *, model: object
) -> Iterator[Problem]:
    """Yield what may well be right (a fine-tune, a like engine) and still deserves a second look."""
    at = (*path, "engineProfile")
    if profile.model != model:
        yield document.problem(at, f"profile {profile.name} is of {profile.model}, the service serves {model}")
    if profile.engine != pool.engine.value:
        yield document.problem(at, f"profile {profile.name} is of {profile.engine}, the pool runs {pool.engine.value}")


def _check_budget(document: Document, budget: BudgetModel, pools: list[PoolModel]) -> Iterator[Problem]:
    gpus = sum(p.min_replicas * p.gpus_per_replica for p in pools)
    if budget.max_gpus is not None and gpus > budget.max_gpus:
        must = f">= {gpus}, what the pools' minReplicas take"
        yield document.problem(("spec", "budget", "maxGpus"), got_must(budget.max_gpus, must))
    cost = sum(p.min_replicas * p.cost_per_hour for p in pools)
    if budget.max_cost_per_hour is not None and cost > budget.max_cost_per_hour:
        must = f">= {cost:g}, what the pools' minReplicas cost"
        yield document.problem(("spec", "budget", "maxCostPerHour"), got_must(budget.max_cost_per_hour, must))
