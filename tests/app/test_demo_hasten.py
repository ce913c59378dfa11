from pathlib import Path

from tidegate.app.config import load_policies
from tidegate.app.demo.hasten import hastened
from tidegate.app.demo.options import POLICY

ROOT = Path(__file__).parents[2]


def test_hastened_policy_starts_replicas_as_much_faster_as_the_tide_turns(tmp_path: Path) -> None:
    (before,) = load_policies([ROOT / POLICY])
    (after,) = load_policies([hastened(ROOT / POLICY, tmp_path / "deep" / "p.yaml", ratio=0.25)])
    assert after.pools[0].cold_start_prior_s == before.pools[0].cold_start_prior_s / 4
    assert before.scaling.shrink_stabilisation_s is not None
    assert after.scaling.shrink_stabilisation_s == before.scaling.shrink_stabilisation_s / 4
    assert after.slos == before.slos


def test_hastened_policy_is_the_policy_itself_for_a_full_or_longer_demo(tmp_path: Path) -> None:
    for ratio in (1.0, 2.0):
        copy = hastened(ROOT / POLICY, tmp_path / "p.yaml", ratio=ratio)
        assert load_policies([copy]) == load_policies([ROOT / POLICY])
