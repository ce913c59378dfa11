"""Where alerts arrive and stay until they expire: the one mutable place between the webhook and the core."""

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tidegate.alerts.actions import Refusal, Standing, reconcile
from tidegate.alerts.webhook import authorised, parse
from tidegate.terms.errors import BadInputError
from tidegate.terms.observation import Intervention
from tidegate.terms.policy import ServicePolicy

_MIN_TOKEN_CHARS = 16
_MAX_TOKEN_BYTES = 4096


class AlertDesk:
    """Takes webhook bodies and answers what is in force."""

    def __init__(
        self,
        policies: tuple[ServicePolicy, ...],
        *,
        token: Callable[[], str],
        resumed: tuple[Intervention, ...] = (),
    ) -> None:
        """Start with what was in force before a restart.

        Args:
            policies: The bounds of any intervention.
            token: Returns the shared secret, read anew for each delivery so that it can be rotated.
            resumed: Interventions of the journal's last line.
        """
        self._policies = policies
        self._token = token
        self._standing = Standing(interventions=resumed)
        self._lock = threading.Lock()
        self.counts: Counter[tuple[str, str]] = Counter()  # (kind, outcome): for our own metrics

    def admits(self, header: str | None) -> bool:
        """Return whether an Authorization header carries the token."""
        try:
            return authorised(header, self._token())
        except BadInputError:
            return False  # the file is gone or empty: nobody is let in

    def receive(self, body: bytes, now_s: float) -> tuple[Refusal, ...]:
        """Take one delivery and return the alerts in it that were refused.

        Raises:
            WebhookBodyError: The body as a whole cannot be read.
        """
        notices = parse(body)
        with self._lock:
            before = set(self._standing.interventions)
            outcome = reconcile(notices, self._policies, self._standing, now_s=now_s)
            self._standing = outcome.standing
            for new in set(outcome.standing.interventions) - before:
                self.counts[str(new.kind), "in_force"] += 1
            for _ in outcome.refusals:
                self.counts["any", "refused"] += 1
        return outcome.refusals

    def in_force(self, now_s: float) -> tuple[Intervention, ...]:
        """Return the interventions in force at `now_s`."""
        with self._lock:
            self._standing = reconcile((), self._policies, self._standing, now_s=now_s).standing
            return self._standing.interventions


def token_from(path: Path) -> Callable[[], str]:
    """Return a reader of the bearer token in `path`, after having read it once.

    Raises:
        BadInputError: The file cannot be read, or holds no token of at least 16 characters; the token is not shown.
    """

    def read() -> str:
        try:
            with path.open("rb") as stream:
                data = stream.read(_MAX_TOKEN_BYTES + 1)
            token = data.decode("ascii").strip()
        except (OSError, UnicodeDecodeError) as exc:
            msg = f"{path}: token file cannot be read: {getattr(exc, 'strerror', None) or 'not ASCII text'}"
            raise BadInputError(msg) from exc
        if not _MIN_TOKEN_CHARS <= len(token) <= _MAX_TOKEN_BYTES or len(token.split()) != 1:
            msg = f"{path}: token must be one word of {_MIN_TOKEN_CHARS} to {_MAX_TOKEN_BYTES} characters"
            raise BadInputError(msg)
        return token

    read()
    return read
