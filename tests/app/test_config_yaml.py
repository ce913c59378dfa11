from pathlib import Path

import pytest

from tidegate.app.config_problem import Problem
from tidegate.app.config_yaml import MAX_FILE_BYTES, read_documents, read_text


def _value(text: str) -> object:
    documents, problems = read_documents(text, "f.yaml")
    assert problems == ()
    return documents[0].value


def _problem(text: str) -> str:
    _, problems = read_documents(text, "f.yaml")
    return str(problems[0])


def test_plain_scalars_follow_the_core_rules() -> None:
    got = _value("{a: on, b: 1:30, c: true, d: 3, e: 2.5, f: '3', g: 2024-01-01, h: 0x10, i: 1e3, j: no, k: 007}")
    assert got == {
        "a": "on", "b": "1:30", "c": True, "d": 3, "e": 2.5, "f": "3", "g": "2024-01-01", "h": "0x10", "i": 1000.0,
        "j": "no", "k": 7,
    }  # fmt: skip


def test_entries_without_a_value_are_left_out() -> None:
    assert _value("a:\nb: ~\nc: null\nd: ''") == {"d": ""}


def test_lines_are_known_of_every_path() -> None:
    documents, _ = read_documents("a:\n  - b: 1\n  - c: {d: 2}\n", "f.yaml")
    assert documents[0].lines[("a", 1, "c", "d")] == 3


def test_documents_are_separate() -> None:
    documents, problems = read_documents("a: 1\n---\n---\nb: 2\n", "f.yaml")
    assert [d.value for d in documents] == [{"a": 1}, {"b": 2}]
    assert documents[1].lines[("b",)] == 4
    assert problems == ()


def test_key_given_twice_is_a_problem_with_both_lines() -> None:
    assert _problem("a:\n  b: 1\n  b: 2\n") == "f.yaml:3: a.b: is given twice, first on line 2"


@pytest.mark.parametrize("text", ["a: !!python/object:os.system x", "a: !!str 1", "a: !x {}", "!y [1]"])
def test_tag_is_refused(text: str) -> None:
    assert "tags are refused" in _problem(text)


def test_alias_is_followed() -> None:
    assert _value("a: &x {b: 1}\nc: *x\n") == {"a": {"b": 1}, "c": {"b": 1}}


def test_alias_bomb_is_stopped() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 10)]
    assert "expands to more than" in _problem("\n".join(lines))


def test_alias_chain_is_stopped_when_deep() -> None:
    lines = ["a0: &a0 [x]"] + [f"a{i}: &a{i} [[[*a{i - 1}]]]" for i in range(1, 400)]
    assert "levels" in _problem("\n".join(lines))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: &x [*x]", "contains itself"),
        ("a: *nobody", "unknown anchor"),
        ("[" * 500, "nested deeper"),
        ("\n".join(" " * i + "-" for i in range(500)), "nested deeper"),
        ("? [a, b]\n: 1", "must be text"),
        ("a: [1", "is not YAML"),
        ("a: b: c", "is not YAML"),
        ("\ta: 1", "is not YAML"),
        ("a: 'x", "is not YAML"),
        ("a: \x01", "is not YAML"),
        ("a: \ud800", "is not YAML"),
        ("- x\n" * 100_001, "holds more than"),
    ],
)
def test_text_that_cannot_be_used_is_a_problem(text: str, said: str) -> None:
    assert said in _problem(text)


def test_huge_numbers_stay_text_instead_of_costing_time() -> None:
    assert _value("a: " + "9" * 10_000) == {"a": "9" * 10_000}


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"\xff\xfe\x00", "byte 0xff at offset 0"), (b"a: \0", "NUL"), (b"#" * (MAX_FILE_BYTES + 1), "is larger than")],
)
def test_file_that_is_no_text_is_a_problem(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "p.yaml"
    path.write_bytes(content)
    got = read_text(path)
    assert isinstance(got, Problem)
    assert said in str(got)


def test_directory_and_missing_file_are_problems(tmp_path: Path) -> None:
    assert "is a directory" in str(read_text(tmp_path))
    assert "no such file" in str(read_text(tmp_path / "none.yaml"))
    assert "cannot be read" in str(read_text(tmp_path / ("n" * 5000)))


def test_byte_order_mark_is_no_content(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert read_text(path) == "a: 1\n"
