"""The few queries one look at the fleet takes, whatever its size.

Engines and gateway are read as raw samples of all spellings at once: a range selector keeps metric names and true
sample times. `rate()` over a name pattern would fail while two spellings overlap, and would hide the age of what it
used. Histograms, the bulk of an exposition, are summed by the server, one query per spelling that was seen alive.
"""

from collections.abc import Iterable, Sequence

from tidegate.catalogue import gateway
from tidegate.catalogue.canonical import LATENCIES, LENGTHS, QUANTITIES
from tidegate.catalogue.engines import ENGINES
from tidegate.catalogue.quantity import EngineCatalogue, Kind, Quantity
from tidegate.observe.matchers import Matcher, any_of, duration, selector
from tidegate.observe.settings import ObserveSettings
from tidegate.terms.policy import ServicePolicy

UP = "up"
SPELLING = "tidegate_spelling"  # label that carries a metric's name through `rate`
# How far from the ends of a window `rate` still extrapolates to them (Prometheus, functions.go, extrapolatedRate).
_EDGE_SCRAPES = 1.1


def engines_of(policies: Sequence[ServicePolicy]) -> tuple[EngineCatalogue, ...]:
    """Return the catalogues of the engines the policies name, by name."""
    return tuple(ENGINES[name] for name in sorted({pool.engine.value for p in policies for pool in p.pools}))


def quantities_of(policies: Sequence[ServicePolicy]) -> tuple[Quantity, ...]:
    """Return what is read of a replica: everything but the latencies that no objective names."""
    named = {slo.indicator.value for p in policies for slo in p.slos}
    return tuple(q for q in QUANTITIES if q not in LATENCIES or q.name in named)


def engine_names(catalogue: EngineCatalogue, quantities: Iterable[Quantity]) -> frozenset[str]:
    """Return every series name read raw: gauges, counters, and the sums and counts of histograms."""
    names: set[str] = set()
    for quantity in quantities:
        for name, alias in catalogue.spellings(quantity.name):
            if quantity.kind is not Kind.HISTOGRAM:
                names |= {name, *catalogue.additions(name, alias)}
            elif quantity in LENGTHS:
                names |= {f"{name}_sum", f"{name}_count"}
            else:
                names.add(f"{name}_count")
    return frozenset(names)


def engine_samples(policies: Sequence[ServicePolicy], settings: ObserveSettings, *extra: Matcher) -> str:
    """Return the query for raw samples of all replicas of the policies' services, and of their targets' `up`.

    `extra` replaces the matcher on the service label.
    """
    quantities = quantities_of(policies)
    names = {UP}.union(*(engine_names(c, quantities) for c in engines_of(policies)))
    matchers = extra or (any_of(settings.service_label, (p.name for p in policies)),)
    return f"{selector(names, *matchers)}[{duration(settings.look_back_s)}]"


def gateway_samples(settings: ObserveSettings) -> str:
    """Return the query for the gateway's raw samples."""
    names = (*gateway.CLUSTER, *gateway.LOGGED, UP)
    job = Matcher(label="job", values=(settings.gateway_job,))
    return f"{selector(names, job)}[{duration(settings.look_back_s)}]"


def bucket_rates(family: str, by: Iterable[str], settings: ObserveSettings, *matchers: Matcher) -> str:
    """Return the query for a histogram's bucket rates, summed by `by` and `le`."""
    labels = ",".join([*by, "le"])
    inner = selector([f"{family}_bucket"], *matchers)
    return f"sum by ({labels}) (rate({inner}[{duration(settings.rate_window_s)}]))"


def counter_rate(name: str, by: str, window_s: float, settings: ObserveSettings, *matchers: Matcher) -> str:
    """Return the query for a counter's rate, summed by `by`, of series that have a sample at both ends of the window.

    Where a series begins or a gap ends, `rate` extrapolates by half a scrape only, and shows a ramp that no load made:
    a forecaster would see a trend in it. With a sample within 1.1 scrapes of each end it extrapolates all the way.
    """
    return f"sum by ({by}) ({_whole_rate(name, window_s, settings, *matchers)})"


def spelled_rates(names: Iterable[str], by: str, window_s: float, settings: ObserveSettings, *matchers: Matcher) -> str:
    """Return the query for the rates of several spellings at once, as `counter_rate`, by spelling too.

    `rate` drops the name, so each spelling gets it back as a label: else one would hide the other.
    """
    each = [
        f'label_replace({_whole_rate(name, window_s, settings, *matchers)}, "{SPELLING}", "{name}", "", "")'
        for name in names
    ]
    return f"sum by ({by},{SPELLING}) ({' or '.join(each)})"


def _whole_rate(name: str, window_s: float, settings: ObserveSettings, *matchers: Matcher) -> str:
    series = selector([name], *matchers)
    edge_s = _EDGE_SCRAPES * settings.scrape_interval_s
    early = f"count_over_time({series}[{duration(edge_s)}] offset {duration(window_s - edge_s)})"
    late = f"count_over_time({series}[{duration(edge_s)}])"
    return f"rate({series}[{duration(window_s)}]) and {early} and {late}"
