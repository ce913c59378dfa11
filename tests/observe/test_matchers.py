"""No label value can change a query."""

import pytest

from tidegate.observe.matchers import Matcher, any_of, duration, selector


def test_selector_of_one_name_is_plain() -> None:
    assert selector(["up"], Matcher(label="job", values=("envoy",))) == 'up{job="envoy"}'
    assert selector(["up"]) == "up"


def test_selector_of_several_names_is_one_alternation() -> None:
    assert selector(["b:x", "a_y"]) == '{__name__=~"a_y|b:x"}'


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ('a"} or up{x="', r'l="a\"} or up{x=\""'),
        ("back\\slash", r'l="back\\slash"'),
        ("two\nlines", r'l="two\nlines"'),
    ],
)
def test_matcher_escapes_a_value(value: str, text: str) -> None:
    assert str(Matcher(label="l", values=(value,))) == text


def test_matcher_takes_regex_characters_literally_among_several_values() -> None:
    assert str(any_of("instance", ["10.0.0.1:8000", "b|c"])) == r'instance=~"10\\.0\\.0\\.1:8000|b\\|c"'


def test_matcher_can_exclude() -> None:
    assert str(Matcher(label="a", values=("b",), negate=True)) == 'a!="b"'
    assert str(Matcher(label="a", values=("b", "c"), negate=True)) == 'a!~"b|c"'


@pytest.mark.parametrize("label", ["", "a-b", "a b", '"'])
def test_matcher_refuses_what_is_no_label(label: str) -> None:
    with pytest.raises(ValueError, match=r"matcher\.label"):
        Matcher(label=label, values=("x",))


def test_matcher_refuses_no_values() -> None:
    with pytest.raises(ValueError, match=r"matcher\.values"):
        any_of("a", [])


def test_selector_refuses_what_is_no_metric_name() -> None:
    with pytest.raises(ValueError, match=r"selector\.names"):
        selector(["up or vector(0)"])


def test_duration_is_in_milliseconds() -> None:
    assert duration(1.5) == "1500ms"
    assert duration(0.0) == "1ms"
