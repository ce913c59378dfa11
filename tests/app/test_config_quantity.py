import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.app.config import parse_bytes, parse_duration_s


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("90s", 90.0),
        ("1h30m", 5400.0),
        ("1.5h", 5400.0),
        ("28d", 28 * 86_400.0),
        ("1w", 604_800.0),
        ("1y", 31_536_000.0),
        ("1s1ms", 1.001),
        ("0s", 0.0),
    ],
)
def test_duration_is_read(text: str, seconds: float) -> None:
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "500", "s", "1m1h", "1s1s", "-1s", "1 s", "1S", "1min", "1e3s", "1s\n", "٣s", "1.s", "9" * 30 + "s"]
)
def test_duration_is_refused_when_spelled_otherwise(text: str) -> None:
    with pytest.raises(ValueError, match="a duration"):
        parse_duration_s(text)


def test_duration_without_unit_is_answered_with_both_readings() -> None:
    with pytest.raises(ValueError, match="500ms or 500s"):
        parse_duration_s("500")


@pytest.mark.parametrize(
    ("text", "count"),
    [("80Gi", 80 * 2**30), ("8Mi", 8 * 2**20), ("1.5G", 1_500_000_000), ("1024", 1024), ("2k", 2000), ("0.5Ki", 512)],
)
def test_bytes_are_read(text: str, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "8MB", "8mi", "-1", "1Gi ", "Gi", "1e3", "0x10", "NaN"])
def test_bytes_are_refused_when_spelled_otherwise(text: str) -> None:
    with pytest.raises(ValueError, match="a number of bytes"):
        parse_bytes(text)


def test_bytes_are_refused_when_not_whole() -> None:
    with pytest.raises(ValueError, match="a whole number of bytes"):
        parse_bytes("0.3")


@given(st.integers(0, 10**12))
def test_milliseconds_survive_exactly(count: int) -> None:
    assert parse_duration_s(f"{count}ms") == count / 1000


@given(st.text(max_size=40))
def test_any_text_is_a_number_or_a_value_error(text: str) -> None:
    for parse in (parse_duration_s, parse_bytes):
        try:
            assert parse(text) >= 0
        except ValueError as exc:
            assert str(exc)  # noqa: PT017  (both outcomes are right)
