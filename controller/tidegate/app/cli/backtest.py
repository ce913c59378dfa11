"""`tidegate backtest`: the same comparison on the load and the replicas that Prometheus remembers."""

import argparse
import math
from typing import TYPE_CHECKING

from tidegate.app.cli.flags import duration_s
from tidegate.app.cli.main import EXIT_DONE
from tidegate.app.cli.prometheus_flags import add_prometheus_arguments, observe_settings, prometheus_config
from tidegate.app.cli.rehearse_flags import add_comparison_arguments, comparison, scale_of
from tidegate.terms.errors import BadInputError

if TYPE_CHECKING:
    from tidegate.app.rehearse.compare import CompareOptions
    from tidegate.app.rehearse.past import Past
    from tidegate.app.rehearse.progress import Told

EXAMPLE = "tidegate backtest --prometheus http://127.0.0.1:9090 --since 7d --policy policy.yaml"
_LEAST_STEPS = 10
_MOST_STEPS = 200_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    history = parser.add_argument_group("history")
    history.add_argument(
        "--since", default="7d", metavar="DURATION", help="how far to look back (default: %(default)s)"
    )
    history.add_argument(
        "--step", default="60s", metavar="DURATION", help="grid of the arrival rate (default: %(default)s)"
    )
    history.add_argument("--query-arrivals", default="", metavar="PROMQL", help="requests/s; all its series are summed")
    history.add_argument(
        "--query-prompt-buckets", default="", metavar="PROMQL", help="requests of an hour by prompt token bucket le"
    )
    history.add_argument(
        "--query-output-buckets", default="", metavar="PROMQL", help="requests of an hour by output token bucket le"
    )
    history.add_argument(
        "--query-replicas", default="", metavar="PROMQL", help="replicas that serve; by label pool if there are several"
    )
    add_comparison_arguments(parser)
    add_prometheus_arguments(parser, required=True)


def run(args: argparse.Namespace) -> int:
    """Read the history, play it, print or write the result, and return 0.

    Raises:
        BadInputError: A flag cannot be used, or there is no such history.
        ServerUnreachableError: Prometheus could not be asked.
    """
    from tidegate.app.cli.rehearse_output import deliver  # noqa: PLC0415  (with the rest: a second of imports)
    from tidegate.app.rehearse.backtest import notes_of, present, present_schedule  # noqa: PLC0415
    from tidegate.app.rehearse.compare import check, compare  # noqa: PLC0415
    from tidegate.app.rehearse.loads import Loads  # noqa: PLC0415
    from tidegate.app.rehearse.progress import progress  # noqa: PLC0415

    options, output = comparison(args)
    check(options)
    with progress(quiet=args.quiet) as told:
        past = _past(args, options, told)
        loads = Loads(
            name=f"{options.policy.name}, the last {args.since}",
            files=(args.prometheus.rpartition("@")[2],),
            format="prometheus",
            past=past,
            scale=scale_of(args),
            notes=notes_of(past),
        )
        schedule = present_schedule(past, cold_start_s=max(p.cold_start_prior_s for p in options.policy.pools))
        also = () if schedule is None else (present(schedule),)
        document = compare(loads, options, told=told, also=also)
    deliver(document, output, title=f"Backtest of {options.policy.name} over the last {args.since}")
    return EXIT_DONE


def _past(args: argparse.Namespace, options: "CompareOptions", told: "Told") -> "Past":
    from tidegate.app import clock  # noqa: PLC0415
    from tidegate.app.rehearse.past import Span, read_past  # noqa: PLC0415
    from tidegate.app.rehearse.past_queries import PastQueries  # noqa: PLC0415
    from tidegate.observe.prometheus import PrometheusReader  # noqa: PLC0415

    step_s = duration_s("--step", args.step, least_s=1.0)
    since_s = duration_s("--since", args.since, least_s=_LEAST_STEPS * step_s)
    if since_s / step_s > _MOST_STEPS:
        msg = f"--step: must be at least {since_s / _MOST_STEPS:.3g}s for --since {args.since}, got {args.step}"
        raise BadInputError(msg)
    config = prometheus_config(args)
    if config is None:
        msg = "--prometheus: must be given"
        raise BadInputError(msg)
    end_s = math.floor(clock.now_s() / step_s) * step_s
    queries = PastQueries(
        arrivals=args.query_arrivals,
        prompt_buckets=args.query_prompt_buckets,
        output_buckets=args.query_output_buckets,
        replicas=args.query_replicas,
    )
    reader = PrometheusReader(config)
    try:
        return read_past(
            reader,
            options.policy,
            queries=queries,
            settings=observe_settings(args, options.policy.scaling.stale_after_s),
            span=Span(start_s=end_s - math.floor(since_s / step_s) * step_s, end_s=end_s, step_s=step_s),
            told=lambda what: told(0, 0, f"reading {what}"),
        )
    finally:
        reader.close()
