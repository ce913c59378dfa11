"""Profiles made of tables of steps: the coefficients come back, and what is no good is refused."""

from pathlib import Path

import pytest

from tidegate.app.cli.main import EXIT_BAD_INPUT, EXIT_DONE, main
from tidegate.app.config_profile import load_profile
from tidegate.perf.profile import EngineProfile
from tidegate.perf.steptime import step_ps

KEY = "meta-llama/Meta-Llama-3.1-8B,h100_sxm,vllm,0.24.0,1"
KEYS = "model,system,backend,backend_version,tp"
TRUTH = load_profile("h100-llama8b-tp1")


def kernel_ms(profile: EngineProfile, *, tokens: int, kv: int = 0, double_pairs: int = 0) -> float:
    """Return a step without its host costs."""
    ps = step_ps(profile, tokens=tokens, kv_read_tokens=kv, double_pairs=double_pairs, sequences=0)
    return (ps - profile.host_fixed_ps) / 1e9


def write_tables(folder: Path, *, fits: int = 1, kv_tokens: int = 432_992) -> Path:
    folder.mkdir(exist_ok=True)
    prefill = [
        f"{KEY},1,{n},{x},{kernel_ms(TRUTH, tokens=n - x, double_pairs=(n - x) * (n + x)):.4f}"
        for n, x in ((128, 0), (512, 0), (1024, 0), (2048, 0), (4096, 0), (8192, 0), (3000, 1500))
    ]
    decode = [
        f"{KEY},{b},{c},{kernel_ms(TRUTH, tokens=b, kv=b * c):.4f},1"
        for b in (1, 8, 32, 128, 256)
        for c in (512, 2048, 8192)
    ]
    mixed = [
        f"{KEY},{q},{b},2048,{kernel_ms(TRUTH, tokens=q + b, kv=b * 2048, double_pairs=q * min(q, 2048)):.4f}"
        for q in (512, 2048)
        for b in (8, 64)
    ]
    for name, columns, rows in (
        ("prefill_latency_ms", "batch,isl_total,prefix_cached,prefill_ms", prefill),
        ("decode_itl_ms", "batch,context,itl_ms,tokens_per_s", decode),
        ("mixed_step_ms", "ctx_tokens,gen_requests,context,step_ms", mixed),
        ("kv_capacity", "kv_tokens_total,fits", [f"{KEY},{kv_tokens},{fits}"]),
    ):
        text = "\n".join([f"{KEYS},{columns}", *rows]) + "\n"
        (folder / f"{name}.csv").write_text(text, encoding="utf-8")
    return folder


def test_tables_give_back_the_coefficients_they_were_made_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = write_tables(tmp_path / "tables")

    words = ["profile", "from-tables", str(tables), "--out", str(tmp_path / "out"), "--dated", "2026-11-30"]
    assert main(words) == EXIT_DONE

    assert "h100-llama8b-tp1: mean error over its table 0.0%" in capsys.readouterr().out
    profile = load_profile(str(tmp_path / "out" / "h100-llama8b-tp1.yaml"))
    assert profile.compute_ps_per_token == pytest.approx(TRUTH.compute_ps_per_token, rel=0.01)
    assert profile.kv_read_ps_per_token == pytest.approx(TRUTH.kv_read_ps_per_token, rel=0.01)
    assert profile.attention_ps_per_pair == pytest.approx(TRUTH.attention_ps_per_pair, rel=0.02)
    # Launch and reading are only known together: at one token both are paid.
    assert profile.step_base_ps + profile.weight_read_ps == pytest.approx(
        TRUTH.step_base_ps + TRUTH.weight_read_ps, rel=0.01
    )
    assert profile.smooth_max_power == TRUTH.smooth_max_power
    assert profile.kv_capacity_tokens == 432_992
    assert profile.dated == "2026-11-30"


@pytest.mark.parametrize(("fits", "kv_tokens"), [(0, 432_992), (1, 9_000)])
def test_model_that_does_not_fit_gets_no_profile(
    fits: int, kv_tokens: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = write_tables(tmp_path / "tables", fits=fits, kv_tokens=kv_tokens)

    assert main(["profile", "from-tables", str(tables), "--out", str(tmp_path / "out")]) == EXIT_DONE

    assert "h100-llama8b-tp1: refused: KV for" in capsys.readouterr().out
    assert list((tmp_path / "out").iterdir()) == []


def test_steps_that_the_model_cannot_make_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tables = write_tables(tmp_path / "tables")
    rows = (tables / "decode_itl_ms.csv").read_text().splitlines()
    odd = [line.rsplit(",", 2)[0] + f",{5 if i % 2 else 50},1" for i, line in enumerate(rows[1:])]
    (tables / "decode_itl_ms.csv").write_text("\n".join([rows[0], *odd]) + "\n")

    assert main(["profile", "from-tables", str(tables), "--out", str(tmp_path / "out")]) == EXIT_DONE

    assert "refused: misses its own table by" in capsys.readouterr().out


def test_bad_tables_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["profile", "from-tables", "TABLES", "--out", str(tmp_path / "out")]

    def said(tables: Path, *more: str) -> str:
        assert main([w if w != "TABLES" else str(tables) for w in (*words, *more)]) == EXIT_BAD_INPUT
        return capsys.readouterr().err

    assert "must hold prefill_latency_ms.csv" in said(tmp_path)
    good = write_tables(tmp_path / "tables")
    assert "--dated: must be an ISO date" in said(good, "--dated", "yesterday")
    assert "cannot be read" in said(good, "--latencies", str(tmp_path / "none.csv"))
    (good / "kv_capacity.csv").write_text(f"{KEYS},fits\n{KEY},1\n")
    assert "must have the columns kv_tokens_total" in said(good)
    (good / "kv_capacity.csv").write_text(f"{KEYS},kv_tokens_total,fits\n{KEY},many,1\n")
    assert "kv_capacity.csv:2: must hold numbers in kv_tokens_total, fits" in said(good)
