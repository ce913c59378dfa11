"""`tidegate engine`: one process that behaves like a vLLM server, for demos, tests and rehearsals."""

import argparse
from pathlib import Path

from tidegate.app.config_quantity import parse_duration_s

EXAMPLE = "tidegate engine --profile a100-llama8b-tp1 --port 8001 --cold-start 15s"


def _duration(text: str) -> float:
    try:
        return parse_duration_s(text)
    except ValueError as exc:
        msg = f"got {text!r}, must be {exc}"
        raise argparse.ArgumentTypeError(msg) from exc


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 65535:  # noqa: PLR2004  (the largest port)
        msg = f"got {text!r}, must be a port, 0 to 65535"
        raise argparse.ArgumentTypeError(msg)
    return int(text)


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        msg = f"got {text!r}, must be a whole number >= 1"
        raise argparse.ArgumentTypeError(msg)
    return int(text)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    add = parser.add_argument
    add("--profile", required=True, metavar="NAME|FILE", help="engine profile: a shipped name or a YAML file")
    add("--port", required=True, type=_port, help="TCP port; 0 takes a free one and prints it")
    add("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    add("--uds", type=Path, metavar="PATH", help="listen on this Unix socket too")
    add("--served-model-name", metavar="MODEL", help="model name in requests (default: the profile's)")
    add("--cold-start", type=_duration, default=0.0, metavar="TIME", help="time until ready, e.g. 15s (default: 0s)")
    add(
        "--listen",
        choices=("early", "warm"),
        default="early",
        help="open the port at once with /health 503, or only when warm as vLLM does (default: early)",
    )
    add(
        "--drain-timeout",
        type=_duration,
        default=600.0,
        metavar="TIME",
        help="longest time for running requests after SIGTERM (default: 600s)",
    )
    add("--owner-pid", type=_count, metavar="PID", help="exit when this process is gone")
    add(
        "--default-output-tokens",
        type=_count,
        default=256,
        metavar="N",
        help="answer length of a chat without max_tokens (default: 256)",
    )
    add(
        "--stream-headers",
        choices=("early", "first-token"),
        default="early",
        help="send a stream's head at once as vLLM does, or with its first token (default: early)",
    )
    add(
        "--metrics-names",
        choices=("v1", "v0", "underscore", "renamed"),
        default="v1",
        help="names of the engine metrics, for contract tests; SIGUSR1 switches to and from renamed (default: v1)",
    )


def run(args: argparse.Namespace) -> int:
    """Run until stopped; return 0, or 1 when requests were cut."""
    from tidegate.app.config_profile import load_profile  # noqa: PLC0415  (YAML, only for this verb)
    from tidegate.app.twin.exposition import Names  # noqa: PLC0415  (prometheus_client)
    from tidegate.app.twin.serve import Serving, serve  # noqa: PLC0415  (asyncio)
    from tidegate.app.twin.server import TwinSettings  # noqa: PLC0415

    profile = load_profile(args.profile)
    settings = TwinSettings(
        profile=profile,
        model=args.served_model_name or profile.model,
        names=Names(args.metrics_names),
        default_output_tokens=args.default_output_tokens,
        early_headers=args.stream_headers == "early",
    )
    serving = Serving(
        host=args.host,
        port=args.port,
        uds=args.uds,
        cold_start_s=args.cold_start,
        listen_early=args.listen == "early",
        drain_timeout_s=args.drain_timeout,
        owner_pid=args.owner_pid,
    )
    return serve(settings, serving)
