"""An error that no code expects is the matter of one replica."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from replication_world import Cluster, in_cluster

from penstock.config.topic import broker_defaults
from penstock.core.metadata.image import Image, PartitionState, partition_record
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.env import SystemEnv
from penstock.runtime.logs.directories import open_directory
from penstock.runtime.replication import fetcher
from penstock.runtime.replication import partitions as partitions_module
from penstock.runtime.replication.partitions import Partitions
from penstock.runtime.replication.replica_store import Placement
from penstock.storage.files import StorageError
from penstock.storage.settings import LogSettings
from penstock.wire.messages.metadata_records import PartitionChangeRecord, TopicRecord

TOPIC_ID, DIRECTORY = b"t" * 16, b"d" * 16
COUNT = 3


def play(path: Path, story: Callable[[Partitions, list[Any]], None]) -> None:
    async def run() -> None:
        env, image, problems = SystemEnv(), Image(), []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context["exception"]))
        state = PartitionState((1,), (1,), 1, 0, 0, (DIRECTORY,))
        image.replay(TopicRecord("orders", TOPIC_ID))
        for index in range(COUNT):
            image.replay(partition_record(TOPIC_ID, index, state))
        directory = open_directory(env, path, DIRECTORY)
        partitions = Partitions(env, 1, image, lambda: broker_defaults({}), [directory], 1 << 20)
        try:
            story(partitions, problems)
        finally:
            await partitions.close_all()
            await env.close()

    asyncio.run(run())


def test_a_replica_that_cannot_be_opened_for_whatever_reason_is_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = Placement.open

    def wrong(placement: Placement, settings: LogSettings) -> Any:
        if placement.name.partition == 1:
            raise KeyError("a bug")
        return right(placement, settings)

    monkeypatch.setattr(Placement, "open", wrong)

    def story(partitions: Partitions, problems: list[Any]) -> None:
        told: list[tuple[bytes, int]] = []
        partitions.on_unopened(lambda *which: told.append(which))
        partitions.open_all()
        assert [partition.name.partition for partition in partitions] == [0, 2]
        assert told == [(TOPIC_ID, 1)], "so that others lead it"
        with pytest.raises(ApiError, match="a bug") as caught:
            partitions.lookup("orders", TOPIC_ID, 1, by_id=True)
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert not problems

    play(tmp_path, story)


def test_a_replica_that_cannot_take_its_role_holds_up_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions_module, "ADOPT_AGAIN_S", 3600)
    right = Partitions._assign_role
    error = ZeroDivisionError("a bug")

    def wrong(self: Partitions, partition: Any, known: PartitionState) -> None:
        if partition.name.partition == 1 and known.leader_epoch == 1:
            raise error
        right(self, partition, known)

    monkeypatch.setattr(Partitions, "_assign_role", wrong)

    def story(partitions: Partitions, problems: list[Any]) -> None:
        partitions.open_all()
        changes = [PartitionChangeRecord(index, TOPIC_ID, leader=1) for index in range(COUNT)]
        for change in changes:
            partitions.image.replay(change)
        partitions.follow(changes)
        assert [partition.leader_epoch for partition in partitions] == [1, 0, 1]
        assert problems == [error]

    play(tmp_path, story)


def test_a_truncation_that_fails_unexpectedly_fails_its_log_alone(tmp_path: Path) -> None:
    def story(partitions: Partitions, _: list[Any]) -> None:
        partitions.open_all()
        partition = partitions.get("orders", 1)
        assert partition is not None

        def steps() -> Iterator[int]:
            raise KeyError("a bug")
            yield 0

        work = partitions.carry_out(partition, steps())
        with pytest.raises(StorageError, match="a bug"):
            work.send(None)
        assert not partition.is_truncating, "the metadata counts again"
        assert [one.log.is_failed for one in partitions] == [False, True, False]

    play(tmp_path, story)


def test_a_follower_continues_after_an_error_that_nobody_expected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, error = fetcher.replicate, KeyError("a bug")
    failures: list[BaseException] = []

    def wrong_once(partition: Any, *more: Any) -> None:
        if not failures:
            raise error
        right(partition, *more)

    monkeypatch.setattr(fetcher, "replicate", wrong_once)

    async def story(cluster: Cluster) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context["exception"]))
        one, two = await cluster.start(1), await cluster.start(2)
        cluster.create((1, 2))
        assert (await one.send(b"x", timeout_ms=15_000)).error_code == 0
        assert two.partition.log.end_offset == 1
        assert failures == [error]

    in_cluster(tmp_path, story)
