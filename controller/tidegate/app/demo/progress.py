"""What the demo prints while it runs: the newest decision, in words."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from tidegate.app.journal_read import last
from tidegate.app.live import text
from tidegate.core.explain import sentence
from tidegate.terms.decision import Verdict
from tidegate.terms.forecast import Quantity

_EVERY_S = 1.0
_QUIET_FOR_S = 10.0


class Progress:
    """Prints a line for every move, and at least one each ten seconds; a context manager."""

    def __init__(self, journal: Path, tell: Callable[[str], None], *, seconds: float) -> None:
        self._journal = journal
        self._tell = tell
        self._seconds = seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)

    def __enter__(self) -> Self:
        self._started = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        seen, told_at = -1, -_QUIET_FOR_S
        while not self._stop.wait(_EVERY_S):
            record = last(self._journal)
            if record is None or record.decision.sequence == seen:
                continue
            seen = record.decision.sequence
            elapsed = time.monotonic() - self._started
            (pool,) = record.decision.pools[:1]
            if pool.verdict is Verdict.HOLD and elapsed - told_at < _QUIET_FOR_S:
                continue
            told_at = elapsed
            (service,) = record.inputs.observation.services[:1]
            forecast = next((f for f in record.inputs.forecasts if f.quantity is Quantity.REQUESTS_PER_S), None)
            policy = next(p for p in record.inputs.policies if p.name == pool.key.service)
            level = policy.scaling.forecast_quantile
            ahead = f"{forecast.peak(level):.1f}" if forecast else "unknown"
            over = "waiting for the last answers, " if elapsed > self._seconds else ""
            self._tell(
                f"{min(elapsed, self._seconds):4.0f}/{self._seconds:.0f} s  {over}load {text(service.arrivals_per_s)} "
                f"req/s, forecast p{100 * level:.0f} {ahead}  "
                f"ready {pool.ready_replicas} starting {pool.starting_replicas} asked {pool.asked_replicas}"
                f"\n            {sentence(pool)}"
            )
