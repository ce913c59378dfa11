"""Every policy of a comparison played and searched, in as many processes as there are cores."""

import contextlib
import ctypes
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass

from tidegate.app.rehearse.document import KnobFacts
from tidegate.app.rehearse.fair import fair_oracle, instant_bound
from tidegate.app.rehearse.findings import INSTANT_BOUND, AtSpeed, Finding, Play
from tidegate.app.rehearse.matching import Matching, as_set, matched, unsearched
from tidegate.app.rehearse.plays import Stage
from tidegate.app.rehearse.progress import Told
from tidegate.sim.faults import FaultName
from tidegate.sim.policies import Knob, Rival
from tidegate.terms.errors import RefusedError

# A claim that does not outlast engines this much slower or faster is none.
SPEEDS = (0.9, 1.1)
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """What is asked about each policy."""

    stage: Stage
    target_ratio: float
    speeds: tuple[float, ...] = ()
    faults: tuple[FaultName, ...] = ()
    match: bool = True  # search knobs; oracles are searched all the same


@dataclass(frozen=True, slots=True, kw_only=True)
class Entrant:
    """A policy in a contest, or the name of an oracle whose schedule is searched load by load."""

    player: Rival | str
    kind: str = "policy"
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Its name."""
        return self.player if isinstance(self.player, str) else self.player.name


def findings(contest: Contest, entrants: Sequence[Entrant], *, jobs: int, told: Told) -> list[Finding]:
    """Return what was found out about each policy, in the order given.

    Args:
        contest: The questions.
        entrants: The policies; sent to other processes when there are several jobs.
        jobs: Processes, >= 1; 1 stays in this one.
        told: Called as each policy is done.
    """
    total = len(entrants)
    if jobs == 1 or total == 1:
        out = []
        for i, entrant in enumerate(entrants):
            told(i, total, entrant.name)
            out.append(finding(contest, entrant))
        return out
    # Spawned, not forked: this process has threads (the progress bar), whose locks a fork would copy as they are.
    context = multiprocessing.get_context("spawn")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # a process a core: threads beside them only wait for each other
    pool = ProcessPoolExecutor(
        min(jobs, total), mp_context=context, initializer=_enter, initargs=(contest, os.getpid())
    )
    try:
        with _deaf_to_interrupts():
            waiting = {pool.submit(_finding, entrant): i for i, entrant in enumerate(entrants)}
        told(0, total, f"{total} policies in {min(jobs, total)} processes")
        made = _gathered(waiting, entrants, told)
    except BaseException:
        # A play takes minutes: whoever interrupts does not want to wait for those under way, nor for those to come.
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in multiprocessing.active_children():
            worker.terminate()
        raise
    pool.shutdown()
    return [made[i] for i in range(total)]


def _gathered(waiting: dict[Future[Finding], int], entrants: Sequence[Entrant], told: Told) -> dict[int, Finding]:
    made: dict[int, Finding] = {}
    for done, future in enumerate(as_completed(waiting), start=1):
        try:
            made[waiting[future]] = future.result()
        except BrokenProcessPool as exc:
            msg = "rehearse: a worker process was killed (out of memory?); give fewer --jobs or a smaller --scale"
            raise RefusedError(msg) from exc
        told(done, len(entrants), entrants[waiting[future]].name)
    return made


@contextlib.contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Ignore Ctrl-C meanwhile: processes started here inherit that, and would else answer it with a trace of theirs."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


_contest: list[Contest] = []  # of this worker process


def _enter(contest: Contest, owner_pid: int) -> None:
    """Begin a worker: it dies with its owner, however that ends, and leaves Ctrl-C to it."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != owner_pid:  # it was gone before the request was in place
        os._exit(1)
    _contest.append(contest)


def _finding(entrant: Entrant) -> Finding:
    return finding(_contest[0], entrant)


def finding(contest: Contest, entrant: Entrant) -> Finding:
    """Return all that is asked about one policy."""
    if entrant.player == INSTANT_BOUND:
        return instant_bound(contest.stage, target_ratio=contest.target_ratio)
    if isinstance(entrant.player, str):
        return fair_oracle(contest.stage, target_ratio=contest.target_ratio, speeds=contest.speeds)
    player, stage = entrant.player, contest.stage
    default = stage.plays(player, None)
    knob = player.knob(stage.world)
    found = _found(contest, entrant.kind, player, default, 1.0)
    # An oracle is its best: a setting as shipped means nothing for it.
    best = found.match.plays[0].setting if entrant.kind == "oracle" and found.match.plays else None
    return Finding(
        name=player.name,
        kind=entrant.kind,
        summary=player.summary,
        source=player.source,
        period_s=player.make(stage.world, None).wants.period_s,
        knob=None if knob is None else KnobFacts(name=knob.name, unit=knob.unit, default=knob.default),
        default=found.match.plays if best is not None else default,
        match=found.match,
        frontier=found.frontier,
        at_speed={ratio: _at_speed(contest, entrant.kind, player, ratio) for ratio in contest.speeds},
        faulty=tuple(stage.faulty(player, name, best) for name in contest.faults),
        notes=(*entrant.notes, *_end_note(knob, found)),
    )


def _end_note(knob: Knob | None, found: Matching) -> tuple[str, ...]:
    """Say when the cheapest setting is the end of the knob: the policy is then compared above the target."""
    if knob is None or not found.match.plays or found.match.plays[0].setting != knob.thrifty:
        return ()
    return (f"{knob.name} ends at {knob.thrifty:g}, where the target is still reached: it cannot be set cheaper.",)


def _at_speed(contest: Contest, kind: str, player: Rival, ratio: float) -> AtSpeed:
    default = contest.stage.plays(player, None, speed_ratio=ratio)
    return AtSpeed(default=default, match=_found(contest, kind, player, default, ratio).match)


def _found(contest: Contest, kind: str, player: Rival, default: tuple[Play, ...], speed_ratio: float) -> Matching:
    stage = contest.stage
    knob = player.knob(stage.world)
    if knob is None:
        return as_set(default, target_ratio=contest.target_ratio)
    if not contest.match and kind == "policy":
        return unsearched(default)
    return matched(
        knob,
        lambda setting: stage.plays(player, setting, speed_ratio=speed_ratio),
        target_ratio=contest.target_ratio,
        default=default,
    )
