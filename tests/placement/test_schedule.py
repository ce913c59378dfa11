"""Placement: never over capacity, gangs whole or not at all, compact no wider than spread."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.placement.cluster import Assignment, Cluster, Request, cluster_of
from tidegate.placement.schedule import Placement, Refusal, fill, place
from tidegate.placement.score import Strategy
from tidegate.placement.topology import domains, labelled_ratio
from tidegate.terms.fleet import Membership, PoolKey, Replica, ReplicaState
from tidegate.terms.observation import NodeInventory

POOL = PoolKey(service="chat", pool="main")
OTHER = PoolKey(service="code", pool="main")


def node(name: str, gpus: int, domain: str = "", accelerator: str = "a100") -> NodeInventory:
    return NodeInventory(name=name, accelerator=accelerator, gpus=gpus, topology_domain=domain)


def ask(count: int, gpus: int = 1, *, gang: str = "", accelerator: str = "", pool: PoolKey = POOL) -> list[Request]:
    return [Request(replica=f"r{i}", pool=pool, gpus=gpus, gang=gang, accelerator=accelerator) for i in range(count)]


def nodes_used(placement: Placement | Refusal) -> set[str]:
    assert isinstance(placement, Placement), placement
    return {a.node for a in placement.assignments}


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    sizes = draw(st.lists(st.sampled_from([1, 2, 4, 8]), min_size=1, max_size=6))
    nodes = tuple(node(f"n{i}", gpus, draw(st.sampled_from(["", "rack-a", "rack-b"]))) for i, gpus in enumerate(sizes))
    taken = []
    for index, gpus in enumerate(sizes):
        held = draw(st.integers(0, gpus))
        pool = draw(st.sampled_from([POOL, OTHER]))
        taken += [Assignment(replica=f"t{index}.{k}", pool=pool, node=f"n{index}", gpus=1) for k in range(held)]
    return Cluster(nodes=nodes, taken=tuple(taken))


@st.composite
def requests(draw: st.DrawFn) -> list[Request]:
    sizes = draw(st.lists(st.sampled_from([1, 2, 4, 8]), min_size=0, max_size=8))
    return [
        Request(
            replica=f"r{i}", pool=draw(st.sampled_from([POOL, OTHER])), gpus=g, gang=draw(st.sampled_from(["", "g"]))
        )
        for i, g in enumerate(sizes)
    ]


@settings(deadline=None)
@given(clusters(), requests(), st.sampled_from(Strategy))
def test_fill_never_exceeds_a_node_and_keeps_gangs_whole(
    cluster: Cluster, wanted: list[Request], strategy: Strategy
) -> None:
    filling = fill(wanted, cluster, strategy)
    used: Counter[str] = Counter()
    for placement in filling.placements:
        for one in placement.assignments:
            used[one.node] += one.gpus
    free = cluster.free_gpus()
    assert all(used[name] <= free[name] for name in used)
    placed = set(filling.nodes())
    refused = {name for r in filling.refusals for name in r.replicas}
    assert placed | refused == {r.replica for r in wanted}
    assert not placed & refused
    gang = {r.replica for r in wanted if r.gang}
    assert gang <= placed or not gang & placed


@settings(deadline=None)
@given(clusters(), requests())
def test_compact_uses_no_more_nodes_than_spread_and_refuses_the_same(cluster: Cluster, wanted: list[Request]) -> None:
    compact = place(wanted, cluster, Strategy.COMPACT)
    spread = place(wanted, cluster, Strategy.SPREAD)
    assert isinstance(compact, Placement) == isinstance(spread, Placement)
    if isinstance(compact, Placement):
        assert len(nodes_used(compact)) <= len(nodes_used(spread))


@settings(deadline=None)
@given(clusters(), requests(), st.sampled_from(Strategy))
def test_placement_does_not_depend_on_the_order_of_the_inventory(
    cluster: Cluster, wanted: list[Request], strategy: Strategy
) -> None:
    turned = Cluster(nodes=tuple(reversed(cluster.nodes)), taken=tuple(reversed(cluster.taken)))
    assert place(wanted, turned, strategy) == place(wanted, cluster, strategy)


@settings(deadline=None)
@given(clusters(), st.integers(1, 12), st.sampled_from([1, 2, 4]), st.sampled_from(Strategy))
def test_equal_replicas_are_placed_exactly_when_enough_slots_are_free(
    cluster: Cluster, count: int, gpus: int, strategy: Strategy
) -> None:
    slots = sum(free // gpus for free in cluster.free_gpus().values())
    assert isinstance(place(ask(count, gpus), cluster, strategy), Placement) == (count <= slots)


def test_spread_puts_one_replica_in_each_domain_before_a_second() -> None:
    cluster = Cluster(nodes=(node("a1", 8, "a"), node("a2", 8, "a"), node("b1", 2, "b"), node("c1", 1)))
    assert nodes_used(place(ask(3), cluster, Strategy.SPREAD)) == {"a1", "b1", "c1"}


def test_compact_fills_one_node_of_the_tightest_domain() -> None:
    cluster = Cluster(nodes=(node("a1", 8, "a"), node("a2", 8, "a"), node("b1", 4, "b")))
    assert nodes_used(place(ask(4), cluster, Strategy.COMPACT)) == {"b1"}


def test_compact_keeps_a_gang_inside_one_domain_when_one_is_large_enough() -> None:
    cluster = Cluster(nodes=(node("a1", 2, "a"), node("a2", 2, "a"), node("b1", 2, "b"), node("b2", 1, "b")))
    assert nodes_used(place(ask(2, 2, gang="g"), cluster, Strategy.COMPACT)) == {"a1", "a2"}


def test_unlabelled_nodes_are_leaf_domains_of_their_own_and_flagged() -> None:
    nodes = (node("x", 1), node("y", 1), node("a1", 1, "rack"))
    assert [(d.name, d.labelled) for d in domains(nodes)] == [("rack", True), ("node/x", False), ("node/y", False)]
    assert labelled_ratio(nodes) == pytest.approx(1 / 3)
    placed = place(ask(3), Cluster(nodes=nodes), Strategy.SPREAD)
    assert isinstance(placed, Placement)
    assert placed.unlabelled_nodes == ("x", "y")


def test_refusal_says_what_is_asked_and_what_is_free() -> None:
    cluster = Cluster(nodes=(node("a1", 2), node("a2", 2)))
    refused = place(ask(5), cluster, Strategy.SPREAD)
    assert isinstance(refused, Refusal)
    assert refused.reason == "5 replica(s) need 5 GPU(s); 4 of 4 are free"
    wide = place(ask(1, 4), cluster, Strategy.SPREAD)
    assert isinstance(wide, Refusal)
    assert wide.reason == "1 replica(s) need 4 GPU(s), 4 on one node; 4 are free, at most 2 on one node"


def test_accelerator_must_match() -> None:
    cluster = Cluster(nodes=(node("a1", 2, accelerator="h100"), node("a2", 1)))
    assert nodes_used(place(ask(2, accelerator="h100"), cluster, Strategy.SPREAD)) == {"a1"}
    refused = place(ask(1, accelerator="b200"), cluster, Strategy.SPREAD)
    assert isinstance(refused, Refusal)
    assert refused.reason == "no node of b200; the inventory has a100, h100"


def test_draining_and_failed_replicas_hold_their_gpus_until_gone() -> None:
    held = tuple(
        Replica(name=s.value, pool=POOL, state=s, node="a1", ordered_at_s=0.0)
        for s in (ReplicaState.DRAINING, ReplicaState.FAILED)
    )
    members = Membership(taken_at_s=1.0, replicas=held)
    cluster = cluster_of((node("a1", 3),), members, {POOL: 1})
    assert cluster.free_gpus() == {"a1": 1}
    assert isinstance(place(ask(2), cluster, Strategy.COMPACT), Refusal)


def test_asking_for_one_name_twice_is_a_bug_of_the_caller() -> None:
    cluster = Cluster(nodes=(node("a1", 3),))
    with pytest.raises(ValueError, match="unique"):
        place([*ask(1), *ask(1)], cluster, Strategy.SPREAD)
    with pytest.raises(ValueError, match="unique"):
        Cluster(nodes=(node("a1", 3), node("a1", 3)))
