"""The demo from start to report."""

import asyncio
import json
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tidegate.app import clock
from tidegate.app.config import load_nodes, load_policies
from tidegate.app.config_profile import load_profile
from tidegate.app.demo.hasten import hastened
from tidegate.app.demo.load import Answer, replay
from tidegate.app.demo.options import COPIES, SECONDS, DemoOptions
from tidegate.app.demo.progress import Progress
from tidegate.app.demo.rehearsed import rehearsed_rows
from tidegate.app.demo.score import Row, row, table
from tidegate.app.demo.stack import Stack, StackSettings
from tidegate.app.demo.tide import read_trace, tidal
from tidegate.app.journal_read import read
from tidegate.app.record import TickRecord
from tidegate.app.report.page import report_html
from tidegate.app.report.plots import PICTURES, plots
from tidegate.app.report.timeline import Moment, replica_seconds, timeline
from tidegate.app.servers import find_binary
from tidegate.sim.arrivals import Arrival
from tidegate.terms.errors import BadInputError
from tidegate.terms.policy import ServicePolicy

# A request may take this long: the longest answers of the trace take about a minute on a full replica.
_DEADLINE_S = 180.0
# A generator that sends later than this did not offer the load it claims.
_MAX_LAG_S = 0.5

NOTES = (
    "Live: real Envoy, Prometheus and controller; engines are engine twins, processes that answer like vLLM with the "
    "timing of a modelled GPU. Rehearsed: the same arrivals, profile and cold start in the simulator, which has no "
    "HTTP, no scrapes of its own and no Envoy. static-peak is the smallest fixed size whose rehearsal meets every "
    "objective, known only in hindsight. reactive is the Kubernetes HPA law on running plus waiting requests."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Live:
    """What the live part left."""

    answers: tuple[Answer, ...]
    records: tuple[TickRecord, ...]
    start_s: float  # Unix time of the first request
    end_s: float


def demo(options: DemoOptions) -> int:
    """Run the demo, print and write its report, and return 0 only if nothing failed and every decision has a reason."""
    for needed in ("prometheus", "envoy"):
        find_binary(needed)  # before any file is written
    _only(load_policies([options.policy]), options.policy)
    load_nodes(options.nodes)
    arrivals = tidal(read_trace(options.trace), seconds=options.seconds, copies=COPIES)
    _empty(options.out)
    policy_path = hastened(options.policy, options.out / "run" / "policy.yaml", ratio=options.seconds / SECONDS)
    policy = _only(load_policies([policy_path]), policy_path)
    try:
        live = _run_live(options, policy, policy_path, arrivals)
    except KeyboardInterrupt:
        _say("\ninterrupted: everything the demo started has been stopped; no report was written")
        raise
    pool = policy.pools[0]
    moments = timeline(live.records, service=policy.name, pool=pool.key.pool)
    rows = [_live_row(policy, live, moments)]
    _say("rehearsing the same arrivals under a static size and a reactive rule ...")
    rows += rehearsed_rows(policy, load_profile(pool.profile), arrivals, seconds=live.end_s - live.start_s)
    _write_report(options.out, policy, live, moments, rows)
    problems = _problems(live)
    if options.json:
        document = {"rows": [asdict(r) for r in rows], "problems": problems}
        sys.stdout.write(json.dumps(document) + "\n")
    else:
        sys.stdout.write(f"\n{table(rows)}\n\n{NOTES}\n\nreport: {options.out / 'report.html'}\n")
    for problem in problems:
        sys.stderr.write(f"tidegate: demo: {problem}\n")
    return 1 if problems else 0


def _only(policies: tuple[ServicePolicy, ...], path: Path) -> ServicePolicy:
    if len(policies) != 1 or len(policies[0].pools) != 1:
        msg = f"{path}: the demo shows one service with one pool, got {len(policies)} services"
        raise BadInputError(msg)
    return policies[0]


def _empty(out: Path) -> None:
    """Make `out` and take away what an earlier demo left there (only names the demo itself writes)."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        msg = f"{out}: must be a folder for the report that can be written: {exc.strerror}"
        raise BadInputError(msg) from exc
    shutil.rmtree(out / "run", ignore_errors=True)
    for name in ("report.html", "rows.json", *(f"{picture}.png" for picture in PICTURES)):
        (out / name).unlink(missing_ok=True)


def _run_live(options: DemoOptions, policy: ServicePolicy, policy_path: Path, arrivals: Sequence[Arrival]) -> _Live:
    settings = StackSettings(workdir=options.out / "run", policy=policy_path, nodes=options.nodes, gpu_exporter=True)
    _say(f"starting Prometheus, the controller, Envoy and a first engine twin (logs in {settings.workdir}) ...")
    with Stack(settings) as stack:
        stack.wait_until_serving(policy.model)
        _say(f"status page: {stack.api_url}/   Prometheus: {stack.prometheus_url}/")
        _say(f"replaying {len(arrivals)} requests of {options.trace.name} over {options.seconds:.0f} s through Envoy")
        start_s = clock.now_s()
        with Progress(stack.journal, _say, seconds=options.seconds):
            answers = asyncio.run(
                replay(arrivals, host="127.0.0.1", port=stack.ports.envoy, model=policy.model, deadline_s=_DEADLINE_S)
            )
            _wait_until(start_s + options.seconds)
        end_s = clock.now_s()
        records = tuple(read(stack.journal))
    return _Live(answers=tuple(answers), records=records, start_s=start_s, end_s=end_s)


def _wait_until(at_s: float) -> None:
    time.sleep(max(0.0, at_s - clock.now_s()))


def _live_row(policy: ServicePolicy, live: _Live, moments: tuple[Moment, ...]) -> Row:
    return row(
        "tidegate",
        "live",
        [a.outcome for a in live.answers],
        slos=policy.slos,
        replica_seconds=replica_seconds(moments, start_s=live.start_s, end_s=live.end_s),
        replicas_peak=max((m.existing for m in moments), default=0),
    )


def _write_report(
    out: Path, policy: ServicePolicy, live: _Live, moments: tuple[Moment, ...], rows: Sequence[Row]
) -> None:
    pictures = plots(moments, live.answers, slos=policy.slos, start_s=live.start_s)
    for picture in pictures:
        (out / f"{picture.name}.png").write_bytes(picture.png)
    title = f"Tidegate demo: {len(live.answers)} requests, {live.end_s - live.start_s:.0f} s"
    page = report_html(title, rows, pictures, moments, start_s=live.start_s, notes=NOTES)
    (out / "report.html").write_text(page, encoding="utf-8")
    (out / "rows.json").write_text(json.dumps([asdict(r) for r in rows], indent=1), encoding="utf-8")


def _problems(live: _Live) -> list[str]:
    """Return why this run does not count, in words; empty when it does."""
    found = [
        f"request at {a.arrival.at_s:.1f} s: {a.ending}: status {a.status} {a.detail}"
        for a in live.answers
        if not a.outcome.answered
    ]
    found += [
        f"decision {r.decision.sequence} of {p.key} gives no reason"
        for r in live.records
        for p in r.decision.pools
        if not p.notes
    ]
    lag_s = max((a.lag_s for a in live.answers), default=0.0)
    if lag_s > _MAX_LAG_S:
        found.append(f"the load generator was up to {lag_s:.1f} s late (limit {_MAX_LAG_S} s): the machine is too busy")
    return found


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
