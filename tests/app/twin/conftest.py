"""Twins as real processes on free loopback ports, stopped again after each test."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.app.twin.twin_process import MODEL, Twin, TwinFactory


@pytest.fixture
def start_twin(tmp_path: Path) -> Iterator[TwinFactory]:
    """Return a factory that takes command line words and returns a listening twin."""
    started: list[Twin] = []

    def start(*words: str, profile: str = "h100-llama8b-tp1", warm: bool = True) -> Twin:
        command = [sys.executable, "-m", "tidegate", "engine", "--profile", profile, "--port", "0"]
        process = subprocess.Popen(
            [*command, "--served-model-name", MODEL, *words],
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
        )
        assert process.stderr is not None
        twin = Twin(process=process, said=process.stderr, port=0)
        started.append(twin)
        found = re.search(r"http://[^:]+:(\d+)", twin.wait_for("http://"))
        assert found is not None
        twin.port = int(found[1])
        if warm:
            twin.wait_for("ready")
        return twin

    yield start
    for twin in started:
        if twin.process.poll() is None:
            twin.process.kill()
        twin.process.wait(10)
        twin.said.close()
