"""The engine exporter against small HTTP servers that behave and misbehave."""

import gzip
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tidegate.app.cli.main import EXIT_BAD_INPUT, EXIT_DONE, EXIT_UNREACHABLE, main
from tidegate.app.servers import free_port
from tidegate.exporters.engine import EngineExporter, TargetError, target_url
from tidegate.exporters.engine_fetch import MAX_PAGE_BYTES, EnginePage, Failed, fetch
from tidegate.exporters.exposition import render
from tidegate.terms.errors import NotBuiltYetError

PAGE = (Path(__file__).parents[1] / "data" / "metrics" / "synth_vllm_0.33.0.txt").read_bytes()


class Engine:
    """Serves whatever `answer` says at /metrics, and keeps the Accept headers it was sent."""

    def __init__(self) -> None:
        self.answer: Callable[[BaseHTTPRequestHandler], None] = send(PAGE)
        self.accepts: list[str | None] = []
        engine = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                engine.accepts.append(self.headers["Accept"])
                if self.path == "/metrics":
                    engine.answer(self)
                else:
                    self.send_error(404)

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


def send(body: bytes, *, status: int = 200, headers: tuple[tuple[str, str], ...] = ()) -> Callable[..., None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in (*headers, ("Content-Length", str(len(body)))):
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def drip(handler: BaseHTTPRequestHandler) -> None:
    """Send a byte now and then, never finishing; each read alone is fast."""
    handler.send_response(200)
    handler.end_headers()
    try:
        for _ in range(200):
            handler.wfile.write(b"#")
            handler.wfile.flush()
            time.sleep(0.05)
    except OSError:
        return  # the exporter has hung up, as it should


def drip_headers(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    try:
        for number in range(200):
            handler.send_header(f"X-{number}", "slow")
            handler.flush_headers()
            time.sleep(0.05)
    except OSError:
        return


def cut_short(handler: BaseHTTPRequestHandler) -> None:
    """Promise a page and hang up in its middle: half a page must not pass for a whole one."""
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(PAGE)))
    handler.end_headers()
    handler.wfile.write(PAGE[: len(PAGE) // 2])
    handler.close_connection = True


@pytest.fixture
def engine() -> Iterator[Engine]:
    found = Engine()
    yield found
    found.server.shutdown()
    found.server.server_close()


@pytest.fixture
def broken() -> Iterator[Engine]:
    found = Engine()
    yield found
    found.server.shutdown()
    found.server.server_close()


def failure(engine: Engine, *, timeout_s: float = 5.0) -> Failed:
    found = fetch(engine.url + "/metrics", timeout_s=timeout_s)
    assert isinstance(found, Failed)
    return found


def test_fetch_asks_for_the_plain_text_format(engine: Engine) -> None:
    assert isinstance(fetch(engine.url + "/metrics", timeout_s=5.0), EnginePage)
    assert engine.accepts == ["text/plain;version=0.0.4"]


def test_fetch_names_each_way_to_fail(engine: Engine) -> None:
    engine.answer = send(b"no", status=404)
    assert failure(engine).reason == "http_404"
    engine.answer = send(b"", status=302, headers=(("Location", "/elsewhere"),))
    assert failure(engine).reason == "http_302"
    engine.answer = send(b"<html><body>Welcome</body></html>")
    assert failure(engine).reason == "not_metrics"
    engine.answer = drip
    assert failure(engine, timeout_s=0.3).reason == "timeout"
    engine.answer = drip_headers
    assert failure(engine, timeout_s=0.3).reason == "timeout"
    engine.answer = send(b"a 1\n" * (MAX_PAGE_BYTES // 4 + 1))
    assert failure(engine).reason == "too_large"
    # Compression was not asked for; what comes compressed all the same is no text, however much it would unpack to.
    engine.answer = send(gzip.compress(b"#" * (4 * MAX_PAGE_BYTES)), headers=(("Content-Encoding", "gzip"),))
    assert failure(engine).reason == "not_metrics"
    engine.answer = cut_short
    assert failure(engine).reason == "broken_answer"


@pytest.mark.parametrize("host", [f"127.0.0.1:{free_port()}", "a" * 70 + ".invalid"], ids=["free port", "no name"])
def test_fetch_says_unreachable_when_nobody_listens(host: str) -> None:
    found = fetch(f"http://{host}/metrics", timeout_s=5.0)
    assert isinstance(found, Failed)
    assert found.reason == "unreachable"


def test_exporter_goes_on_with_the_others_when_one_target_hangs(engine: Engine, broken: Engine) -> None:
    broken.answer = drip
    exporter = EngineExporter([broken.url, engine.url], engine="vllm", timeout_s=0.5, clock=lambda: 100.0)
    families = {f.name: f.samples for f in exporter.collect()}
    assert [(dict(s.labels), s.value) for s in families["tidegate_exporter_engine_up"]] == [
        ({"target": broken.url + "/metrics", "reason": "timeout"}, 0.0),
        ({"target": engine.url + "/metrics"}, 1.0),
    ]
    (running,) = families["tidegate_engine_running_requests"]
    assert dict(running.labels) == {
        "target": engine.url + "/metrics",
        "engine_kind": "vllm",
        "model": "meta-llama/Llama-3.1-8B-Instruct",
        "dp_rank": "0",
    }
    assert running.value == 20.0


def test_exporter_tells_how_long_ago_a_target_last_answered(engine: Engine) -> None:
    now_s = [100.0]
    exporter = EngineExporter([engine.url], engine="vllm", timeout_s=5.0, clock=lambda: now_s[0])

    def since() -> list[float]:
        return [s.value for f in exporter.collect() if f.name.endswith("since_success") for s in f.samples]

    engine.answer = send(b"", status=503)
    assert since() == []  # it never did: absent, not 0
    engine.answer = send(PAGE)
    assert since() == [0.0]
    now_s[0] = 107.5
    engine.answer = send(b"", status=503)
    assert since() == [7.5]


def test_exporter_page_is_read_back_by_the_official_parser(engine: Engine) -> None:
    exporter = EngineExporter([engine.url], engine="vllm", timeout_s=5.0, clock=lambda: 0.0)
    families = {f.name: f for f in text_string_to_metric_families(render(exporter.collect()))}
    assert families["tidegate_engine_ttft_seconds"].type == "histogram"
    assert families["tidegate_engine_output_tokens"].type == "counter"
    contract = families["tidegate_engine_contract"].samples
    assert {s.labels["state"] for s in contract} == {"found"}
    assert len({s.labels["quantity"] for s in contract}) == len(contract) > 10


@pytest.mark.parametrize(
    "target",
    [
        "",
        "engine:8000",
        "ftp://engine",
        "http://",
        "http://engine:x",
        "http://[::1",
        "http://engine:0",
        "http://engine/é",
        "http://a/b c",
    ],
)
def test_target_url_refuses_what_cannot_be_scraped(target: str) -> None:
    with pytest.raises(TargetError, match="must be http"):
        target_url(target)


def test_target_url_refuses_a_password_without_repeating_it() -> None:
    with pytest.raises(TargetError, match="must not carry a user or password") as caught:
        target_url("http://me:hunter2@engine:8000")
    assert "hunter2" not in str(caught.value)


def test_target_url_adds_the_usual_path_only_where_there_is_none() -> None:
    assert target_url("http://engine:8000") == "http://engine:8000/metrics"
    assert target_url("http://engine:8000/") == "http://engine:8000/metrics"
    assert target_url("http://engine:8000/v2/metrics") == "http://engine:8000/v2/metrics"


def test_exporter_refuses_doubled_targets_none_and_engines_not_built() -> None:
    with pytest.raises(TargetError, match="given twice"):
        EngineExporter(["http://a:1", "http://a:1/metrics"], engine="vllm", timeout_s=1.0, clock=lambda: 0.0)
    with pytest.raises(TargetError, match="1 to 256 times, got 0"):
        EngineExporter([], engine="vllm", timeout_s=1.0, clock=lambda: 0.0)
    with pytest.raises(NotBuiltYetError, match="--engine sglang: not built yet"):
        EngineExporter(["http://a:1"], engine="sglang", timeout_s=1.0, clock=lambda: 0.0)


def test_export_engine_once_prints_the_page_and_tells_when_no_target_answers(
    engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", "engine", "--once", "--target", engine.url]) == EXIT_DONE
    assert "tidegate_engine_running_requests{" in capsys.readouterr().out
    engine.answer = send(b"", status=404)
    assert main(["export", "engine", "--once", "--target", engine.url]) == EXIT_UNREACHABLE
    out, err = capsys.readouterr()
    assert 'reason="http_404"} 0' in out
    assert "http_404: Not Found" in err


@pytest.mark.parametrize("timeout", ["0", "-1", "61", "nan"])
def test_export_engine_refuses_a_timeout_out_of_range(timeout: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "engine", "--once", "--target", "http://a:1", "--timeout", timeout]) == EXIT_BAD_INPUT
    assert "--timeout: must be above 0" in capsys.readouterr().err
