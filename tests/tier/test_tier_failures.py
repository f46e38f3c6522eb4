"""Tiered storage while things fail: leaders are killed, replicas start anew, S3 is away, slow, or loses answers."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.testing import Cluster
from support.faulty_store import HANGING_S, Fault, faulty_proxy
from support.spark.object_store import ACCESS, object_store, object_store_missing
from support.tier_cluster import (
    TIERED,
    eventually,
    fill,
    local_bytes,
    local_logs,
    read_all,
    tier_missing,
    tier_settings,
)
from support.wire_client import WireClient

MISSING = tier_missing()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=MISSING or "")

EARLIEST_LOCAL, LATEST_TIERED = -4, -5
LOCAL_BYTES_MAX = 20_000 + 2 * 16_384


def value(number: int) -> bytes:
    return f"{number:08d}".encode() * 12


def values(first: int, end: int) -> list[bytes]:
    return [value(number) for number in range(first, end)]


def numbered(end: int) -> list[tuple[int, bytes]]:
    return [(number, value(number)) for number in range(end)]


@pytest.fixture(scope="module")
def s3() -> Iterator[tuple[Cluster, Fault]]:
    reason = object_store_missing()
    if reason is not None:
        pytest.skip(reason)
    with object_store("tier") as (endpoint, _), faulty_proxy(endpoint) as (address, fault):
        settings = tier_settings(
            "s3://tier/here",
            endpoint=address,
            allow_http="true",
            access_key_id=ACCESS["AWS_ACCESS_KEY_ID"],
            secret_access_key=ACCESS["AWS_SECRET_ACCESS_KEY"],
            region=ACCESS["AWS_REGION"],
        )
        with Cluster({**settings, "penstock.tier.request.timeout.ms": str(HANGING_S * 1000)}) as running:
            yield running, fault


def test_s3_that_is_away_slows_nothing_and_loses_nothing(s3: tuple[Cluster, Fault]) -> None:
    cluster, fault = s3
    servers = cluster.bootstrap_servers
    topic = cluster.create_topic(configs=dict(TIERED))
    fill(servers, topic, values(0, 1000))
    eventually(lambda: local_bytes(cluster, topic) <= LOCAL_BYTES_MAX)
    fault.answers.clear()
    try:
        begin = time.monotonic()
        fill(servers, topic, values(1000, 2000))
        with WireClient(servers) as wire:

            def offset(time_code: int) -> int:
                return wire.list_offset(topic, time_code).offset

            # What was copied before the store went is dropped here first: read later, it would come from the store.
            eventually(lambda: offset(EARLIEST_LOCAL) == offset(LATEST_TIERED) + 1)
            local = offset(EARLIEST_LOCAL)
        assert read_all(servers, topic, 2000, local) == numbered(2000)[local:]
        # A single wait for the store would take longer.
        assert time.monotonic() - begin < HANGING_S
        assert local_bytes(cluster, topic) > LOCAL_BYTES_MAX
    finally:
        fault.answers.set()
    assert read_all(servers, topic, 2000) == numbered(2000)
    eventually(lambda: local_bytes(cluster, topic) <= LOCAL_BYTES_MAX)
    assert read_all(servers, topic, 2000) == numbered(2000)


@pytest.mark.slow
def test_s3_that_is_slow_or_loses_answers(s3: tuple[Cluster, Fault]) -> None:
    cluster, fault = s3
    servers = cluster.bootstrap_servers
    topic = cluster.create_topic(configs=dict(TIERED))
    fault.lost = 0.1
    try:
        fill(servers, topic, values(0, 1500))
        eventually(lambda: local_bytes(cluster, topic) <= LOCAL_BYTES_MAX, 60)
        fault.lost = 0.0
        # Slower than a fetch waits.
        fault.delay_s = 0.7
        assert read_all(servers, topic, 1500) == numbered(1500)
    finally:
        fault.lost = fault.delay_s = 0.0


@pytest.mark.slow
def test_leaders_that_are_killed_and_replicas_that_start_anew(tmp_path: Path) -> None:
    settings = tier_settings(f"file://{tmp_path}/bucket", nodes=3)
    with Cluster({**settings, "min.insync.replicas": "2"}, nodes=3, start_timeout_s=60) as cluster:
        servers = cluster.bootstrap_servers
        topic = cluster.create_topic(configs=dict(TIERED), replication_factor=3)
        written = 0
        for victim in cluster.node_ids:
            fill(servers, topic, values(written, written + 800))
            written += 800
            cluster.kill(victim)
            fill(servers, topic, values(written, written + 400))
            written += 400
            if victim == 2:
                # All of its replica is gone: it starts from the tier.
                shutil.rmtree(cluster.data_dir / str(victim) / f"{topic}-0")
            cluster.start(victim)
            assert read_all(servers, topic, written) == numbered(written)
        eventually(lambda: local_bytes(cluster, topic) <= 3 * LOCAL_BYTES_MAX, 60)
        eventually(lambda: {path.parent.parent.name for path in local_logs(cluster, topic)} == {"1", "2", "3"}, 60)
        # Each of them leads once, and serves everything.
        for other in cluster.node_ids:
            cluster.stop(other)
            assert read_all(servers, topic, written) == numbered(written)
            cluster.start(other)


def test_reads_take_part_in_the_loop(tmp_path: Path) -> None:
    """The library's calls are awaited, not blocked on: other work goes on meanwhile."""
    from penstock.storage.tier.object_store import RemoteStore

    async def run() -> int:
        store = RemoteStore.open(f"file://{tmp_path}", {}, 5_000)
        await store.put("a", b"x" * 1000)
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.ensure_future(count())
        for _ in range(20):
            assert await store.get_range("a", 0, 10) == b"x" * 10
        counting.cancel()
        return turns

    assert asyncio.run(run()) > 20
