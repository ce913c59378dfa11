"""Latency readings of a simulated gateway, from the growth of its histograms."""

from collections.abc import Callable, Sequence

from tidegate.perf.profile import PS_PER_S
from tidegate.sim.histogram import quantile, share
from tidegate.sim.membership import NOT_ASKED, SOURCE
from tidegate.sim.sample import FleetSample
from tidegate.sim.setup import FleetSetup
from tidegate.sim.trace import Int64Array
from tidegate.sim.window import Window
from tidegate.terms.observation import LatencyReading, SliReading
from tidegate.terms.signal import Signal, UnknownReason, reading, unknown
from tidegate.terms.slo import Indicator, Slo

_READ_FROM = "gateway (simulated)"


def latency_readings(
    wanted: Sequence[tuple[Indicator, float, float]],
    setup: FleetSetup,
    gateway: Window,
    since: Callable[[float], FleetSample | None],
) -> tuple[LatencyReading, ...]:
    """Return each (indicator, quantile, window in seconds) asked for.

    Args:
        wanted: TTFT, TPOT, ITL (read as TPOT) or E2E.
        setup: Whose bounds the histograms have.
        gateway: The newest sample.
        since: Given a window, the oldest stored sample in it.
    """
    return tuple(
        LatencyReading(
            indicator=indicator,
            quantile=level,
            window_s=window_s,
            seconds=_quantile(indicator, level, setup, gateway, since(window_s)),
        )
        for indicator, level, window_s in wanted
    )


def sli_readings(
    slos: Sequence[Slo], setup: FleetSetup, gateway: Window, first: FleetSample | None
) -> tuple[SliReading, ...]:
    """Return how each objective fares: its share alone, at its threshold, which is a bound of its histogram."""
    return tuple(
        SliReading(
            slo=slo.name,
            attained_ratio=_attained(slo, setup, gateway, first),
            quantile_s=NOT_ASKED,
            source=_READ_FROM,
            threshold_s=slo.threshold_s,
        )
        for slo in slos
    )


def _attained(slo: Slo, setup: FleetSetup, gateway: Window, first: FleetSample | None) -> Signal:
    last = gateway.last
    if last is None:
        return gateway.lost()
    if slo.threshold_s is None or slo.indicator is Indicator.AVAILABILITY:
        good = last.answered - (first.answered if first is not None else 0)
        bad = last.refused + last.lost - (first.refused + first.lost if first is not None else 0)
        return gateway.read(good / (good + bad)) if good + bad else _nothing(gateway)
    bounds_ps, counts = _histogram(slo.indicator, setup, last)
    attained = share(_grown(counts, slo.indicator, setup, first), bounds_ps, round(slo.threshold_s * PS_PER_S))
    return _nothing(gateway) if attained is None else gateway.read(attained)


def _quantile(
    indicator: Indicator, level: float, setup: FleetSetup, gateway: Window, first: FleetSample | None
) -> Signal:
    last = gateway.last
    if last is None:
        return gateway.lost()
    if indicator is Indicator.AVAILABILITY:
        return unknown(UnknownReason.NOT_CONFIGURED, "availability has no latency", now_s=gateway.now_s, source=SOURCE)
    bounds_ps, counts = _histogram(indicator, setup, last)
    found = quantile(_grown(counts, indicator, setup, first), bounds_ps, level)
    if found is None:
        return _nothing(gateway)
    seconds, at_least = found
    return reading(seconds, sampled_at_s=gateway.at_s, coverage_ratio=1.0, source=SOURCE, at_least=at_least)


def _histogram(indicator: Indicator, setup: FleetSetup, sample: FleetSample) -> tuple[tuple[int, ...], Int64Array]:
    if indicator is Indicator.TTFT:
        return setup.ttft_bounds_ps, sample.ttft_counts
    if indicator is Indicator.E2E:
        return setup.e2e_bounds_ps, sample.e2e_counts
    # The gaps between single tokens are not kept: ITL is judged by a request's mean.
    return setup.tpot_bounds_ps, sample.tpot_counts


def _grown(counts: Int64Array, indicator: Indicator, setup: FleetSetup, first: FleetSample | None) -> Int64Array:
    return counts if first is None else counts - _histogram(indicator, setup, first)[1]


def _nothing(gateway: Window) -> Signal:
    return unknown(UnknownReason.NOT_A_NUMBER, "no request ended in the window", now_s=gateway.now_s, source=SOURCE)
