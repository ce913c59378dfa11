"""How to reach one Prometheus-compatible backend."""

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from tidegate.terms.errors import BadInputError


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusConfig:
    """Address, credentials and limits of one backend.

    Credentials are files, read again at every call, so that rotated ones are picked up.

    Raises:
        BadInputError: The address or a combination of settings cannot work.
    """

    url: str
    bearer_file: Path | None = None
    username: str = ""
    password_file: Path | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    tenant: str = ""
    tenant_header: str = "X-Scope-OrgID"
    proxy: str = ""
    post: bool = True  # False: GET, for proxies that allow nothing else; long queries then fail
    connect_timeout_s: float = 2.0
    read_timeout_s: float = 5.0  # without one byte arriving
    total_timeout_s: float = 8.0  # per call, retries included
    max_body_bytes: int = 64 * 1024 * 1024
    max_attempts: int = 3
    first_retry_s: float = 0.1  # doubles; each wait is drawn between half of it and all of it
    max_steps: int = 11_000
    time_decimals: int = 3  # 0 for backends that answer nothing at fractions of a second
    breaker_failures: int = 3
    breaker_first_pause_s: float = 2.0
    breaker_longest_pause_s: float = 15.0

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            msg = f"prometheus.url: must be http://HOST:PORT or https://HOST, got {redacted_url(self.url)!r}"
            raise BadInputError(msg)
        if parts.query or parts.fragment:
            msg = f"prometheus.url: must end with the path, without ? or #, got {redacted_url(self.url)!r}"
            raise BadInputError(msg)
        if bool(self.username) != (self.password_file is not None):
            msg = "prometheus: basic authentication needs a user name and a password file, got only one of them"
            raise BadInputError(msg)
        if self.bearer_file is not None and self.username:
            msg = "prometheus: give a bearer file or a user name, not both"
            raise BadInputError(msg)
        if (self.cert_file is None) != (self.key_file is None):
            msg = "prometheus: a client certificate needs a certificate and a key file, got only one of them"
            raise BadInputError(msg)

    @property
    def name(self) -> str:
        """The address for texts, without credentials."""
        return redacted_url(self.url)


def redacted_url(url: str) -> str:
    """Return `url` without user, password, query and fragment."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "(not a URL)"
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", "")).rstrip("/")
