"""A process with `/health` that starts, drains and fails on request: what the local fleet asks of any engine."""

import argparse
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int, required=True)
parser.add_argument("--host", required=True)
parser.add_argument("--cold-start", required=True)
parser.add_argument("--owner-pid", type=int)
parser.add_argument("--fail-with", type=int, help="exit with this status at once")
parser.add_argument("--clash-first", type=Path, help="fail like a taken port unless this file exists; then make it")
parser.add_argument("--drain-for", type=float, default=0.0)
parser.add_argument("--deaf", action="store_true", help="ignore SIGTERM")
parser.add_argument("--sick-when", type=Path, help="answer 503 while this file exists")
options = parser.parse_known_args()[0]

if options.fail_with is not None:
    sys.exit(f"cannot read the weights: status {options.fail_with}" if options.fail_with == 1 else options.fail_with)
if options.clash_first is not None and not options.clash_first.exists():
    options.clash_first.touch()
    sys.exit(f"[Errno 98] error while attempting to bind on port {options.port}: address already in use")

warm_at_s = time.monotonic() + float(options.cold_start.removesuffix("s"))
draining = threading.Event()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        sick = options.sick_when is not None and options.sick_when.exists()
        ready = time.monotonic() >= warm_at_s and not draining.is_set() and not sick
        self.send_response(200 if ready else 503)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the base class names it)
        pass


signal.signal(signal.SIGTERM, signal.SIG_IGN if options.deaf else lambda *_: draining.set())
server = ThreadingHTTPServer((options.host, options.port), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
while not draining.wait(0.05):
    if options.owner_pid is not None and not Path(f"/proc/{options.owner_pid}").exists():
        os._exit(3)
time.sleep(options.drain_for)
os._exit(0)
