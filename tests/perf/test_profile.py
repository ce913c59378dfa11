"""The profiles that ship, and what is refused."""

from dataclasses import replace
from pathlib import Path

import pytest

from tidegate.app.config_problem import PolicyFileError
from tidegate.app.config_profile import load_profile, shipped_profiles
from tidegate.perf.profile import profile_problems

# Bytes: memory of all GPUs, weights, one KV token. The budget is (0.9 * memory - weights - 4 GB per GPU) / token.
BUDGETS = {
    "a100-llama8b-tp1": (80 * 2**30, 16.06e9, 131_072),
    "h100-llama70b-tp4": (4 * 80 * 2**30, 141.108e9, 327_680),
}


@pytest.mark.parametrize("name", shipped_profiles())
def test_shipped_profile_is_sound_and_says_where_it_comes_from(name: str) -> None:
    profile = load_profile(name)

    assert profile_problems(profile) == ()
    assert profile.name == name
    assert profile.source
    assert profile.dated.startswith("20")
    assert profile.kv_capacity_tokens % profile.block_tokens == 0


@pytest.mark.parametrize("name", BUDGETS)
def test_shipped_profile_holds_the_kv_its_memory_leaves(name: str) -> None:
    memory, weights, token = BUDGETS[name]
    gpus = load_profile(name).tensor_parallel

    expected = (0.9 * memory - weights - 4e9 * gpus) / token

    assert load_profile(name).kv_capacity_tokens == pytest.approx(expected, abs=16)


def test_profile_of_an_unknown_name_says_where_the_known_are_and_the_nearest() -> None:
    with pytest.raises(PolicyFileError, match=r"a100-lama8b-tp1.*tidegate profile list.*did you mean a100-llama8b-tp1"):
        load_profile("a100-lama8b-tp1")


def shipped_text() -> str:
    import tidegate.perf  # noqa: PLC0415  (only its folder)

    return (Path(tidegate.perf.__path__[0]) / "profiles" / "a100-llama8b-tp1.yaml").read_text(encoding="utf-8")


def test_profile_file_equals_the_shipped_one_when_copied(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(shipped_text(), encoding="utf-8")

    assert load_profile(str(path)) == load_profile("a100-llama8b-tp1")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("blockTokens: 16", "blockToken: 16", r"blockToken: is no field.*did you mean blockTokens"),
        ("blockTokens: 16\n", "", r"blockTokens: is missing"),
        ("blockTokens: 16", "blockTokens: sixteen", r"blockTokens: got \"sixteen\", must be a whole number"),
        ("blockTokens: 16", "blockTokens: true", r"blockTokens: got true, must be a whole number"),
        ("blockTokens: 16", "blockTokens: 0", r"blockTokens: got 0, must be >= 1"),
        ("tokenBudget: 2048", "tokenBudget: 8", r"tokenBudget: got 8, must be >= max_sequences"),
        ("smoothMaxPower: 2.0", "smoothMaxPower: .nan", r"smoothMaxPower: got nan, must be between 1 and 16"),
        ("stepBasePs: 7072240000", "stepBasePs: -1", r"stepBasePs: got -1, must be >= 0"),
        ("frontEndPs: 12000000000", "frontEndPs: 12000000000000000", r"frontEndPs: .*under 60 s"),
    ],
)
def test_profile_file_with_a_slip_names_the_field(tmp_path: Path, old: str, new: str, said: str) -> None:
    path = tmp_path / "mine.yaml"
    text = shipped_text()
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")

    with pytest.raises(PolicyFileError, match=rf"mine\.yaml:\d+: {said}"):
        load_profile(str(path))


def test_profile_file_with_two_slips_names_both(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    text = shipped_text().replace("blockTokens: 16", "blockTokens: x").replace("maxSequences: 256", "maxSequences: y")
    path.write_text(text, encoding="utf-8")

    with pytest.raises(PolicyFileError, match=r"(?s)blockTokens.*maxSequences"):
        load_profile(str(path))


@pytest.mark.parametrize("content", [b"", b"- 1\n", b"\xff\xfe\x00", b"a: b: c:", b"name: x\n---\nname: y\n"])
def test_profile_file_that_is_no_mapping_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "mine.yaml"
    path.write_bytes(content)

    with pytest.raises(PolicyFileError, match=r"mine\.yaml"):
        load_profile(str(path))


def test_profile_that_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PolicyFileError, match="no such file"):
        load_profile(str(tmp_path / "none.yaml"))


def test_profile_problems_names_a_budget_too_small_for_its_sequences() -> None:
    profile = replace(load_profile("a100-llama8b-tp1"), token_budget=255)

    assert [field for field, _ in profile_problems(profile)] == ["token_budget"]


def test_optional_fields_may_be_left_out_or_given(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    bare = "\n".join(line for line in shipped_text().splitlines() if not line.startswith("fitErrorRatio")) + "\n"
    path.write_text(bare, encoding="utf-8")
    assert load_profile(str(path)).front_end_ps_per_live == 0
    assert load_profile(str(path)).fit_error_ratio == 0.0

    path.write_text(f"{bare}frontEndPsPerLive: 400000000\nfitErrorRatio: 0.02\n", encoding="utf-8")
    assert load_profile(str(path)).front_end_ps_per_live == 400_000_000

    path.write_text(f"{bare}fitErrorRatio: 3.5\n", encoding="utf-8")
    with pytest.raises(PolicyFileError, match=r"fitErrorRatio: got 3.5, must be between 0 and 1"):
        load_profile(str(path))


def test_profiles_made_of_tables_hold_their_quality() -> None:
    profiles = [load_profile(name) for name in shipped_profiles()]

    assert all(0.0 < p.fit_error_ratio <= 0.06 for p in profiles)
    assert {p.engine for p in profiles} == {"vllm", "sglang"}
    assert len({(p.model, p.accelerator, p.tensor_parallel, p.engine) for p in profiles}) == len(profiles)
    by_name = {p.name: p for p in profiles}
    for slow, fast in (("a100", "h100"), ("h100", "b200")):
        one, two = by_name[f"{slow}-llama8b-tp1"], by_name[f"{fast}-llama8b-tp1"]
        assert one.compute_ps_per_token > two.compute_ps_per_token
        assert one.kv_read_ps_per_token > two.kv_read_ps_per_token
