"""The reader against servers that misbehave: trouble is a value with a reason, within the deadline."""

import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.observe.faulty import GOOD_BODY, Faulty, always, answer, drip, in_turn

from tidegate.observe.prometheus import PrometheusConfig, PrometheusReader
from tidegate.observe.result import Answer, Failure
from tidegate.terms.errors import BadInputError
from tidegate.terms.signal import UnknownReason

TLS = Path(__file__).parents[1] / "data" / "tls"
ERROR_400 = b'{"status":"error","errorType":"bad_data","error":"1:4: parse error: unexpected end"}'
ERROR_422 = b'{"status":"error","errorType":"execution","error":"query processing would load too many samples"}'


def reader(url: str, **settings: Any) -> PrometheusReader:  # noqa: ANN401 - passed through
    settings = {"connect_timeout_s": 0.5, "read_timeout_s": 0.5, "total_timeout_s": 1.5, **settings}
    return PrometheusReader(PrometheusConfig(url=url, **settings))


def ask(behave: Callable[[int], Iterator[bytes | float]], **settings: Any) -> Answer | Failure:  # noqa: ANN401 - passed through
    with Faulty(behave) as server:
        return reader(server.url, **settings).instant("up", 100.0)


def failed(result: Answer | Failure) -> Failure:
    assert isinstance(result, Failure), result
    return result


def test_reader_returns_series_with_times_and_labels() -> None:
    result = ask(always(answer(GOOD_BODY)))
    assert isinstance(result, Answer)
    assert result.series[0].labels == {"a": "b"}
    assert result.series[0].samples == ((100.5, 3.0),)
    assert result.newest_at_s == 100.5


def test_reader_sends_the_query_as_a_form() -> None:
    with Faulty(always(answer(GOOD_BODY))) as server:
        reader(server.url).instant('up{a="b c"}', 100.0)
    assert server.asked[0].line == "POST /api/v1/query HTTP/1.1"
    assert "query=up%7Ba%3D%22b+c%22%7D" in server.asked[0].body
    assert "time=100.000" in server.asked[0].body


def test_reader_sends_the_query_in_the_address_when_told_to_get() -> None:
    with Faulty(always(answer(GOOD_BODY))) as server:
        reader(server.url, post=False).instant("up", 100.0)
    assert server.asked[0].line.startswith("GET /api/v1/query?query=up&time=100.000")


@pytest.mark.parametrize(
    ("reply", "reason", "words"),
    [
        (answer(ERROR_400, "400 Bad Request"), UnknownReason.REJECTED, "bad_data: 1:4: parse error"),
        (answer(ERROR_422, "422 Unprocessable"), UnknownReason.REJECTED, "too many samples"),
        (answer(b"no", "401 Unauthorized", "text/plain"), UnknownReason.REJECTED, "credentials are missing or refused"),
        (answer(b"no", "403 Forbidden", "text/plain"), UnknownReason.REJECTED, "credentials are missing or refused"),
        (answer(b"<html>login</html>", "200 OK", "text/html"), UnknownReason.REJECTED, "HTML instead of JSON"),
        (answer(b"<html></html>", "404 Not Found", "text/html"), UnknownReason.REJECTED, "HTML instead of JSON"),
        (answer(b"404 page", "404 Not Found", "text/plain"), UnknownReason.REJECTED, "check the path"),
        (answer(b"", "302 Found", "text/plain", "Location: http://u:p@login/?t=1"), UnknownReason.REJECTED, "redirect"),
        (answer(b'{"status":"succ', "200 OK"), UnknownReason.REJECTED, "not a Prometheus answer"),
        (answer(b"", "200 OK"), UnknownReason.REJECTED, "empty body"),
        (answer(b"[" * 100_000, "200 OK"), UnknownReason.REJECTED, "not a Prometheus answer"),
        (answer(b'{"status":"success"}', "200 OK"), UnknownReason.REJECTED, "malformed"),
        (answer(b'{"status":"success","data":{"result":{}}}'), UnknownReason.REJECTED, "malformed"),
        (answer(GOOD_BODY.replace(b'"3"', b'"three"')), UnknownReason.REJECTED, "not [time, number]"),
        (answer(GOOD_BODY.replace(b"vector", b"string")), UnknownReason.REJECTED, "result type 'string'"),
        (answer(b"oops", "500 Internal Server Error", "text/plain"), UnknownReason.UNREACHABLE, "answered 500"),
        (b"garbage\r\n\r\n", UnknownReason.UNREACHABLE, "the connection broke"),
        (b"", UnknownReason.UNREACHABLE, "the connection broke"),
        (answer(GOOD_BODY)[:-20], UnknownReason.UNREACHABLE, "the connection broke"),
    ],
)
def test_reader_names_what_is_wrong_with_an_answer(reply: bytes, reason: UnknownReason, words: str) -> None:
    result = failed(ask(always(reply)))
    assert result.reason is reason
    assert words in result.detail
    assert "127.0.0.1" in result.detail


def test_reader_names_a_port_where_nothing_listens(free_port: Callable[[], int]) -> None:
    result = failed(reader(f"http://127.0.0.1:{free_port()}").instant("up", 100.0))
    assert result.reason is UnknownReason.UNREACHABLE
    assert "connection refused" in result.detail


def test_reader_names_a_name_that_does_not_resolve() -> None:
    result = failed(reader("http://prometheus.invalid:9090").instant("up", 100.0))
    assert result.reason is UnknownReason.UNREACHABLE
    assert "prometheus.invalid does not resolve" in result.detail


@pytest.mark.parametrize(
    ("behave", "words"),
    [
        (always(30.0), "no byte of an answer"),
        (drip(b"HTTP/1.1 200 OK\r\n", b"X-Drip: 1\r\n", 0.1), "no complete answer within 0.7 s"),
        (drip(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b" ", 0.1), "no complete answer within 0.7 s"),
        (drip(b"HTTP/1.1 200 OK\r\n\r\n", b" ", 0.1), "no complete answer within 0.7 s"),
    ],
    ids=["silence", "headers drip", "body drips", "body drips without length"],
)
def test_reader_gives_up_at_its_deadline(behave: Callable[[int], Iterator[bytes | float]], words: str) -> None:
    result = failed(ask(behave, total_timeout_s=0.7, max_attempts=1))
    assert result.reason is UnknownReason.UNREACHABLE
    assert words in result.detail


def test_reader_stops_an_endless_body_at_its_cap() -> None:
    result = failed(ask(drip(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 65_536, 0.0), max_body_bytes=1_000_000))
    assert result.reason is UnknownReason.REJECTED
    assert "longer than 1000000 bytes" in result.detail


def test_reader_does_not_read_a_body_declared_too_long() -> None:
    result = failed(ask(always(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", 5.0)))
    assert "longer than" in result.detail


@pytest.mark.parametrize("status", ["429 Too Many Requests", "503 Service Unavailable"])
def test_reader_tries_again_when_told_to_wait(status: str) -> None:
    with Faulty(in_turn(answer(b"later", status, "text/plain", "Retry-After: 1"), answer(GOOD_BODY))) as server:
        waits: list[float] = []
        result = PrometheusReader(PrometheusConfig(url=server.url), sleep=waits.append).instant("up", 100.0)
    assert isinstance(result, Answer)
    assert len(server.asked) == 2
    assert waits == [1.0]


def test_reader_does_not_wait_beyond_its_deadline() -> None:
    with Faulty(always(answer(b"later", "503 Service Unavailable", "text/plain", "Retry-After: 60"))) as server:
        waits: list[float] = []
        result = PrometheusReader(PrometheusConfig(url=server.url), sleep=waits.append).instant("up", 100.0)
    assert isinstance(result, Failure)
    assert waits == []


def test_reader_bounds_its_attempts() -> None:
    with Faulty(always(answer(b"later", "503 Service Unavailable", "text/plain"))) as server:
        result = PrometheusReader(PrometheusConfig(url=server.url), sleep=lambda _: None).instant("up", 100.0)
    assert isinstance(result, Failure)
    assert len(server.asked) == 3


@pytest.mark.parametrize("status", ["400 Bad Request", "422 Unprocessable Entity", "401 Unauthorized"])
def test_reader_does_not_repeat_what_was_refused(status: str) -> None:
    with Faulty(always(answer(ERROR_400, status))) as server:
        reader(server.url).instant("up", 100.0)
    assert len(server.asked) == 1


def test_reader_reports_partial_answers() -> None:
    result = ask(always(answer(GOOD_BODY[:-1] + b',"warnings":["store 3 is down"]}')))
    assert isinstance(result, Answer)
    assert result.partial
    assert result.warnings == ("store 3 is down",)


def test_reader_does_not_take_advice_on_a_query_for_a_partial_answer() -> None:
    result = ask(always(answer(GOOD_BODY[:-1] + b',"warnings":["PromQL warning: no counter"]}')))
    assert isinstance(result, Answer)
    assert not result.partial


def test_reader_reads_the_bearer_token_at_every_call(tmp_path: Path) -> None:
    token = tmp_path / "token"
    with Faulty(always(answer(GOOD_BODY))) as server:
        one = reader(server.url, bearer_file=token, tenant="team-a")
        token.write_text("first\n")
        one.instant("up", 100.0)
        token.write_text("second\n")
        one.instant("up", 100.0)
    assert [a.headers["authorization"] for a in server.asked] == ["Bearer first", "Bearer second"]
    assert server.asked[0].headers["x-scope-orgid"] == "team-a"


@pytest.mark.parametrize("content", [None, b"", b"two\nlines", b"\xff\xfe"])
def test_reader_refuses_an_unusable_credential_file(tmp_path: Path, content: bytes | None) -> None:
    token = tmp_path / "token"
    if content is not None:
        token.write_bytes(content)
    result = failed(reader("http://127.0.0.1:1", bearer_file=token).instant("up", 100.0))
    assert result.reason is UnknownReason.REJECTED
    assert "credential file token" in result.detail


def test_reader_sends_user_and_password(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("s3cret\n")
    with Faulty(always(answer(GOOD_BODY))) as server:
        reader(server.url, username="me", password_file=tmp_path / "password").instant("up", 100.0)
    assert server.asked[0].headers["authorization"] == "Basic bWU6czNjcmV0"


def test_reader_keeps_secrets_out_of_its_texts(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret\n")
    body = b'{"status":"error","errorType":"auth","error":"Bearer s3cret is not known, nor http://me:s3cret@host/"}'
    with Faulty(always(answer(body, "400 Bad Request"))) as server:
        address = server.url.replace("//", "//me:s3cret@")
        result = failed(reader(address, bearer_file=tmp_path / "token").instant("up", 100.0))
    assert "s3cret" not in result.detail
    assert "(redacted)" in result.detail


def test_reader_keeps_a_token_that_the_server_echoes_out_of_its_texts(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret\n")
    body = b'{"status":"error","errorType":"auth","error":"unknown key s3cret"}'
    result = failed(ask(always(answer(body, "400 Bad Request")), bearer_file=tmp_path / "token"))
    assert result.detail.endswith("auth: unknown key (redacted)")


def test_reader_names_a_trust_file_that_is_gone(tmp_path: Path) -> None:
    result = failed(reader("https://127.0.0.1:1", ca_file=tmp_path / "gone.pem").instant("up", 100.0))
    assert result.reason is UnknownReason.UNREACHABLE
    assert "gone.pem" in result.detail


def tls_server(*, ask_client: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "server.pem", TLS / "server.key")
    if ask_client:
        context.load_verify_locations(TLS / "ca.pem")
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def test_reader_speaks_mutual_tls() -> None:
    with Faulty(always(answer(GOOD_BODY)), tls=tls_server(ask_client=True)) as server:
        trusted = {"ca_file": TLS / "ca.pem", "cert_file": TLS / "client.pem", "key_file": TLS / "client.key"}
        assert isinstance(reader(server.url, **trusted).instant("up", 100.0), Answer)
        assert isinstance(reader(server.url, ca_file=TLS / "ca.pem").instant("up", 100.0), Failure)


def test_reader_trusts_no_unknown_authority() -> None:
    with Faulty(always(answer(GOOD_BODY)), tls=tls_server(ask_client=False)) as server:
        result = failed(reader(server.url).instant("up", 100.0))
    assert result.reason is UnknownReason.UNREACHABLE
    assert "TLS" in result.detail


def test_reader_gives_up_at_its_deadline_under_tls() -> None:
    behave = drip(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b" ", 0.1)
    with Faulty(behave, tls=tls_server(ask_client=False)) as server:
        one = reader(server.url, ca_file=TLS / "ca.pem", total_timeout_s=0.7, max_attempts=1)
        assert "no complete answer within 0.7 s" in failed(one.instant("up", 100.0)).detail


def test_breaker_leaves_a_failing_server_alone_and_probes_it() -> None:
    now_s = [0.0]
    with Faulty(in_turn(*[answer(b"x", "500 Broken", "text/plain")] * 4, answer(GOOD_BODY))) as server:
        one = PrometheusReader(PrometheusConfig(url=server.url), monotonic_s=lambda: now_s[0])
        reasons = [failed(one.instant("up", 100.0)).reason for _ in range(4)]
        assert reasons == [UnknownReason.UNREACHABLE] * 3 + [UnknownReason.BREAKER_OPEN]
        assert len(server.asked) == 3
        now_s[0] += 2.1  # the first pause is over: one probe, which fails and doubles the pause
        assert failed(one.instant("up", 100.0)).reason is UnknownReason.UNREACHABLE
        now_s[0] += 2.1
        assert failed(one.instant("up", 100.0)).reason is UnknownReason.BREAKER_OPEN
        now_s[0] += 2.1
        assert isinstance(one.instant("up", 100.0), Answer)
        assert isinstance(one.instant("up", 100.0), Answer)


def test_breaker_stays_closed_while_the_server_only_refuses() -> None:
    with Faulty(always(answer(ERROR_400, "400 Bad Request"))) as server:
        one = reader(server.url)
        assert {failed(one.instant("up", 100.0)).reason for _ in range(5)} == {UnknownReason.REJECTED}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"url": "127.0.0.1:9090"}, "must be http://HOST:PORT"),
        ({"url": "ftp://host"}, "must be http://HOST:PORT"),
        ({"url": "http://"}, "must be http://HOST:PORT"),
        ({"url": "http://host/?query=1"}, "without ?"),
        ({"url": "http://host", "username": "me"}, "password file"),
        ({"url": "http://host", "cert_file": Path("c")}, "certificate and a key"),
        (
            {"url": "http://host", "bearer_file": Path("b"), "username": "me", "password_file": Path("p")},
            "not both",
        ),
    ],
)
def test_configuration_refuses_what_cannot_work(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInputError, match=words):
        PrometheusConfig(**settings)


def test_reader_uses_no_environment_for_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login other password other\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with Faulty(always(answer(GOOD_BODY))) as server:
        assert isinstance(reader(server.url).instant("up", 100.0), Answer)
    assert "authorization" not in server.asked[0].headers
