"""Calibration: the few numbers of a profile that a log can tell, found by replaying its arrivals in the simulator.

The kernels' coefficients stay those of the prior profile: a log cannot tell them apart. Found are what surrounds them
(front end, host costs), how far prefill lies above the kernels' own time, and how much of the prompts was cached.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tidegate.app.profiles.cases import Case, Metric, modelled
from tidegate.app.profiles.log import FloatArray
from tidegate.app.profiles.replay import MakeFleet, replayed
from tidegate.app.profiles.reuse import Reuse
from tidegate.perf.fit import Unknown, solve
from tidegate.perf.profile import EngineProfile

# A log cannot tell launch and fixed host cost apart: their sum is found in the former, which can fall as well as rise.
DEFAULT = ("front-end", "front-end-per-live", "step-base", "compute-factor")
REUSE_KINDS = ("none", "share", "turns")
# A median prompt this short is computed while the weights are read, so nothing shows whether it was cached.
SHORT_PROMPT_TOKENS = 256
_OUTLIER = 2.0  # residuals beyond this many standard deviations count linearly: one load past its knee must not rule
_BETTER = 0.9  # each further number of reuse must cut the cost to this share
_ROUNDS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One number of a profile that can be calibrated, as `unit`s."""

    name: str
    unit: str
    field: str
    per_unit: float  # of the field's own unit
    low: float
    high: float
    step: float
    prior_spread: float  # one standard deviation
    relative: bool = False  # step and spread are shares of the prior's value


SETTINGS: dict[str, Setting] = {
    s.name: s
    for s in (
        Setting(
            name="front-end", unit="ms", field="front_end_ps", per_unit=1e9, low=0.0, high=500.0, step=0.5,
            prior_spread=15.0,
        ),
        Setting(
            name="front-end-per-live", unit="ms", field="front_end_ps_per_live", per_unit=1e9, low=0.0, high=10.0,
            step=0.05, prior_spread=0.7,
        ),
        Setting(
            name="step-base",
            unit="ms",
            field="step_base_ps",
            per_unit=1e9,
            low=0.0,
            high=200.0,
            step=0.1,
            prior_spread=1.0,
        ),
        Setting(
            name="host-fixed", unit="ms", field="host_fixed_ps", per_unit=1e9, low=0.0, high=50.0, step=0.1,
            prior_spread=1.0,
        ),
        Setting(
            name="host-per-sequence", unit="us", field="host_ps_per_sequence", per_unit=1e6, low=0.0, high=2000.0,
            step=5.0, prior_spread=30.0,
        ),
        Setting(
            name="compute-factor", unit="x", field="compute_factor_ratio", per_unit=1.0, low=0.5, high=3.0, step=0.02,
            prior_spread=0.15,
        ),
        Setting(
            name="kv-capacity",
            unit="ktokens",
            field="kv_capacity_tokens",
            per_unit=1e3,
            low=0.1,
            high=1e5,
            step=0.04,
            prior_spread=1.0,
            relative=True,
        ),
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One number that was calibrated."""

    name: str
    unit: str
    prior: float
    value: float
    spread: float  # standard deviation
    told: bool  # whether the log tells it; else it stays near the prior
    at_bound: bool  # it ran into the end of its range


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """How one case comes out: relative errors of the figures, in the case's order."""

    case: Case
    modelled: tuple[float, ...]
    refused: int  # requests too long for the modelled engine

    def error_ratio(self, metric: Metric, level: float | None) -> float | None:
        """Return the relative error of one figure (+ is too slow), or None where it was not measured."""
        for figure, value in zip(self.case.figures, self.modelled, strict=True):
            if figure.metric is metric and figure.level == level:
                return value / figure.value - 1.0
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """A calibrated profile, and how it was found."""

    profile: EngineProfile
    reuse: Mapping[str, Reuse]  # by workload
    found: tuple[Found, ...]
    rows: tuple[Row, ...]
    cost: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """Which numbers are free, in order: settings of the profile, then those of each workload's reuse."""

    prior: EngineProfile
    settings: tuple[Setting, ...]
    kinds: Mapping[str, str]  # reuse kind by workload
    prompts: Mapping[str, float]  # median prompt by workload

    def unknowns(self) -> list[Unknown]:
        found = [_setting_unknown(s, getattr(self.prior, s.field) / s.per_unit) for s in self.settings]
        for workload, kind in self.kinds.items():
            prompt = self.prompts[workload]
            if kind == "share":
                found.append(_reuse_unknown("cached share", workload, (0.3, 0.0, 0.99, 0.02, 0.5)))
            if kind == "turns":
                turn = (0.4 * prompt, 16.0, 4.0 * prompt, 0.04 * prompt, 0.5 * prompt)
                found.append(_reuse_unknown("turn", workload, turn))
                found.append(_reuse_unknown("found nothing", workload, (0.15, 0.0, 1.0, 0.02, 0.3)))
        return found

    def applied(self, values: Sequence[float]) -> tuple[EngineProfile, dict[str, Reuse]]:
        changes: dict[str, float] = {}
        for setting, value in zip(self.settings, values, strict=False):
            scaled = value * setting.per_unit
            changes[setting.field] = round(scaled, 4) if setting.field.endswith("_ratio") else _rounded(scaled)
        if "kv_capacity_tokens" in changes:
            block = self.prior.block_tokens
            changes["kv_capacity_tokens"] = max(2, int(changes["kv_capacity_tokens"]) // block) * block
        left = list(values[len(self.settings) :])
        reuse: dict[str, Reuse] = {}
        for workload, kind in self.kinds.items():
            if kind == "share":
                reuse[workload] = Reuse(share_ratio=left.pop(0))
            elif kind == "turns":
                reuse[workload] = Reuse(turn_tokens=left.pop(0), miss_ratio=left.pop(0))
            else:
                reuse[workload] = Reuse()
        return replace(self.prior, **changes), reuse  # type: ignore[arg-type]  # fields and kinds are of SETTINGS


def _rounded(ps: float) -> int:
    """Return whole picoseconds with five digits: the sixth is noise, and a file is read by people."""
    return round(float(f"{ps:.4e}"))


def _setting_unknown(setting: Setting, start: float) -> Unknown:
    unit = start if setting.relative else 1.0
    return Unknown(
        name=setting.name,
        start=start,
        low=setting.low,
        high=setting.high,
        step=setting.step * unit,
        prior_spread=setting.prior_spread * unit,
    )


def _reuse_unknown(what: str, workload: str, numbers: tuple[float, float, float, float, float]) -> Unknown:
    start, low, high, step, spread = numbers
    name = f"{what} ({workload})" if workload else what
    return Unknown(name=name, start=start, low=low, high=high, step=step, prior_spread=spread)


def calibrated(
    cases: Sequence[Case],
    prior: EngineProfile,
    *,
    settings: Sequence[str] = DEFAULT,
    reuse: str = "auto",
    make_fleet: MakeFleet,
    progress: Callable[[str], None] = lambda _: None,
) -> Calibration:
    """Return the profile that fits the cases not held out best, and how it does on all of them.

    Args:
        cases: At least one that is not held out.
        prior: Where to start, and what is believed of numbers that the cases do not tell.
        settings: Names in SETTINGS.
        reuse: One of REUSE_KINDS, or "auto": the simplest whose cost no richer one beats clearly.
        make_fleet: The simulator.
        progress: Is told what is being done.
    """
    prompts = {
        workload: float(np.median(np.concatenate([c.prompt_tokens for c in cases if c.workload == workload])))
        for workload in dict.fromkeys(c.workload for c in cases)
    }
    best: Calibration | None = None
    for kind in REUSE_KINDS if reuse == "auto" else (reuse,):
        kinds = {w: "none" if prompt <= SHORT_PROMPT_TOKENS else kind for w, prompt in prompts.items()}
        if best is not None and all(k == "none" for k in kinds.values()):
            break
        progress(f"fitting {', '.join(settings)}; prefix reuse: {kind}")
        plan = _Plan(prior=prior, settings=tuple(SETTINGS[s] for s in settings), kinds=kinds, prompts=prompts)
        found = _fitted(plan, cases, make_fleet)
        if best is None or found.cost < _BETTER * best.cost:
            best = found
    if best is None:
        raise AssertionError
    return best


def _fitted(plan: _Plan, cases: Sequence[Case], make_fleet: MakeFleet) -> Calibration:
    train = [c for c in cases if not c.held_out]
    targets = np.log([f.value for c in train for f in c.figures])
    spreads = np.array([f.spread_ratio for c in train for f in c.figures])

    def residuals(values: Sequence[float]) -> FloatArray:
        profile, reuse = plan.applied(values)
        seconds = [_modelled(c, profile, reuse[c.workload], make_fleet)[0] for c in train]
        return _tamed((np.log(np.concatenate(seconds)) - targets) / spreads)

    unknowns = plan.unknowns()
    solution = solve(residuals, unknowns, rounds=_ROUNDS) if unknowns else None
    found_values = solution.values if solution else ()
    profile, reuse = plan.applied(found_values)
    units = [s.unit for s in plan.settings]
    units += ["tokens" if u.name.startswith("turn") else "ratio" for u in unknowns[len(units) :]]
    found = tuple(
        Found(
            name=u.name,
            unit=unit,
            prior=u.start,
            value=value,
            spread=spread,
            told=spread < 0.7 * (u.prior_spread or 0.0),
            at_bound=value >= u.high,
        )
        for u, unit, value, spread in zip(
            unknowns, units, found_values, solution.spreads if solution else (), strict=True
        )
    )
    cost = solution.cost if solution else float(np.sum(residuals(()) ** 2)) / 2.0
    rows = tuple(row_of(c, profile, reuse[c.workload], make_fleet=make_fleet) for c in cases)
    return Calibration(profile=profile, reuse=reuse, found=found, rows=rows, cost=cost)


def row_of(case: Case, profile: EngineProfile, reuse: Reuse, *, make_fleet: MakeFleet) -> Row:
    """Return how a case comes out with a given profile."""
    values, refused = _modelled(case, profile, reuse, make_fleet)
    return Row(case=case, modelled=tuple(values.tolist()), refused=refused)


def _modelled(case: Case, profile: EngineProfile, reuse: Reuse, make_fleet: MakeFleet) -> tuple[FloatArray, int]:
    out = replayed(case, profile, reuse, make_fleet=make_fleet)
    refused = int(np.count_nonzero(np.isnan(out.ttft_s[case.first : case.until])))
    return modelled(case, out.ttft_s, out.decode_s), refused


def _tamed(errors: FloatArray) -> FloatArray:
    """Return residuals whose squares grow linearly far out (pseudo-Huber), finite for infinite ones."""
    bounded = np.clip(np.nan_to_num(errors, nan=1e6, posinf=1e6, neginf=-1e6), -1e6, 1e6)
    tamed: FloatArray = np.sign(bounded) * _OUTLIER * np.sqrt(2.0 * (np.sqrt(1.0 + (bounded / _OUTLIER) ** 2) - 1.0))
    return tamed
