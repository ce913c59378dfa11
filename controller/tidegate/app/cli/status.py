"""`tidegate status`: ask a running controller for its state."""

import argparse
import json
import math
import sys
from typing import Any

from tidegate.app.cli.unreachable import why
from tidegate.terms.errors import BadInputError, RefusedError, ServerUnreachableError

EXAMPLE = "tidegate status --url http://127.0.0.1:8780"
_DEFAULT_URL = "http://127.0.0.1:8780"
_CONNECT_S, _READ_S = 3.0, 10.0
_MAX_ANSWER_BYTES = 64 * 2**20  # thousands of replicas; more is not our server
_CHUNK_BYTES = 1 << 16
# What each reason of an unknown signal means to an operator.
UNKNOWN_WORDS = {
    "absent": "no such series",
    "stale": "the newest sample is too old",
    "not_a_number": "no request finished",
    "infinite": "the number is infinite",
    "out_of_range": "an impossible number",
    "partial": "Prometheus' answer is incomplete",
    "unreachable": "Prometheus cannot be reached",
    "rejected": "Prometheus refused the query",
    "breaker_open": "not asked: Prometheus failed several times, it is asked again soon",
    "contract_violation": "the metric is missing or of another type",
    "too_young": "too few samples yet",
    "not_offered": "this source never has it",
    "not_configured": "not set up",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("--url", default=_DEFAULT_URL, help=f"the controller's status page (default: {_DEFAULT_URL})")
    parser.add_argument("--json", action="store_true", help="print JSON, as at /v1/state")


def run(args: argparse.Namespace) -> int:
    """Print the state; 0 when the controller is ready, 1 when it is not.

    Raises:
        BadInputError: `--url` is none.
        ServerUnreachableError: Nothing answers there.
        RefusedError: What answers is no Tidegate.
    """
    state = _ask(args.url)
    if args.json:
        json.dump(state, sys.stdout, indent=2)
        sys.stdout.write("\n")
    else:
        sys.stdout.write("\n".join(_clean(line) for line in _lines(state)) + "\n")
    return 0 if state["ready"] else 1


def _ask(url: str) -> dict[str, Any]:
    import requests  # noqa: PLC0415  (a tenth of a second that `--help` must not pay)

    if not url.startswith(("http://", "https://")):
        msg = f"--url: must begin with http:// or https://, got {url!r}"
        raise BadInputError(msg)
    where = f"{url.rstrip('/')}/v1/state"
    try:
        with requests.Session() as session:
            session.trust_env = False  # a proxy of the environment must not be asked about loopback
            with session.get(where, timeout=(_CONNECT_S, _READ_S), stream=True, allow_redirects=False) as answer:
                body = bytearray()
                for chunk in answer.iter_content(_CHUNK_BYTES):
                    body += chunk
                    if len(body) > _MAX_ANSWER_BYTES:
                        msg = f"{where}: the answer is larger than {_MAX_ANSWER_BYTES} bytes; is this a Tidegate?"
                        raise RefusedError(msg)
                status = answer.status_code
    except (requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema, UnicodeError) as exc:
        msg = f"--url: {url!r} is no URL: {exc}"
        raise BadInputError(msg) from exc
    except requests.RequestException as exc:
        msg = f"{where}: no controller answers ({why(exc)}); is `tidegate run` up, and on this port?"
        raise ServerUnreachableError(msg) from exc
    return _state(where, status, bytes(body))


def _state(where: str, status: int, body: bytes) -> dict[str, Any]:
    try:
        state = json.loads(body)
    except (ValueError, RecursionError):
        state = None
    if status != 200 or not isinstance(state, dict) or not {"ready", "services", "reasons"} <= state.keys():  # noqa: PLR2004
        msg = f"{where}: answered {status} and no state; is this a Tidegate?"
        raise RefusedError(msg)
    return state


def _lines(state: dict[str, Any]) -> list[str]:
    age = "" if state["decided_at_s"] is None else f", decided {state['now_s'] - state['decided_at_s']:.0f} s ago"
    lines = [f"{'ready' if state['ready'] else 'not ready'}: decision {state['sequence'] or 'none yet'}{age}"]
    lines += [f"  not ready because: {reason}" for reason in state["reasons"]]
    for service in state["services"]:
        arrivals = _number(service["signals"].get("arrivals_per_s"), "{:.2f}/s")
        lines.append(f"service {service['service']}: model {service['model']}, {service['mode']}, arrivals {arrivals}")
        lines += [_sli(sli, state.get("rate_window_s")) for sli in service["slis"]]
        for pool in service["pools"]:
            lines += _pool(pool)
    lines += [
        f"intervention: {i['kind']} on {i['service']}/{i['pool']} by {i['origin']}" for i in state["interventions"]
    ]
    return lines


def _sli(sli: dict[str, Any], window_s: float | None) -> str:
    objective = f"objective {_percent(sli['objective_ratio'])}"
    source = f"source: {sli['source'] or 'none'}"
    attained = sli["attained_ratio"]
    if attained["state"] == "unknown":
        return f"  slo {sli['slo']}: {_number(attained, '')}, {objective} ({source})"
    met = {"yes": "met", "no": "missed"}.get(sli["met"], "unknown")
    span = "the last rate window" if window_s is None else f"the last {window_s:g} s"
    return f"  slo {sli['slo']}: {met}: {_percent(attained['value'])} good over {span}, {objective} ({source})"


def _percent(ratio: float) -> str:
    """Return a share in percent; rounded down, since 99.996 % is not 100 %."""
    return f"{math.floor(ratio * 10_000 + 1e-6) / 100:.6g} %"


def _pool(pool: dict[str, Any]) -> list[str]:
    decision = pool["decision"]
    counts = ", ".join(f"{decision[f'{name}_replicas']} {name}" for name in ("ready", "starting", "draining", "asked"))
    wanted = decision["wanted_replicas"]
    shown = wanted["value"] if wanted["state"] == "value" else "unknown"
    lines = [f"  pool {pool['pool']}: {counts}, {shown} wanted", f"    {decision['sentence']}"]
    return lines + [f"    violation: {text}" for text in pool["violations"]]


def _number(signal: dict[str, Any] | None, form: str) -> str:
    if signal is None:
        return "unknown (not read)"
    if signal["state"] == "unknown":
        return f"unknown ({UNKNOWN_WORDS.get(signal['reason'], signal['reason'])})"
    return form.format(signal["value"])


def _clean(line: str) -> str:
    """Return the line without characters that could steer a terminal; names come from outside."""
    return "".join(c if c.isprintable() else "?" for c in line)
