"""A tier below HBM forgets what was used least recently."""

import pytest

from tidegate.sim.kvtier import KvTier


def test_tier_forgets_the_least_recently_used_when_full() -> None:
    tier = KvTier(2)
    assert [tier.keep(b) for b in (1, 2, 3)] == [True, True, True]
    assert tier.kept == (2, 3)
    assert not tier.find(1)


def test_tier_makes_what_is_found_or_kept_again_the_most_recent() -> None:
    tier = KvTier(3)
    for block in (1, 2, 3):
        tier.keep(block)
    assert tier.find(1)
    assert not tier.keep(2)  # there already: nothing is written
    assert tier.kept == (3, 1, 2)
    tier.keep(4)
    assert tier.kept == (1, 2, 4)


def test_tier_needs_room() -> None:
    with pytest.raises(ValueError, match="blocks must be >= 1, got 0"):
        KvTier(0)
