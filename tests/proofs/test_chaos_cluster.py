"""What the chaos on a cluster asks of its servers waits for those that are away, and mends what was broken off."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from chaos_cluster import SLOT, TAG
from servers import Cluster, wait_until

KEYS = [f"{{{TAG}}}:{number}" for number in range(3)]


@pytest.fixture(scope="module")
def cluster(redis_binary: str) -> Iterator[Cluster]:
    with Cluster(redis_binary, node_timeout=2000) as made:
        yield made


def is_whole(cluster: Cluster) -> bool:
    return cluster.is_whole() and cluster.is_settled()


def test_a_cluster_is_not_whole_while_a_server_is_away(cluster: Cluster) -> None:
    owner = cluster.owner(SLOT)
    owner.kill()
    assert not is_whole(cluster)
    wait_until(lambda: cluster.owner(SLOT, but=owner) is not owner)
    owner.start()
    assert cluster.owner(SLOT)
    wait_until(lambda: is_whole(cluster))


def test_a_primary_without_a_replica_fails_over_once_it_has_one(cluster: Cluster) -> None:
    owner = cluster.owner(SLOT)
    with owner.client() as client:
        port = client.info("replication")["slave0"]["port"]
        replica = next(each for each in cluster.servers if each.port == port)
        replica.kill()
        wait_until(lambda: "slave0" not in client.info("replication"))
    replica.start()
    cluster.fail_over(owner)
    wait_until(lambda: cluster.owner(SLOT, but=owner) is replica, "all know of the new primary")
    wait_until(lambda: is_whole(cluster))


def test_a_move_that_was_broken_off_leaves_all_keys_in_one_place(cluster: Cluster) -> None:
    source = cluster.owner(SLOT)
    with source.client() as client:
        client.mset(dict.fromkeys(KEYS, "x"))
    to = cluster.other(source)
    cluster.begin_move(SLOT, to)
    cluster.move_keys(source, to, KEYS[:2])
    cluster.mend_move(SLOT)
    assert (sorted(cluster.keys_in(source, SLOT)), cluster.keys_in(to, SLOT)) == (KEYS, [])
    cluster.move(SLOT)
    assert sorted(cluster.keys_in(to, SLOT)) == KEYS
