"""The configuration channel between our ADS server and a real Envoy."""

import asyncio
import copy
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.gateway.harness import address_of, ask, replica, running_gateway, running_upstreams, service
from tests.policies import MODEL

from tidegate.actuate.envoy_proto import EncodingError
from tidegate.actuate.xds import AdsServer
from tidegate.app.servers import Server, free_port
from tidegate.gateway.bootstrap import bootstrap
from tidegate.gateway.content import CLUSTER, ENDPOINTS, ROUTES
from tidegate.gateway.snapshot import snapshot_of
from tidegate.terms.errors import BadInputError
from tidegate.terms.fleet import PoolKey


async def until_version(ads: AdsServer, version: str) -> None:
    assert await ads.wait_acked(version, 15.0), ads.status()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(15):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in another process
            await asyncio.sleep(0.02)


async def test_a_refused_endpoint_set_keeps_the_last_good_one_and_says_why(
    envoy_factory: Callable[..., Server], workdir: Path
) -> None:
    with running_upstreams(workdir, "a") as (a,):
        async with running_gateway(envoy_factory, workdir) as gateway:
            good = await gateway.publish(replica("a", address_of(a)))
            resources = {k: dict(v) for k, v in gateway.snapshot(replica("a", address_of(a))).resources.items()}
            resources = copy.deepcopy(resources)
            host = resources[ENDPOINTS]["chat/main"]["endpoints"][0]["lb_endpoints"][0]
            host["load_balancing_weight"] = 0  # Envoy demands 1 or more
            bad = snapshot_of(resources)
            gateway.ads.publish(bad)
            assert not await gateway.ads.wait_acked(bad.version, 1.0)
            (status,) = gateway.ads.status().gateways
            (refusal,) = status.refused
            assert (refusal.name, refusal.kept_version is not None) == ("chat/main", True)
            assert "LoadBalancingWeight" in refusal.reason
            assert status.has_version == good
            assert (await gateway.ask({"model": MODEL})).status == 200
            again = await gateway.publish(replica("a2", address_of(a)))
            (status,) = gateway.ads.status().gateways
            assert (status.refused, status.has_version) == ((), again)


async def test_of_several_clusters_only_the_bad_one_is_refused_and_routes_wait(
    envoy_factory: Callable[..., Server], workdir: Path
) -> None:
    with running_upstreams(workdir, "a") as (a,):
        async with running_gateway(envoy_factory, workdir) as gateway:
            await gateway.publish(replica("a", address_of(a)))
            gateway.policies = (service(), service("two", "m-2"), service("three", "m-3"))
            resources = {k: dict(v) for k, v in gateway.snapshot(replica("a", address_of(a))).resources.items()}
            # Envoy itself checks that a timeout is positive; our descriptors do not.
            resources[CLUSTER]["two/main"] = {**resources[CLUSTER]["two/main"], "connect_timeout": "0s"}
            bad = snapshot_of(resources)
            gateway.ads.publish(bad)
            assert not await gateway.ads.wait_acked(bad.version, 1.0)
            (status,) = gateway.ads.status().gateways
            assert [r.name for r in status.refused] == ["two/main"]
            assert (await gateway.ask({"model": MODEL})).status == 200
            assert (await gateway.ask({"model": "m-3"})).status == 404  # its route waits for a consistent snapshot
            three = replica("b", address_of(a), PoolKey(service="three", pool="main"))
            await gateway.publish(replica("a", address_of(a)), three)
            assert (await gateway.ask({"model": "m-3"})).status == 200


async def test_services_are_added_and_removed_without_a_failed_request(
    envoy_factory: Callable[..., Server], workdir: Path
) -> None:
    with running_upstreams(workdir, "a") as (a,):
        async with running_gateway(envoy_factory, workdir) as gateway:
            one = replica("a", address_of(a))
            two = replica("b", address_of(a), PoolKey(service="two", pool="main"))
            await gateway.publish(one)
            statuses: list[int] = []
            stop = asyncio.Event()

            async def keep_asking() -> None:
                while not stop.is_set():
                    statuses.append((await gateway.ask({"model": MODEL})).status)

            asking = asyncio.create_task(keep_asking())
            for _ in range(5):
                gateway.policies = (service(), service("two", "m-2"))
                await gateway.publish(one, two)
                assert (await gateway.ask({"model": "m-2"})).status == 200
                gateway.policies = (service(),)
                await gateway.publish(one)
                assert (await gateway.ask({"model": "m-2"})).status == 404
            stop.set()
            await asking
            assert set(statuses) == {200}
            assert await gateway.stat("envoy_cluster_manager_active_clusters") == 2.0  # ours and the ADS cluster


async def test_traffic_goes_on_without_the_ads_server_and_a_new_one_is_obeyed(
    envoy_factory: Callable[..., Server], workdir: Path
) -> None:
    with running_upstreams(workdir, "a", "b") as (a, b):
        async with running_gateway(envoy_factory, workdir) as gateway:
            await gateway.publish(replica("a", address_of(a)))
            await gateway.ads.stop()
            assert [(await gateway.ask({"model": MODEL})).status for _ in range(5)] == [200] * 5
            updates = await gateway.stat("envoy_cluster_manager_cds_update_success")
            gateway.ads = AdsServer("127.0.0.1", gateway.ads_port)
            await gateway.ads.start()
            try:
                same = gateway.snapshot(replica("a", address_of(a)))
                gateway.ads.publish(same)
                await until_version(gateway.ads, same.version)
                # Envoy said what it has, so nothing was sent again.
                assert await gateway.stat("envoy_cluster_manager_cds_update_success") == updates
                await gateway.publish(replica("b", address_of(b)))
                assert (await gateway.ask({"model": MODEL})).json()["upstream"] == "b"
            finally:
                await gateway.ads.stop()


async def test_an_envoy_started_again_gets_everything(envoy_factory: Callable[..., Server], workdir: Path) -> None:
    with running_upstreams(workdir, "a") as (a,):
        async with running_gateway(envoy_factory, workdir) as gateway:
            version = await gateway.publish(replica("a", address_of(a)))
            gateway.envoy.kill()
            boot = bootstrap(
                ads_host="127.0.0.1", ads_port=gateway.ads_port, admin_port=gateway.admin_port, node_id="gateway-0"
            )
            again = envoy_factory(bootstrap=boot, wait=False)
            await asyncio.to_thread(again.wait_ready)
            await until_version(gateway.ads, version)
            assert (await gateway.ask({"model": MODEL})).status == 200
            assert len(gateway.ads.status().gateways) == 1


async def test_several_gateways_are_fed_and_acknowledged_one_by_one(
    envoy_factory: Callable[..., Server], workdir: Path
) -> None:
    async with running_gateway(envoy_factory, workdir) as gateway:
        # Both will get one listener; Envoys on one machine may share its port.
        boot = bootstrap(ads_host="127.0.0.1", ads_port=gateway.ads_port, admin_port=free_port(), node_id="gateway-1")
        second = envoy_factory(bootstrap=boot, wait=False)
        await asyncio.to_thread(second.wait_ready)
        version = await gateway.publish(replica("a", "127.0.0.1:9"))
        await until(lambda: len(gateway.ads.status().gateways) == 2)
        await until_version(gateway.ads, version)
        assert [(g.node_id, g.has_version) for g in gateway.ads.status().gateways] == [
            ("gateway-0", version),
            ("gateway-1", version),
        ]
        second.stop()
        await until(lambda: not all(g.connected for g in gateway.ads.status().gateways))
        # One that is just gone may still be serving what it had: a change is not acknowledged by all.
        gateway.ads.publish(gateway.snapshot())
        assert not await gateway.ads.wait_acked(gateway.snapshot().version, 0.5)


async def test_publishing_equal_content_sends_nothing(envoy_factory: Callable[..., Server], workdir: Path) -> None:
    async with running_gateway(envoy_factory, workdir) as gateway:
        await gateway.publish(replica("a", "127.0.0.1:9"))
        before = (
            await gateway.stat("envoy_control_plane_connected_state"),
            await gateway.stat("envoy_cluster_manager_cds_update_attempt"),
        )
        for _ in range(20):
            gateway.ads.publish(gateway.snapshot(replica("a", "127.0.0.1:9")))
        assert gateway.ads.acked()
        after = (
            await gateway.stat("envoy_control_plane_connected_state"),
            await gateway.stat("envoy_cluster_manager_cds_update_attempt"),
        )
        assert before == after


async def test_a_port_in_use_is_named() -> None:
    first = AdsServer("127.0.0.1", port := free_port())
    await first.start()
    try:
        with pytest.raises(BadInputError, match=rf"127\.0\.0\.1:{port}: cannot listen there"):
            await AdsServer("127.0.0.1", port).start()
    finally:
        await first.stop()


async def test_a_resource_that_fits_no_message_is_refused_before_it_is_sent(
    envoy_factory: Callable[..., Server], workdir: Path
) -> None:
    async with running_gateway(envoy_factory, workdir) as gateway:
        good = await gateway.publish()
        resources = {k: dict(v) for k, v in gateway.snapshot().resources.items()}
        resources[ROUTES]["tidegate"] = {**resources[ROUTES]["tidegate"], "no_such_field": 1}
        with pytest.raises(EncodingError, match=r"RouteConfiguration tidegate: .*no_such_field"):
            gateway.ads.publish(snapshot_of(resources))
        assert gateway.ads.status().version == good
        assert gateway.ads.acked(good)
        assert (await ask(gateway.port, method="GET", path="/v1/models")).status == 200
