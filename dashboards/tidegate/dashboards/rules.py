"""The Prometheus rules file: objectives, and what an operator must hear about the controller itself."""

from collections.abc import Sequence

from tidegate.catalogue import gateway, own
from tidegate.dashboards.slo_rules import DEFAULT_OBJECTIVES, Objective, Rule, burn_alerts, recording

# Reasons that are no fault: the engine never exposes it, nobody asked for it, or the replica has just started.
_HARMLESS = "not_offered|not_configured|too_young"
_OBJECTIVES = "slo_.+"  # an objective that is not measured shrinks nothing and has its own alert
_LOSS = f'reason!~"{_HARMLESS}",signal!~"{_OBJECTIVES}"'
_TRAFFIC = f"sum by (service) (rate({gateway.REQUESTS}[5m])) > 0"


def rules_file(watched: Sequence[Objective] = DEFAULT_OBJECTIVES) -> dict[str, object]:
    """Return the rules file as a value, groups and rules in a fixed order."""
    return {
        "groups": [
            {"name": "tidegate-slo", "rules": [rule for objective in watched for rule in recording(objective)]},
            {"name": "tidegate-slo-alerts", "rules": [r for o in watched for r in burn_alerts(o)] + [_no_indicator()]},
            {"name": "tidegate-controller", "rules": _controller()},
        ]
    }


def _controller() -> list[Rule]:
    tick = f"{own.TICK_DURATION.name}_count"
    return [
        _alert(
            "TidegateMetricsUnknown",
            f"max by (service, pool, signal, reason) ({own.SIGNAL_UNKNOWN.name}{{{_LOSS}}}) > 0"
            f" and on (service) {_TRAFFIC}",
            lasts="5m",
            severity="page",
            summary="{{ $labels.service }}/{{ $labels.pool }}: {{ $labels.signal }} is unknown ({{ $labels.reason }})",
            description="Traffic flows and the controller cannot see this signal; it holds and will not shrink.",
        ),
        _alert(
            "TidegateContractViolated",
            f"max by (service, pool) ({own.CONTRACT_VIOLATIONS.name}) > 0",
            lasts="2m",
            severity="page",
            summary="{{ $labels.service }}/{{ $labels.pool }}: {{ $value }} expected metrics match no series",
            description="An engine renamed a metric or a scrape job is gone; `tidegate check` names each one.",
        ),
        _alert(
            "TidegatePoolAtLimit",
            f"{own.POOL_WANTED.name} > {own.POOL_ASKED.name} and on (service, pool)"
            f' sum by (service, pool) (increase({own.DECISIONS.name}{{reason=~"at_maximum|budget"}}[10m])) > 0',
            lasts="10m",
            severity="page",
            summary="{{ $labels.service }}/{{ $labels.pool }} needs {{ $value }} replicas and may not have them",
            description="Demand has exceeded maxReplicas or the budget for 10 minutes; raise the limit or shed load.",
        ),
        _alert(
            "TidegateControllerDown",
            f"absent({tick})",
            lasts="2m",
            severity="page",
            summary="No metrics of the controller",
            description="Replica counts and routes stay as they are until it is back.",
        ),
        _alert(
            "TidegateControllerStuck",
            f"sum(rate({tick}[5m])) == 0",
            lasts="5m",
            severity="page",
            summary="The controller answers and no longer decides",
            description="Its loop has made no tick for 5 minutes.",
        ),
        _alert(
            "TidegateJournalNotWritable",
            f"min({own.JOURNAL_WRITABLE.name}) == 0",
            lasts="1m",
            severity="page",
            summary="The controller's journal cannot be written",
            description="It makes no move that could not be replayed; free the disk.",
        ),
    ]


def _no_indicator() -> Rule:
    """An alert on an error ratio can never fire while the ratio is absent: that absence has its own alert."""
    return _alert(
        "TidegateSloNotMeasured",
        f"slo:objective:ratio unless on (service, slo) slo:sli_error:ratio_rate1h and on (service) {_TRAFFIC}",
        lasts="15m",
        severity="ticket",
        summary="{{ $labels.service }}: objective {{ $labels.slo }} is not measured",
        description="Traffic flows and its indicator is absent: no bucket bound at the threshold, or no such requests.",
    )


def _alert(name: str, expr: str, *, lasts: str, severity: str, summary: str, description: str) -> Rule:
    return {
        "alert": name,
        "expr": expr,
        "for": lasts,
        "labels": {"severity": severity},
        "annotations": {"summary": summary, "description": description},
    }
