"""The fleet board: load, forecast, replicas, objectives, decisions and what the controller cannot see."""

from tidegate.catalogue import gateway, own
from tidegate.dashboards.panels import Board, Panel, Query, Variable

_SERVICE = 'service=~"$service"'
_POOL = 'service=~"$service",pool=~"$pool"'
_CLUSTER = f'{gateway.CLUSTER_LABEL}=~"($service)/($pool)"'
_FAILED = f'{_SERVICE},{gateway.CODE_CLASS_LABEL}="5xx"'
_QUANTILES = ("0.5", "0.95", "0.99")
_RATE = "$__rate_interval"
_LOW, _HIGH = "0.5", "0.9"  # the band: median and the quantile a pool is sized for by default


def _forecast(quantile: str) -> Query:
    return Query(
        expr=f'max by (service) ({own.FORECAST.name}{{{_SERVICE},quantile="{quantile}"}})',
        legend=f"forecast q{quantile} {{{{service}}}}",
    )


def _quantile(name: str, quantile: str) -> Query:
    rate = f"sum by (service, le) (rate({name}_bucket{{{_SERVICE}}}[{_RATE}]))"
    return Query(
        expr=f"(histogram_quantile({quantile}, {rate}) + {gateway.BOUND_OFFSET:g}) / {1 / gateway.BOUND_SCALE_S:.0f}",
        legend=f"p{float(quantile) * 100:g} {{{{service}}}}",
    )


def _attained(slos: str) -> tuple[Query, ...]:
    return (
        Query(
            expr=f"max by (service, slo, source) ({own.SLO_ATTAINED.name}{{{_SERVICE},slo{slos}}})",
            legend="{{service}} {{slo}} ({{source}})",
        ),
        Query(
            expr=f"max by (service, slo) (slo:objective:ratio{{{_SERVICE},slo{slos}}})",
            legend="objective {{service}} {{slo}}",
        ),
    )


_LOAD = Panel(
    title="Load and forecast",
    description="Arrivals at the gateway, and the forecast's peak over one cold start from then on.",
    unit="reqps",
    queries=(
        Query(expr=f"max by (service) ({own.ARRIVALS.name}{{{_SERVICE}}})", legend="arrivals {{service}}"),
        _forecast(_LOW),
        _forecast(_HIGH),
    ),
    band=(f"forecast q{_LOW}", f"forecast q{_HIGH}"),
)
_REPLICAS = Panel(
    title="Replicas: ready, asked, wanted",
    description="Ready serve now; asked is the newest decision; wanted is what demand needs before any guard.",
    unit="short",
    style="step",
    queries=(
        Query(
            expr=f'sum by (service, pool) ({own.POOL_REPLICAS.name}{{{_POOL},state="ready"}})',
            legend="ready {{service}}/{{pool}}",
        ),
        Query(expr=f"max by (service, pool) ({own.POOL_ASKED.name}{{{_POOL}}})", legend="asked {{service}}/{{pool}}"),
        Query(expr=f"max by (service, pool) ({own.POOL_WANTED.name}{{{_POOL}}})", legend="wanted {{service}}/{{pool}}"),
    ),
    dashed=("wanted",),
)
_TTFT_TPOT = Panel(
    title="TTFT and TPOT: share within the threshold",
    description="Over the observe window, by source, beside the objective. A gap means unknown, not zero.",
    unit="percentunit",
    maximum=1.0,
    queries=_attained('!~".*avail.*"'),
    dashed=("objective",),
)
_AVAILABLE = Panel(
    title="Availability: share answered without failure",
    description="Over the observe window, beside the objective.",
    unit="percentunit",
    minimum=None,
    maximum=1.0,
    queries=_attained('=~".*avail.*"'),
    dashed=("objective",),
)
_LATENCY = Panel(
    title="TTFT at the gateway",
    description="Quantiles of whole streamed answers; the top bucket bound is a floor, not an estimate.",
    unit="s",
    queries=tuple(_quantile(gateway.TTFT, q) for q in _QUANTILES),
)
_TOKEN_LATENCY = Panel(
    title="TPOT at the gateway",
    description="Quantiles of the mean time per output token after the first, one observation per streamed answer.",
    unit="s",
    queries=tuple(_quantile(gateway.TPOT, q) for q in _QUANTILES),
)
_DECISIONS = Panel(
    title="Decisions by binding reason",
    description="How many decisions each reason bound, and which way it moved the pool.",
    unit="short",
    style="bars",
    stacked=True,
    queries=(
        Query(
            expr=f"sum by (verdict, reason) (increase({own.DECISIONS.name}{{{_POOL}}}[{_RATE}]))",
            legend="{{verdict}}: {{reason}}",
        ),
    ),
)
_UNKNOWN = Panel(
    title="Signals unknown",
    description="Each signal without a number, and why. While one is unknown nothing shrinks.",
    unit="short",
    style="step",
    queries=(
        Query(
            expr=f"max by (service, pool, signal, reason) ({own.SIGNAL_UNKNOWN.name}{{{_SERVICE}}}) > 0",
            legend="{{service}}/{{pool}} {{signal}}: {{reason}}",
        ),
    ),
)
_VIOLATIONS = Panel(
    title="Metric contract violations",
    description="Expected metrics that match no live series; `tidegate check` names them.",
    unit="short",
    style="step",
    queries=(
        Query(
            expr=f"max by (service, pool) ({own.CONTRACT_VIOLATIONS.name}{{{_POOL}}})", legend="{{service}}/{{pool}}"
        ),
    ),
)
_FAILURES = Panel(
    title="Gateway: failures and cut streams",
    description="Answers of class 5xx, and answers that began and were cut before their end.",
    unit="reqps",
    queries=(
        Query(
            expr=f"sum by (service, pool) (rate({gateway.REQUESTS}{{{_FAILED}}}[{_RATE}]))",
            legend="5xx {{service}}/{{pool}}",
        ),
        Query(
            expr=f"sum by (service, pool) (rate({gateway.STREAMS_CUT}{{{_SERVICE}}}[{_RATE}]))",
            legend="cut {{service}}/{{pool}}",
        ),
    ),
)
_IN_FLIGHT = Panel(
    title="Gateway: in flight, waiting for an endpoint, retried",
    description="Envoy's own counts per pool; retries per second.",
    unit="short",
    queries=(
        Query(
            expr=f"sum by ({gateway.CLUSTER_LABEL}) ({gateway.IN_FLIGHT}{{{_CLUSTER}}})",
            legend=f"in flight {{{{{gateway.CLUSTER_LABEL}}}}}",
        ),
        Query(
            expr=f"sum by ({gateway.CLUSTER_LABEL}) ({gateway.PENDING}{{{_CLUSTER}}})",
            legend=f"waiting {{{{{gateway.CLUSTER_LABEL}}}}}",
        ),
        Query(
            expr=f"sum by ({gateway.CLUSTER_LABEL}) (rate({gateway.RETRIES}{{{_CLUSTER}}}[{_RATE}]))",
            legend=f"retries/s {{{{{gateway.CLUSTER_LABEL}}}}}",
        ),
    ),
)
_TICKS = Panel(
    title="Controller: duration of a tick",
    description="Observe, forecast, decide, plan, act. Nothing here while the controller is down.",
    unit="s",
    queries=tuple(
        Query(
            expr=f"histogram_quantile({q}, sum by (le) (rate({own.TICK_DURATION.name}_bucket[{_RATE}])))",
            legend=f"p{float(q) * 100:g}",
        )
        for q in ("0.5", "0.99")
    ),
)
_BURN = Panel(
    title="Error budget burn rate",
    description="Share of bad requests over an hour, divided by the share the objective allows; 1 spends it exactly.",
    unit="short",
    queries=(
        Query(
            expr=(
                f"max by (service, slo) (slo:sli_error:ratio_rate1h{{{_SERVICE}}})"
                f" / on (service, slo) (1 - max by (service, slo) (slo:objective:ratio{{{_SERVICE}}}))"
            ),
            legend="{{service}} {{slo}}",
        ),
    ),
)

FLEET = Board(
    uid="tidegate-fleet",
    title="Tidegate / Fleet",
    description="What arrives, what is expected, what was decided and why, and whether the promises are kept.",
    variables=(
        Variable(name="service", label="Service", query=f"label_values({own.POOL_ASKED.name}, service)"),
        Variable(name="pool", label="Pool", query=f'label_values({own.POOL_ASKED.name}{{service=~"$service"}}, pool)'),
    ),
    panels=(
        _LOAD,
        _REPLICAS,
        _TTFT_TPOT,
        _AVAILABLE,
        _LATENCY,
        _TOKEN_LATENCY,
        _DECISIONS,
        _UNKNOWN,
        _VIOLATIONS,
        _FAILURES,
        _IN_FLIGHT,
        _BURN,
        _TICKS,
    ),
)
