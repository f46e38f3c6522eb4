"""Markers that come late or twice: each ends its own transaction, and no other."""

from __future__ import annotations

from pathlib import Path

import pytest
from replication_world import Broker, Cluster, in_cluster

from penstock.core.replica.producer_state import NO_OFFSET, EndMarker, MarkerRefused
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.records import Record, build_batch


def write_in_transaction(broker: Broker, epoch: int, sequence: int = 0) -> None:
    record = Record(0, broker.env.now_ms(), b"key", b"value")
    batch = build_batch([record], producer_id=7, producer_epoch=epoch, base_sequence=sequence, transactional=True)
    broker.partition.append(bytearray(batch), broker.env.now_ms())


def test_a_marker_that_comes_late_ends_nothing_but_its_own_transaction(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one = await cluster.start(1)
        cluster.create((1,))
        partition, now_ms = one.partition, one.env.now_ms()
        commit, abort = EndMarker(False, 3), EndMarker(True, 3)
        write_in_transaction(one, 5)
        partition.append_marker(7, 6, commit, now_ms)
        partition.append_marker(7, 6, commit, now_ms)  # The coordinator missed the answer.
        write_in_transaction(one, 6)
        with pytest.raises(ApiError) as refused:
            partition.append_marker(7, 6, commit, now_ms)
        assert refused.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
        assert partition.last_stable_offset == 3, "the second transaction is still open"
        partition.append_marker(7, 7, abort, now_ms)
        assert [entry.first_offset for entry in partition.log.aborted.overlapping(0, 100)] == [3]

    in_cluster(tmp_path, story)


def test_a_marker_of_version_1_names_the_offset_where_its_transaction_began(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one = await cluster.start(1)
        cluster.create((1,))
        partition, now_ms = one.partition, one.env.now_ms()
        unsure = EndMarker(False, 3, transaction_version=1, first_offset=NO_OFFSET)
        write_in_transaction(one, 5)
        with pytest.raises(MarkerRefused) as refused:
            partition.append_marker(7, 5, unsure, now_ms)
        assert (refused.value.code, refused.value.first_offset) == (ErrorCode.CONCURRENT_TRANSACTIONS, 0)
        sure = unsure._replace(first_offset=0)
        partition.append_marker(7, 5, sure, now_ms)
        for again in (unsure, sure):
            partition.append_marker(7, 5, again, now_ms)  # The coordinator missed the answer.
        write_in_transaction(one, 5, sequence=1)
        for late in (unsure, sure):
            with pytest.raises(MarkerRefused) as refused:
                partition.append_marker(7, 5, late, now_ms)
            assert refused.value.first_offset == 4
        assert partition.last_stable_offset == 4, "the second transaction is still open"
        with pytest.raises(MarkerRefused) as refused:
            partition.append_marker(7, 5, unsure._replace(coordinator_epoch=2), now_ms)
        assert refused.value.first_offset == NO_OFFSET, "one that was replaced is told nothing"

    in_cluster(tmp_path, story)


def test_transactions_of_version_1_share_an_epoch_with_their_markers(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one = await cluster.start(1)
        cluster.create((1,))
        for sequence in range(2):
            write_in_transaction(one, 5, sequence)
            one.partition.append_marker(7, 5, EndMarker(False, 3, transaction_version=1), one.env.now_ms())
        assert one.partition.last_stable_offset == one.partition.log.end_offset == 4

    in_cluster(tmp_path, story)
