"""The flags that say how to reach Prometheus, shared by every verb that reads it."""

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.terms.errors import BadInputError

if TYPE_CHECKING:
    from tidegate.observe.prometheus_config import PrometheusConfig
    from tidegate.observe.settings import ObserveSettings

# A rate needs four scrapes; two more may be lost without losing the rate.
SCRAPES_PER_WINDOW = 6


def add_prometheus_arguments(parser: argparse.ArgumentParser, *, required: bool = False) -> None:
    """Declare `--prometheus`, which `required` makes a must, and what belongs to it."""
    group = parser.add_argument_group("Prometheus")
    group.add_argument(
        "--prometheus", required=required, metavar="URL", help="address, with its path prefix if it has one"
    )
    group.add_argument(
        "--prometheus-bearer-file", type=Path, metavar="FILE", help="holds a bearer token; read again at each call"
    )
    group.add_argument("--prometheus-username", default="", metavar="NAME", help="for basic authentication")
    group.add_argument(
        "--prometheus-password-file", type=Path, metavar="FILE", help="holds the password; read again at each call"
    )
    group.add_argument("--prometheus-ca", type=Path, metavar="FILE", help="certificates to trust, PEM")
    group.add_argument("--prometheus-cert", type=Path, metavar="FILE", help="client certificate, PEM")
    group.add_argument("--prometheus-key", type=Path, metavar="FILE", help="its key, PEM")
    group.add_argument("--prometheus-tenant", default="", metavar="NAME", help="sent as X-Scope-OrgID")
    group.add_argument("--prometheus-get", action="store_true", help="use GET, where a proxy refuses POST")
    group.add_argument(
        "--scrape-interval", default="5s", metavar="TIME", help="as configured in Prometheus (default: %(default)s)"
    )


def prometheus_config(args: argparse.Namespace) -> "PrometheusConfig | None":
    """Return the backend's configuration, or None without `--prometheus`.

    Raises:
        BadInputError: A flag's value cannot be used; a file cannot be read.
    """
    from tidegate.observe.prometheus_config import PrometheusConfig  # noqa: PLC0415  (keeps --help fast)

    if args.prometheus is None:
        return None
    for flag in ("bearer_file", "password_file", "ca", "cert", "key"):
        path: Path | None = getattr(args, f"prometheus_{flag}")
        if path is not None and not (path.is_file() and os.access(path, os.R_OK)):
            msg = f"--prometheus-{flag.replace('_', '-')}: {path}: must be a file that can be read"
            raise BadInputError(msg)
    return PrometheusConfig(
        url=args.prometheus,
        bearer_file=args.prometheus_bearer_file,
        username=args.prometheus_username,
        password_file=args.prometheus_password_file,
        ca_file=args.prometheus_ca,
        cert_file=args.prometheus_cert,
        key_file=args.prometheus_key,
        tenant=args.prometheus_tenant,
        post=not args.prometheus_get,
    )


def observe_settings(args: argparse.Namespace, stale_after_s: float) -> "ObserveSettings":
    """Return the windows that follow from `--scrape-interval`.

    Args:
        args: Parsed flags.
        stale_after_s: The strictest of the policies.

    Raises:
        BadInputError: `--scrape-interval` is no duration above zero.
    """
    from tidegate.app.config_quantity import parse_duration_s  # noqa: PLC0415  (keeps --help fast)
    from tidegate.observe.settings import ObserveSettings  # noqa: PLC0415  (keeps --help fast)

    try:
        interval_s = parse_duration_s(args.scrape_interval)
    except ValueError as exc:
        msg = f"--scrape-interval: {exc}"
        raise BadInputError(msg) from exc
    return ObserveSettings(
        rate_window_s=SCRAPES_PER_WINDOW * interval_s, scrape_interval_s=interval_s, stale_after_s=stale_after_s
    )
