"""A life in each object store: segments are copied, read, checked, and bring a lost cluster of three nodes back."""

from __future__ import annotations

import asyncio

import pytest

from penstock.model.ids import format_uuid
from penstock.testing import Cluster
from support.object_stores import Store
from support.tier_cluster import TIERED, eventually, fill, local_bytes, read_all, tier_missing, tier_settings
from support.tier_restore import (
    COMMITTED,
    LATEST,
    LATEST_TIERED,
    UNCOMMITTED,
    lose_everything,
    numbered,
    offset,
    tier,
    topic_id,
    value,
    write_transactions,
)

MISSING = tier_missing()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(MISSING is not None, reason=MISSING or ""),
    # The store may be fetched first.
    pytest.mark.timeout(900),
]
LOCAL_BYTES_MAX = 20_000 + 2 * 16_384
TRANSACTIONS, RECORDS, MORE = 10, 1000, 500


def check_sound(cluster: Cluster, store: Store) -> None:
    found, _ = tier("verify", "-b", cluster.bootstrap_servers, *store.arguments)
    assert (found["problems"], found["orphans"]) == ([], [])


def check_orphan_is_cleaned(cluster: Cluster, store: Store, topic: str) -> None:
    cluster_id = tier("list", *store.arguments)[0][0]["cluster_id"]
    directory = f"{cluster_id}/{topic}/{format_uuid(topic_id(cluster, topic))}/0"
    asyncio.run(store.open().put(f"{directory}/00000000000000000007-AAAAAAAAAAAAAAAAAAAAAQ.log", b"left behind"))

    def is_cleaned() -> bool:
        # Stores tell times in whole seconds: what was just written may be from the future.
        found, _ = tier("verify", "-b", cluster.bootstrap_servers, *store.arguments, "--clean", "--grace", "0")
        assert found["problems"] == []
        return bool(found["removed"] == 1)

    eventually(is_cleaned)


def test_a_life_in_the_store(store: Store) -> None:
    settings = {
        **tier_settings(store.url, nodes=3, **store.options),
        "min.insync.replicas": "2",
        "transaction.state.log.num.partitions": "1",
    }
    with Cluster(settings, nodes=3, start_timeout_s=60) as cluster:
        servers = cluster.bootstrap_servers
        topic = cluster.create_topic(configs=dict(TIERED), replication_factor=3)
        write_transactions(servers, topic, TRANSACTIONS)
        fill(servers, topic, numbered(0, RECORDS))
        eventually(lambda: local_bytes(cluster, topic) <= 3 * LOCAL_BYTES_MAX, 60)
        written = offset(cluster, topic, LATEST)
        everything = read_all(servers, topic, written, **UNCOMMITTED)
        committed = read_all(servers, topic, written, **COMMITTED)
        # Transactions end with a record of their own, and half of them are aborted.
        assert (written, len(everything)) == (TRANSACTIONS * 51 + RECORDS, TRANSACTIONS * 50 + RECORDS)
        assert len(committed) == TRANSACTIONS // 2 * 50 + RECORDS
        check_orphan_is_cleaned(cluster, store, topic)
        check_sound(cluster, store)
        known_id, end = topic_id(cluster, topic), offset(cluster, topic, LATEST_TIERED) + 1
        assert end > RECORDS
        # With another id, objects are copied within the store.
        cluster_id = tier("list", *store.arguments)[0][0]["cluster_id"]
        lose_everything(cluster, None if store.has_copy else cluster_id)

        (row,), _ = tier("restore", "-b", servers, *store.arguments)
        assert (row["offsets"], row["problems"]) == ([[0, end]], [])
        assert topic_id(cluster, topic) == known_id
        assert offset(cluster, topic, LATEST) == end
        everything = [one for one in everything if one[0] < end]
        assert read_all(servers, topic, end, **UNCOMMITTED) == everything
        assert read_all(servers, topic, end, **COMMITTED) == [one for one in committed if one[0] < end]
        fill(servers, topic, numbered(RECORDS, RECORDS + MORE))
        more = [(end + number, value(RECORDS + number)) for number in range(MORE)]
        assert read_all(servers, topic, end + MORE, **UNCOMMITTED) == everything + more
        check_sound(cluster, store)
