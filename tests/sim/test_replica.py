"""The replica, step by step, against hand-made schedules and what must hold for any load."""

from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidegate.perf.profile import EngineProfile
from tidegate.sim.events import SimRequest, Step
from tidegate.sim.replica import ReplicaSim

Engine = Callable[..., EngineProfile]
FOREVER_PS = 1 << 80


def request(key: int, prompt: int, output: int, cached: int = 0) -> SimRequest:
    return SimRequest(key=key, prompt_tokens=prompt, output_tokens=output, cached_tokens=cached)


def lengths_ps(steps: list[Step]) -> list[int]:
    return [s.ended_at_ps - s.began_at_ps for s in steps]


def test_replica_times_one_request_as_computed_by_hand(engine: Engine) -> None:
    sim = ReplicaSim(engine())
    assert sim.submit(request(1, 10, 3), 1000)

    steps = sim.step_until(FOREVER_PS)

    # Prefill: 110 + 10 + 3 * 10 * 10 / 2 + 7 = 277. Decodes read 11 and 12 KV tokens: 110 + 1 + 22 + 7, then + 2.
    assert lengths_ps(steps) == [277, 140, 142]
    assert steps[0].began_at_ps == 1050  # after the front end
    assert [s.emitted for s in steps] == [(1,), (1,), (1,)]
    assert steps[0].admitted == (1,)
    assert steps[-1].finished == (1,)
    assert (sim.live, sim.running, sim.kv_used_blocks, sim.next_at_ps()) == (0, 0, 0, None)


def test_replica_finishes_a_one_token_answer_with_its_prompt(engine: Engine) -> None:
    sim = ReplicaSim(engine())
    sim.submit(request(1, 64, 1), 0)

    steps = sim.step_until(FOREVER_PS)

    assert [(s.emitted, s.finished) for s in steps] == [((1,), (1,))]


def test_replica_chunks_a_prompt_over_the_token_budget(engine: Engine) -> None:
    sim = ReplicaSim(engine())
    sim.submit(request(1, 100, 2), 0)

    steps = sim.step_until(FOREVER_PS)

    assert [s.prefill_tokens for s in steps] == [64, 36, 0]
    assert [s.emitted for s in steps] == [(), (1,), (1,)]
    # Chunk 2 starts after 64 tokens: 110 + 36 + 3 * 36 * (2 * 64 + 36) / 2 + 7.
    assert lengths_ps(steps)[1] == 110 + 36 + 8856 + 7


def test_replica_decodes_first_and_gives_prompts_what_is_left(engine: Engine) -> None:
    sim = ReplicaSim(engine())
    sim.submit(request(1, 10, 30), 0)
    sim.submit(request(2, 100, 2), 10)

    steps = sim.step_until(FOREVER_PS)

    second = next(s for s in steps if 2 in s.admitted)
    assert (second.decode_tokens, second.prefill_tokens) == (1, 63)
    assert second.emitted == (1,)


def test_replica_serves_prompts_in_the_order_of_arrival(engine: Engine) -> None:
    sim = ReplicaSim(engine())
    for key, at_ps in ((1, 30), (2, 10), (3, 10)):
        sim.submit(request(key, 50, 1), at_ps)

    steps = sim.step_until(FOREVER_PS)

    assert [key for s in steps for key in s.finished] == [2, 3, 1]


def test_replica_counts_an_arrival_at_the_very_end_of_a_step_in_the_next(engine: Engine) -> None:
    sim = ReplicaSim(engine())
    sim.submit(request(1, 10, 5), 0)
    ends_ps = sim.step_until(50) or sim.next_at_ps()
    assert isinstance(ends_ps, int)
    sim.submit(request(2, 10, 5), ends_ps - 50)  # its front end is over at that instant

    steps = sim.step_until(FOREVER_PS)

    assert steps[1].began_at_ps == ends_ps
    assert steps[1].admitted == (2,)


def test_replica_always_computes_the_last_prompt_token_when_all_is_cached(engine: Engine) -> None:
    sim = ReplicaSim(engine())
    sim.submit(request(1, 50, 2, cached=50), 0)

    steps = sim.step_until(50)
    blocks = sim.kv_used_blocks
    steps += sim.step_until(FOREVER_PS)

    assert steps[0].prefill_tokens == 1
    assert blocks == 4  # a hit saves time, not memory: 50 + 1 tokens


def test_replica_rejects_what_can_never_fit(engine: Engine) -> None:
    sim = ReplicaSim(engine(kv_capacity_tokens=100, max_context_tokens=5000))  # 6 blocks, 96 tokens

    assert not sim.submit(request(1, 90, 7), 0)
    assert sim.submit(request(2, 90, 6), 0)
    assert [s.finished for s in sim.step_until(FOREVER_PS)][-1] == (2,)


@pytest.mark.parametrize(("prompt", "output", "cached"), [(0, 1, 0), (1, 0, 0), (-1, 1, 0), (1, 1, -1)])
def test_replica_refuses_lengths_that_are_none(engine: Engine, prompt: int, output: int, cached: int) -> None:
    with pytest.raises(ValueError, match="request 1"):
        ReplicaSim(engine()).submit(request(1, prompt, output, cached), 0)


def test_replica_refuses_a_key_that_is_live(engine: Engine) -> None:
    sim = ReplicaSim(engine())
    sim.submit(request(1, 1, 1), 0)
    with pytest.raises(ValueError, match="already"):
        sim.submit(request(1, 1, 1), 0)


def test_replica_preempts_the_newest_to_the_head_of_the_queue_and_recomputes(engine: Engine) -> None:
    # Four blocks. Two prompts of 16 take two each (one token ahead); the third waits. When the older ones outgrow 32
    # tokens there is no block left.
    sim = ReplicaSim(engine(kv_capacity_tokens=64, max_context_tokens=64))
    sim.submit(request(1, 16, 20), 0)
    sim.submit(request(2, 16, 20), 0)
    sim.submit(request(3, 16, 2), 0)

    steps = sim.step_until(FOREVER_PS)

    (preempting,) = [s for s in steps if s.preempted]
    assert preempting.preempted == (2,)
    back = next(s for s in steps if s.began_at_ps > preempting.began_at_ps and 2 in s.admitted)
    # 17 tokens were out: prompt and answer so far are computed again, and 3 stays behind it.
    assert back.prefill_tokens == 16 + 17
    assert back.emitted == (2,)
    assert next(s for s in steps if 3 in s.admitted).began_at_ps >= back.began_at_ps
    assert Counter(key for s in steps for key in s.emitted) == {1: 20, 2: 20, 3: 2}


def test_replica_frees_the_kv_of_an_aborted_request_at_once(engine: Engine) -> None:
    sim = ReplicaSim(engine())
    sim.submit(request(1, 40, 50), 0)
    sim.submit(request(2, 40, 3), 0)
    sim.step_until(50)
    ends_ps = sim.next_at_ps()

    assert sim.abort(1)
    assert not sim.abort(1)

    assert sim.next_at_ps() == ends_ps  # the step in progress cannot be called back
    steps = sim.step_until(FOREVER_PS)
    assert {key for s in steps for key in s.emitted} == {2}
    assert sim.kv_used_blocks == 0


def test_replica_forgets_a_request_aborted_before_it_was_scheduled(engine: Engine) -> None:
    sim = ReplicaSim(engine(max_sequences=1))
    sim.submit(request(1, 10, 2), 0)
    sim.submit(request(2, 10, 2), 0)
    sim.submit(request(3, 10, 2), 5)
    assert sim.abort(3)  # still in the front end
    sim.step_until(50)
    assert sim.waiting(50) == 1
    assert sim.abort(2)  # waiting
    assert [s.emitted for s in sim.step_until(FOREVER_PS)] == [(1,), (1,)]


def test_replica_counts_late_arrivals_as_waiting(engine: Engine) -> None:
    sim = ReplicaSim(engine())
    sim.submit(request(1, 10, 9), 0)
    sim.step_until(50)
    sim.submit(request(2, 10, 9), 10)

    assert (sim.waiting(59), sim.waiting(60)) == (0, 1)


loads = st.lists(
    st.tuples(st.integers(0, 20_000), st.integers(1, 150), st.integers(1, 60), st.integers(0, 150)),
    min_size=1,
    max_size=25,
)
shapes = st.fixed_dictionaries(
    {
        "kv_capacity_tokens": st.integers(64, 700),
        "token_budget": st.integers(8, 128),
        "max_sequences": st.integers(1, 8),
        "block_tokens": st.sampled_from([1, 16]),
    }
)
relaxed = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def run(profile: EngineProfile, load: list[tuple[int, int, int, int]]) -> tuple[list[Step], list[int], ReplicaSim]:
    sim = ReplicaSim(profile)
    rejected = [
        key for key, (at_ps, p, o, hit) in enumerate(load) if not sim.submit(request(key, p, o, min(hit, p)), at_ps)
    ]
    return sim.step_until(FOREVER_PS), rejected, sim


@relaxed
@given(load=loads, shape=shapes)
def test_replica_makes_every_token_asked_for_and_loses_none(
    engine: Engine, load: list[tuple[int, int, int, int]], shape: dict[str, int]
) -> None:
    steps, rejected, sim = run(engine(**shape), load)

    made = Counter(key for s in steps for key in s.emitted)
    finished = [key for s in steps for key in s.finished]
    assert made == {key: o for key, (_, _, o, _) in enumerate(load) if key not in rejected}
    assert sorted(finished + rejected) == list(range(len(load)))
    assert (sim.live, sim.running, sim.kv_used_blocks) == (0, 0, 0)


@relaxed
@given(load=loads, shape=shapes)
def test_replica_never_exceeds_kv_or_batch_or_budget(
    engine: Engine, load: list[tuple[int, int, int, int]], shape: dict[str, int]
) -> None:
    profile = engine(**shape)
    sim = ReplicaSim(profile)
    for key, (at_ps, p, o, hit) in enumerate(load):
        sim.submit(request(key, p, o, min(hit, p)), at_ps)
    while (next_ps := sim.next_at_ps()) is not None:
        for step in sim.step_until(next_ps):
            assert 1 <= step.decode_tokens + step.prefill_tokens <= profile.token_budget
            assert len(step.emitted) <= profile.max_sequences
        assert 0 <= sim.kv_used_blocks <= profile.kv_blocks
        assert sim.running <= profile.max_sequences


@relaxed
@given(load=loads, shape=shapes, pace=st.integers(7, 5_000))
def test_replica_steps_the_same_however_often_it_is_asked(
    engine: Engine, load: list[tuple[int, int, int, int]], shape: dict[str, int], pace: int
) -> None:
    profile = engine(**shape)
    at_once, _, _ = run(profile, load)

    # As the twin does: requests come while it runs, and the loop asks "what is done by now?" at odd moments.
    sim = ReplicaSim(profile)
    paced: list[Step] = []
    now_ps = 0
    todo = sorted(range(len(load)), key=lambda key: load[key][0])
    while todo or sim.next_at_ps() is not None:
        while todo and load[todo[0]][0] <= now_ps:
            key = todo.pop(0)
            at_ps, p, o, hit = load[key]
            sim.submit(request(key, p, o, min(hit, p)), at_ps)
        paced += sim.step_until(now_ps)
        now_ps += min(pace, profile.front_end_ps)  # no arrival is seen later than its front end ends

    assert paced == at_once


@relaxed
@given(load=loads, shape=shapes)
def test_replica_is_deterministic_and_its_steps_follow_each_other(
    engine: Engine, load: list[tuple[int, int, int, int]], shape: dict[str, int]
) -> None:
    first, _, _ = run(engine(**shape), load)
    second, _, _ = run(engine(**shape), load)

    assert first == second
    for before, after in pairwise(first):
        assert before.began_at_ps < before.ended_at_ps <= after.began_at_ps


@relaxed
@given(prompt=st.integers(1, 900), more=st.integers(1, 99), output=st.integers(1, 50))
def test_replica_takes_no_less_time_for_more_prompt_tokens(engine: Engine, prompt: int, more: int, output: int) -> None:
    profile = engine(max_context_tokens=2000)
    short, _, _ = run(profile, [(0, prompt, output, 0)])
    long, _, _ = run(profile, [(0, prompt + more, output, 0)])

    assert long[-1].ended_at_ps > short[-1].ended_at_ps
