"""The exporters' HTTP server and the text it serves."""

import math
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tidegate.app.cli.main import EXIT_BAD_INPUT, main
from tidegate.exporters.exposition import Family, Sample, render
from tidegate.exporters.serve import ListenError, MetricsServer, parse_listen


@contextmanager
def serving(page: Callable[[], str]) -> Iterator[str]:
    server = MetricsServer("127.0.0.1:0", page)
    server.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.stop()


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as exc:
        with exc:
            return exc.code, exc.read().decode()


def test_server_answers_metrics_healthz_and_404() -> None:
    with serving(lambda: "a 1\n") as url:
        assert get(url + "/metrics") == (200, "a 1\n")
        assert get(url + "/metrics?x=1") == (200, "a 1\n")
        assert get(url + "/healthz") == (200, "ok\n")
        assert get(url + "/")[0] == 404


def test_server_answers_500_with_the_error_and_goes_on_when_a_page_fails() -> None:
    def page() -> str:
        msg = "broken"
        raise ValueError(msg)

    with serving(page) as url:
        assert get(url + "/metrics") == (500, "ValueError: broken\n")
        assert get(url + "/healthz")[0] == 200


@pytest.mark.parametrize("text", ["9400", ":9400", "host:", "host:x", "host:65536", "host:-1", "", "host:٣"])
def test_parse_listen_refuses_what_is_not_host_and_port(text: str) -> None:
    with pytest.raises(ListenError, match="must be host:port"):
        parse_listen(text)


def test_parse_listen_reads_names_and_ipv6() -> None:
    assert parse_listen("localhost:0") == ("localhost", 0)
    assert parse_listen("[::1]:9400") == ("::1", 9400)


def test_export_ends_with_bad_input_when_the_port_is_in_use(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert main(["export", "gpu", "--listen", address]) == EXIT_BAD_INPUT
    assert f"--listen {address}: Address already in use" in capsys.readouterr().err


def test_render_writes_help_type_and_escaped_labels() -> None:
    family = Family(
        name="m",
        kind="gauge",
        meaning="a\\b\nc",
        samples=(Sample(value=1.5, labels=(("l", 'q"\\\n'),)), Sample(value=2)),
    )
    assert render([family]) == '# HELP m a\\\\b\\nc\n# TYPE m gauge\nm{l="q\\"\\\\\\n"} 1.5\nm 2\n'


def test_render_leaves_out_a_family_without_samples() -> None:
    assert render([Family(name="m", kind="gauge", meaning="", samples=())]) == ""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (math.inf, "+Inf"),
        (-math.inf, "-Inf"),
        (math.nan, "NaN"),
        (5551899580.0, "5551899580"),
        (0.0, "0"),
        (1e300, "1e+300"),
    ],
)
def test_render_writes_numbers_as_prometheus_reads_them(value: float, text: str) -> None:
    assert render([Family(name="m", kind="gauge", meaning="", samples=(Sample(value=value),))]).endswith(f"m {text}\n")
