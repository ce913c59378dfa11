"""Recording rules and burn-rate alerts for service level objectives, from the gateway's own counts where it has them.

Multi-window, multi-burn-rate after The Site Reliability Workbook, chapter 5: an alert needs both a long window (enough
of the budget is gone) and a short one (it is still going). Rule names follow Sloth's `slo:` scheme.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.catalogue import gateway, own
from tidegate.terms.policy import ServicePolicy
from tidegate.terms.slo import Indicator

Rule = dict[str, object]

# The gateway's histogram of each latency indicator. It sees no single tokens, hence no ITL.
_HISTOGRAMS = {Indicator.TTFT: gateway.TTFT, Indicator.TPOT: gateway.TPOT, Indicator.E2E: gateway.DURATION}
_WINDOWS_S = {"5m": 300, "30m": 1800, "1h": 3600, "2h": 7200, "6h": 21600, "1d": 86400, "3d": 259200}
# A ratio above this counts as burning whatever the objective: 13.4 times the budget of a 90 % objective is over 100 %.
_HIGHEST_RATIO = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """One objective to watch; `service` "" watches every service with the same numbers."""

    service: str
    slo: str
    indicator: Indicator
    objective_ratio: float
    threshold_s: float | None  # None for availability
    window_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Burn:
    """Alert when `budget_share` of the budget went in `long`, and at the same speed in `short`."""

    long: str
    short: str
    budget_share: float


_PAGE = (_Burn(long="1h", short="5m", budget_share=0.02), _Burn(long="6h", short="30m", budget_share=0.05))
_TICKET = (_Burn(long="1d", short="2h", budget_share=0.1), _Burn(long="3d", short="6h", budget_share=0.1))

_FOUR_WEEKS_S = 28 * 86400.0
DEFAULT_OBJECTIVES: tuple[Objective, ...] = (
    Objective(
        service="",
        slo="ttft",
        indicator=Indicator.TTFT,
        objective_ratio=0.95,
        threshold_s=1.0,
        window_s=_FOUR_WEEKS_S,
    ),
    Objective(
        service="",
        slo="tpot",
        indicator=Indicator.TPOT,
        objective_ratio=0.95,
        threshold_s=0.08,
        window_s=_FOUR_WEEKS_S,
    ),
    Objective(
        service="",
        slo="available",
        indicator=Indicator.AVAILABILITY,
        objective_ratio=0.999,
        threshold_s=None,
        window_s=_FOUR_WEEKS_S,
    ),
)


def objectives(policies: Sequence[ServicePolicy]) -> tuple[Objective, ...]:
    """Return the objectives of all policies, in their order."""
    return tuple(
        Objective(
            service=policy.name,
            slo=slo.name,
            indicator=slo.indicator,
            objective_ratio=slo.objective_ratio,
            threshold_s=slo.threshold_s,
            window_s=slo.window_s,
        )
        for policy in policies
        for slo in policy.slos
    )


def recording(objective: Objective) -> list[Rule]:
    """Return the objective itself and its error ratio over each window, as recording rules."""
    labels = {"slo": objective.slo} | ({"service": objective.service} if objective.service else {})
    # Without a policy the services are those the controller knows.
    known = f"0 * max by (service) ({own.POOL_ASKED.name})"
    goal = f"{objective.objective_ratio:g}"
    value = f"vector({goal})" if objective.service else f"{goal} + {known}"
    rules: list[Rule] = [{"record": "slo:objective:ratio", "expr": value, "labels": labels}]
    rules += [
        {"record": f"slo:sli_error:ratio_rate{window}", "expr": error_ratio(objective, window), "labels": labels}
        for window in _WINDOWS_S
    ]
    return rules


def error_ratio(objective: Objective, window: str) -> str:
    """Return PromQL for the share of bad requests over `window`, by service; absent without traffic, never NaN.

    A latency that the gateway does not measure (TPOT when no client asks for `usage`, ITL always) is taken from the
    controller's own readings of the engines' histograms: a mean over time, not weighed by requests.
    """
    service = f'service="{objective.service}"' if objective.service else ""
    if objective.indicator is Indicator.AVAILABILITY:
        # A client that left before the answer (class 0) is neither good nor bad.
        total = _rate(gateway.REQUESTS, window, service, f'{gateway.CODE_CLASS_LABEL}!="0"')
        failed = _rate(gateway.REQUESTS, window, service, f'{gateway.CODE_CLASS_LABEL}="5xx"')
        cut = _rate(gateway.STREAMS_CUT, window, service)
        # A counter that never counted has no series: then the sum is 0 times the total, not absent.
        return f"(({failed} or 0 * {total}) + ({cut} or 0 * {total})) / ({total} > 0)"
    at_engines = ",".join(m for m in (service, f'slo="{objective.slo}"', 'source="engine"') if m)
    mean = f"avg by (service) (avg_over_time({own.SLO_ATTAINED.name}{{{at_engines}}}[{window}]))"
    name = _HISTOGRAMS.get(objective.indicator)
    if name is None:
        return f"1 - {mean}"
    # No such bound: absent, and `TidegateSloNotMeasured` says so.
    bound = _bound(objective.threshold_s or 0.0)
    good = _rate(f"{name}_bucket", window, service, bound)
    return f"1 - ({good} / ({_rate(f'{name}_count', window, service)} > 0) or {mean})"


def burn_alerts(objective: Objective) -> list[Rule]:
    """Return the page and the ticket of one objective."""
    return [
        _burn_alert(objective, _PAGE, name="TidegateSloBurnsFast", severity="page"),
        _burn_alert(objective, _TICKET, name="TidegateSloBurnsSlowly", severity="ticket"),
    ]


def _burn_alert(objective: Objective, burns: Sequence[_Burn], *, name: str, severity: str) -> Rule:
    of_service = f',service="{objective.service}"' if objective.service else ""
    where = f'{{slo="{objective.slo}"{of_service}}}'
    parts = []
    for burn in burns:
        factor = burn.budget_share * objective.window_s / _WINDOWS_S[burn.long]
        ratio = min(factor * (1.0 - objective.objective_ratio), _HIGHEST_RATIO)
        # So few requests that one failure alone would pass the ratio prove nothing.
        fewest = math.ceil(1.0 / ratio)
        requests = f"sum by (service) (increase({gateway.REQUESTS}[{burn.long}]))"
        parts.append(
            f"(slo:sli_error:ratio_rate{burn.long}{where} > {ratio:.6g}"
            f" and slo:sli_error:ratio_rate{burn.short}{where} > {ratio:.6g}"
            f" and on (service) {requests} > {fewest})"
        )
    return {
        "alert": name,
        "expr": " or ".join(parts),
        "labels": {"severity": severity, "slo": objective.slo}
        | ({"service": objective.service} if objective.service else {}),
        "annotations": {
            "summary": "{{ $labels.service }}: objective {{ $labels.slo }} burns its error budget",
            "description": f"{_promise(objective)}; {{{{ $value | humanizePercentage }}}} of requests miss it.",
        },
    }


def _promise(objective: Objective) -> str:
    share = f"{objective.objective_ratio:.6g}"
    if objective.threshold_s is None:
        return f"Promised: a share of {share} answered without failure"
    return f"Promised: a share of {share} with {objective.indicator} within {objective.threshold_s:g} s"


def _bound(threshold_s: float) -> str:
    """Return a matcher for the bucket that holds all below the threshold.

    Prometheus 2 stores the bound as Envoy wrote it, Prometheus 3 as a float.
    """
    # Rounded first: 1.1 s is 1100.0000000000002 ms, and its bound is not that of 1101.
    value = math.ceil(round(threshold_s / gateway.BOUND_SCALE_S, 6)) - gateway.BOUND_OFFSET
    plain, short = f"{value:.12g}", f"{value:g}"
    escaped = [text.replace(".", r"\\.").replace("+", r"\\+") for text in dict.fromkeys((plain, f"{plain}.0", short))]
    return f'le=~"{"|".join(escaped)}"'


def _rate(name: str, window: str, *matchers: str) -> str:
    chosen = ",".join(m for m in matchers if m)
    return (
        f"sum by (service) (rate({name}{{{chosen}}}[{window}]))"
        if chosen
        else (f"sum by (service) (rate({name}[{window}]))")
    )
