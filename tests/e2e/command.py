"""The real command line in processes of its own: one command to its end, or a controller while a test lasts."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tidegate.app.journal_read import read
from tidegate.app.servers import free_port

EXAMPLE = Path(__file__).parents[2] / "examples" / "policies" / "chat.yaml"
NOWHERE = "http://127.0.0.1:1"


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


def tidegate(*words: str | Path, cwd: Path, **variables: str) -> Ended:
    """Run one command to its end. It must neither crash nor wait."""
    done = subprocess.run(
        [sys.executable, "-m", "tidegate", *map(str, words)],
        cwd=cwd,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=40.0,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return Ended(done.returncode, done.stdout, done.stderr)


def refused(code: int, ended: Ended) -> str:
    """Return the one error line of a command that ended with `code`."""
    assert ended.code == code, ended
    assert ended.out == ""
    (line,) = ended.err.splitlines()
    assert line.startswith("tidegate: ")
    return line.removeprefix("tidegate: ")


def policy(folder: Path, old: str = "", new: str = "") -> Path:
    text = EXAMPLE.read_text()
    assert old in text
    path = folder / "policy.yaml"
    path.write_text(text.replace(old, new, 1) if old else text)
    return path


def run_words(folder: Path, prometheus: str = NOWHERE, old: str = "", new: str = "") -> list[str | Path]:
    return [
        "run", "-f", policy(folder, old, new), "--prometheus", prometheus, "--state-dir", folder / "state",
        "--listen", f"127.0.0.1:{free_port()}", "--ads-listen", f"127.0.0.1:{free_port()}",
        "--decide-every", "1s", "--scrape-interval", "1s",
    ]  # fmt: skip


class Controller:
    """A controller that decides each second and, in a dry run, carries nothing out; use as a context manager."""

    def __init__(
        self,
        folder: Path,
        prometheus: str = NOWHERE,
        *,
        dry_run: bool = True,
        edit: tuple[str, str] = ("", ""),
        more: tuple[str, ...] = (),
    ) -> None:
        self._words = [*run_words(folder, prometheus, *edit), *more, *(["--dry-run"] if dry_run else [])]
        self.journal = folder / "state" / ("journal.dry-run.jsonl" if dry_run else "journal.jsonl")
        self._log = folder / f"controller-{dry_run}.log"
        self._url = f"http://{self._words[self._words.index('--listen') + 1]}"

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tidegate", *map(str, self._words)], stdout=log, stderr=log
            )
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(10.0)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(20.0)

    def get(self, path: str) -> str:
        """Return the body, whatever the status; empty while nothing answers."""
        try:
            with urllib.request.urlopen(self._url + path, timeout=5.0) as got:
                return str(got.read().decode())
        except urllib.error.HTTPError as exc:
            return str(exc.read().decode())
        except OSError:
            return ""

    def not_ready(self) -> list[str]:
        return list(json.loads(self.get("/readyz") or "{}").get("reasons", []))

    def sequence(self) -> int:
        """Return the number of the newest decision in the journal."""
        found = read(self.journal) if self.journal.exists() else ()
        return max((line.decision.sequence for line in found), default=0)

    def log(self) -> str:
        """Return all it has logged."""
        return self._log.read_text()

    def listens(self, flag: str) -> bool:
        """Return whether anything answers at the address given with `flag`."""
        host, _, port = str(self._words[self._words.index(flag) + 1]).rpartition(":")
        with socket.socket() as probe:
            return probe.connect_ex((host, int(port))) == 0

    def wait(self, what: str, found: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + 30.0
        while not found():
            assert self.process.poll() is None, self._log.read_text()
            assert time.monotonic() < deadline_s, f"{what}: not seen\n{self._log.read_text()}"
            time.sleep(0.2)
