"""What an operator gets wrong, through the real command line: the exit code, one clear error, nothing half done."""

import resource
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.command import EXAMPLE, NOWHERE, Controller, policy, refused, run_words, tidegate
from tests.observe.faulty import Faulty, always, answer

from tidegate.app.journal_read import read
from tidegate.terms.decision import Verdict

CHECKOUT = EXAMPLE.parents[2]
BINARY = bytes(range(256)) * 16

pytestmark = [pytest.mark.e2e]


def line_of(old: str) -> int:
    """Return the number of the line of the example policy that holds `old`."""
    return next(i for i, line in enumerate(EXAMPLE.read_text().splitlines(), start=1) if old in line)


@pytest.fixture
def taken_port() -> Iterator[int]:
    """A port that somebody else listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


# --- policy files ---


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty, must hold a ServicePolicy"),
        (b"# nothing\n" * 200_000, "is larger than 1048576 bytes, must be a policy of at most 1 MiB"),
        (BINARY, "is not text: byte 0x80 at offset 128, must be YAML in UTF-8"),
    ],
    ids=["empty", "huge", "binary"],
)
@pytest.mark.parametrize("verb", ["check", "run"])
def test_policy_file_that_is_no_policy_is_named(tmp_path: Path, verb: str, content: bytes, said: str) -> None:
    words = run_words(tmp_path) if verb == "run" else ["check", "-f", tmp_path / "policy.yaml"]
    (tmp_path / "policy.yaml").write_bytes(content)
    assert refused(2, tidegate(*words, cwd=tmp_path)) == f"{tmp_path}/policy.yaml: {said}"
    assert not (tmp_path / "state" / "journal.jsonl").exists()


@pytest.mark.parametrize(
    ("old", "new", "field", "said"),
    [
        ("threshold: 1s", "threshold: 1 parsec", "slos[0].threshold", 'got "1 parsec", must be a duration such as'),
        ("threshold: 1s", "threshold: 1Gi", "slos[0].threshold", 'got "1Gi", must be a duration such as'),
        ("minReplicas: 1", "minReplicas: 9", "pools[0].m", "inReplicas"),
        ("costPerHour: 2.50", "costPerHour: -2.50", "pools[0].costPerHour", "got -2.5, must be >= 0"),
        ("a100-llama8b-tp1", "a100-llama9b-tp1", "pools[0].engineProfile", "did you mean a100-llama8b-tp1?"),
        ("engine: vllm", "engine: vlm", "pools[0].engine", 'got "vlm", must be '),
    ],
)
def test_policy_field_that_is_wrong_is_named(tmp_path: Path, old: str, new: str, field: str, said: str) -> None:
    line = refused(2, tidegate("check", "-f", policy(tmp_path, old, new), cwd=tmp_path))
    assert line.startswith(f"{tmp_path}/policy.yaml:")
    assert f": spec.{field}" in line
    assert said in line


def test_policy_names_the_line_of_the_wrong_field(tmp_path: Path) -> None:
    line = refused(2, tidegate("check", "-f", policy(tmp_path, "costPerHour: 2.50", "costPerHour: x"), cwd=tmp_path))
    assert line.startswith(f"{tmp_path}/policy.yaml:{line_of('costPerHour')}: spec.pools[0].costPerHour: ")


def test_pool_given_twice_is_named(tmp_path: Path) -> None:
    text = EXAMPLE.read_text()
    start, end = text.index("    - name: main"), text.index("  scaling:")
    path = policy(tmp_path)
    path.write_text(text[:end] + text[start:end] + text[end:])
    line = refused(2, tidegate("check", "-f", path, cwd=tmp_path))
    assert "spec.pools[1].name" in line
    assert "main" in line


def test_model_that_no_profile_was_made_for_is_a_warning(tmp_path: Path) -> None:
    path = policy(tmp_path, "model: meta-llama/Llama-3.1-8B-Instruct", "model: acme/unknown-7b")
    ended = tidegate("check", "-f", path, cwd=tmp_path)
    assert ended.code == 0
    (warning,) = [line for line in ended.out.splitlines() if line.startswith("warning: ")]
    assert "acme/unknown-7b" in warning
    assert "a100-llama8b-tp1" in warning


# --- files beside the policy ---


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "No such file or directory"), (BINARY, "is not a CSV text file"), (b"", "found no header")],
    ids=["missing", "binary", "empty"],
)
def test_trace_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None, said: str) -> None:
    trace = tmp_path / "trace.csv"
    if content is not None:
        trace.write_bytes(content)
    line = refused(2, tidegate("demo", "--trace", trace, "--out", tmp_path / "out", cwd=CHECKOUT))
    assert line.startswith(f"{trace}")
    assert said in line
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("content", "said"), [(None, "No such file or directory"), ("short", "must be one word of 16 to 4096 characters")]
)
def test_alert_token_that_cannot_be_used_is_named(tmp_path: Path, content: str | None, said: str) -> None:
    token = tmp_path / "token"
    if content is not None:
        token.write_text(content)
    line = refused(2, tidegate(*run_words(tmp_path), "--alert-token-file", token, cwd=tmp_path))
    assert line.startswith(f"{token}: ")
    assert line.endswith(said)


def test_inventory_that_is_missing_is_named(tmp_path: Path) -> None:
    line = refused(2, tidegate(*run_words(tmp_path), "--nodes", tmp_path / "nodes.yaml", cwd=tmp_path))
    assert line == f"{tmp_path}/nodes.yaml: no such file"


# --- folders ---


def test_state_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/state")):
        line = refused(2, tidegate(*run_words(tmp_path), "--state-dir", folder, cwd=tmp_path))
        assert line.startswith(f"--state-dir: {folder}: must be a folder that can be written: ")


def test_report_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    line = refused(2, tidegate("demo", "--out", tmp_path / "file" / "out", cwd=CHECKOUT))
    assert line == f"{tmp_path}/file/out: must be a folder for the report that can be written: Not a directory"


def test_second_controller_on_one_state_folder_is_refused(tmp_path: Path) -> None:
    with Controller(tmp_path, dry_run=False) as first:
        first.wait("a first decision", lambda: first.sequence() >= 1)
        line = refused(1, tidegate(*run_words(tmp_path), cwd=tmp_path))
        assert f"journal.jsonl: is written by another controller (pid {first.process.pid})" in line


# --- addresses ---


@pytest.mark.parametrize("flag", ["--listen", "--ads-listen"])
def test_run_names_a_port_in_use_and_starts_nothing(tmp_path: Path, taken_port: int, flag: str) -> None:
    line = refused(2, tidegate(*run_words(tmp_path), flag, f"127.0.0.1:{taken_port}", cwd=tmp_path))
    assert f"127.0.0.1:{taken_port}: " in line
    assert list((tmp_path / "state" / "logs").iterdir()) == []  # no twin was started
    assert (tmp_path / "state" / "journal.jsonl").read_bytes() == b""


@pytest.mark.parametrize(
    "words",
    [
        ("engine", "--profile", "a100-llama8b-tp1", "--port", "{port}"),
        ("export", "gpu", "--listen", "127.0.0.1:{port}"),
        ("export", "engine", "--target", NOWHERE, "--listen", "127.0.0.1:{port}"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_server_verb_names_a_port_in_use(tmp_path: Path, taken_port: int, words: tuple[str, ...]) -> None:
    line = refused(2, tidegate(*(word.format(port=taken_port) for word in words), cwd=tmp_path))
    assert str(taken_port) in line
    assert "in use" in line.lower()


@pytest.mark.parametrize(
    ("flag", "value", "said"),
    [
        ("--listen", "8780", "--listen: must be HOST:PORT with a port of 1 to 65535, got '8780'"),
        ("--ads-listen", "127.0.0.1:70000", "--ads-listen: must be HOST:PORT with a port of 1 to 65535, got"),
        ("--decide-every", "5 bananas", "--decide-every: must be a duration such as"),
        ("--decide-every", "10ms", "--decide-every: must be at least 1s, got 10ms"),
        ("--owner-pid", "999999999", "--owner-pid: must be the pid of a running process, got 999999999"),
        ("--prometheus", "localhost:9090", "prometheus.url: must be http://HOST:PORT or https://HOST, got"),
    ],
)
def test_run_names_a_flag_that_is_wrong(tmp_path: Path, flag: str, value: str, said: str) -> None:
    assert refused(2, tidegate(*run_words(tmp_path), flag, value, cwd=tmp_path)).startswith(said)
    assert not (tmp_path / "state").exists()


# --- Envoy ---


def test_envoy_variable_that_names_nothing_is_bad_input(tmp_path: Path) -> None:
    ended = tidegate("demo", "--out", tmp_path / "out", cwd=CHECKOUT, TIDEGATE_ENVOY="/nonexistent")
    assert ended.code == 2
    last = ended.err.splitlines()[-1]
    assert last == "tidegate: TIDEGATE_ENVOY: must name an executable file, got /nonexistent"
    assert not (tmp_path / "out" / "run").exists()


# --- Prometheus ---


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (answer(b"no", "401 Unauthorized", "text/plain"), "credentials are missing or refused"),
        (answer(b"<html></html>", "200 OK", "text/html"), "HTML instead of JSON"),
    ],
    ids=["401", "html"],
)
def test_check_says_what_answered_instead_of_prometheus(tmp_path: Path, reply: bytes, words: str) -> None:
    with Faulty(always(reply)) as server:
        url = server.url
        line = refused(3, tidegate("check", "-f", policy(tmp_path), "--prometheus", url, cwd=tmp_path))
    assert url in line
    assert words in line


def test_check_says_that_nothing_listens(tmp_path: Path) -> None:
    line = refused(3, tidegate("check", "-f", policy(tmp_path), "--prometheus", NOWHERE, cwd=tmp_path))
    assert NOWHERE in line
    assert "connection refused" in line.lower()


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (None, "connection refused"),
        (answer(b"no", "401 Unauthorized", "text/plain"), "credentials are missing or refused"),
        (answer(b"<html></html>", "200 OK", "text/html"), "HTML instead of JSON"),
    ],
    ids=["nothing", "401", "html"],
)
def test_run_goes_on_and_holds_and_says_what_answered_instead_of_prometheus(
    tmp_path: Path, reply: bytes | None, words: str
) -> None:
    with (
        Faulty(always(reply or b"")) as server,
        Controller(tmp_path, NOWHERE if reply is None else server.url, dry_run=False) as one,
    ):
        one.wait("three decisions", lambda: one.sequence() >= 3)
        assert words.lower() in " ".join(one.not_ready()).lower()
        ended = one.stop()
    assert ended == 0
    lines = list(read(one.journal))
    assert all(p.notes for line in lines for p in line.decision.pools)
    assert {p.verdict for line in lines[1:] for p in line.decision.pools} == {Verdict.HOLD}


# --- a full disk ---


def test_full_disk_under_the_journal_holds_says_so_and_recovers(tmp_path: Path) -> None:
    with Controller(tmp_path) as one:
        journal = one.journal
        one.wait("two decisions", lambda: one.sequence() >= 2)
        # No file of the process may grow beyond what the journal has now: the kernel answers as on a full disk.
        resource.prlimit(one.process.pid, resource.RLIMIT_FSIZE, (journal.stat().st_size, resource.RLIM_INFINITY))
        one.wait("the reason", lambda: any("journal cannot be written" in r for r in one.not_ready()))
        stuck = one.sequence()
        time.sleep(2.5)
        assert one.sequence() == stuck
        assert "tidegate_journal_writable 0.0" in one.get("/metrics")
        resource.prlimit(one.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        one.wait("more decisions", lambda: one.sequence() >= stuck + 2)
        assert not any("journal" in r for r in one.not_ready())
        assert one.stop() == 0
    numbers = [line.decision.sequence for line in read(journal)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert tidegate("replay", journal, cwd=tmp_path).code == 0
