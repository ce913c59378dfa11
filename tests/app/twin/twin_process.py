"""A twin as a real process, and what its tests ask of it."""

import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO

import pytest
import requests

MODEL = "test/model"


@dataclass(slots=True)
class Twin:
    """A running twin."""

    process: subprocess.Popen[str]
    said: IO[str]
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def wait_for(self, text: str) -> str:
        """Return the next line of its log that holds `text`."""
        for line in self.said:
            if text in line:
                return line
        pytest.fail(f"the twin ended without saying {text!r}")

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(20)

    def ask(self, *, stream: bool = False, tokens: int = 3, prompt: str = "a b c", **more: object) -> requests.Response:
        body = {
            "model": MODEL,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": tokens,
            "stream": stream,
            **more,
        }
        return requests.post(f"{self.url}/v1/chat/completions", json=body, stream=stream, timeout=30)

    def series(self, accept: str = "") -> dict[str, float]:
        """Return every sample of the metrics page by its name and labels, as written."""
        page = requests.get(f"{self.url}/metrics", headers={"Accept": accept}, timeout=10).text
        return {
            name: float(value)
            for name, _, value in (line.rpartition(" ") for line in page.splitlines())
            if name and not name.startswith("#")
        }


TwinFactory = Callable[..., Twin]
