"""What a big cluster's metadata costs one controller: memory, a snapshot's writing and loading, a broker's failure.

    python -m bench.metadata [--topics 100000] [--partitions 10] [--brokers 3]

Everything runs in one process and touches no disk: the figures are processor time, Python's share. A failure is
decided on as the active controller does it, in bounded decisions; each one is encoded, decoded and replayed as the log
would do it.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import resource
import time
from collections.abc import Callable, Iterator
from itertools import islice
from random import Random
from types import SimpleNamespace
from typing import Any

from penstock.config.topic import TopicSettings
from penstock.core.metadata import features
from penstock.core.metadata.image import Image, new_partition, partition_record
from penstock.core.metadata.result import Result
from penstock.core.metadata.topics import TopicDefaults
from penstock.core.placement.stripe import UsableBroker, place
from penstock.runtime.controller.controller import Controller
from penstock.runtime.controller.duties import ControllerSettings
from penstock.runtime.env import SystemEnv
from penstock.runtime.raft.metadata_files import decode_batches, encode_records
from penstock.wire.messages.metadata_records import BrokerEndpoint, RegisterBrokerRecord, TopicRecord

RECORDS_PER_BATCH = 1000
REPLICATION_FACTOR = 3
RACKS = 3
LOST_BROKER = 1


def cluster_records(topics: int, partitions: int, brokers: int) -> Iterator[Any]:
    """The records of a cluster in which everything is in sync."""
    random = Random(1)
    yield from features.first_records(Image(), 2)
    directories = {}
    for broker_id in range(1, brokers + 1):
        directories[broker_id] = random.randbytes(16)
        yield RegisterBrokerRecord(
            broker_id=broker_id,
            incarnation_id=random.randbytes(16),
            broker_epoch=broker_id,
            end_points=[BrokerEndpoint("PLAINTEXT", f"broker-{broker_id}", 9092, 0)],
            rack=f"rack-{broker_id % RACKS}",
            fenced=False,
            log_dirs=[directories[broker_id]],
        )
    usable = [UsableBroker(broker_id, f"rack-{broker_id % RACKS}") for broker_id in directories]
    for number in range(topics):
        topic_id = random.randbytes(16)
        yield TopicRecord(name=f"topic-{number}", topic_id=topic_id)
        for index, replicas in enumerate(place(partitions, REPLICATION_FACTOR, usable, random)):
            places = tuple(directories[broker_id] for broker_id in replicas)
            yield partition_record(topic_id, index, new_partition(replicas, replicas, places))


def batches(records: Iterator[Any]) -> Iterator[bytes]:
    """The batches of a snapshot."""
    offset = 0
    while chunk := list(islice(records, RECORDS_PER_BATCH)):
        yield encode_records(chunk, offset, 1, 0)
        offset += len(chunk)


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """What `work` gives, and the seconds it took."""
    began = time.process_time()
    result = work()
    return result, time.process_time() - began


def resident_mb() -> float:
    """The memory of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 1e6


def load(image: Image, stored: list[bytes]) -> None:
    """What a controller does at its start."""
    for data in stored:
        for batch in decode_batches(data, "bench"):
            for record in batch.records:
                image.replay(record)


def _answer(answer: asyncio.Future[Any], response: Any) -> None:
    if not answer.done():
        answer.set_result(response)


class MeasuredQuorum:
    """A log in memory that notes how long each decision keeps the loop."""

    def __init__(self, image: Image) -> None:
        self.image = image
        self.log = SimpleNamespace(end_offset=0)
        self.blocked_s: list[float] = []
        self.records = 0
        self.leaders_moved_at = 0.0

    def decide(self, decision: Callable[[Image], Result[Any]]) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        began = time.process_time()
        records, response = decision(self.image)
        if records:
            data = encode_records(records, self.log.end_offset, 1, 0)
            self.log.end_offset += len(records)
            self.records += len(records)
            load(self.image, [data])
        self.blocked_s.append(time.process_time() - began)
        if not self.leaders_moved_at and not self.image.leader_counts.get(LOST_BROKER):
            self.leaders_moved_at = time.process_time()
        asyncio.get_running_loop().call_soon(_answer, answer, response)
        return answer


async def lose_a_broker(image: Image) -> dict[str, float]:
    """Fence one broker as the active controller does when its connection breaks."""
    env, quorum = SystemEnv(), MeasuredQuorum(image)
    settings = ControllerSettings(600_000, lost_connection_grace_ms=0, first_session_ms=600_000)
    defaults = TopicDefaults(1, 1)
    controller = Controller(
        env, quorum, defaults, TopicSettings, settings=settings, next_offset=lambda: quorum.log.end_offset
    )
    controller.on_leadership(True)
    await asyncio.sleep(0.1)
    turns: list[float] = []
    led = image.leader_counts.get(LOST_BROKER, 0)
    began = last = time.process_time()
    controller.connection_lost(LOST_BROKER, None)
    logging.getLogger("penstock.controller").setLevel(logging.ERROR)
    while not image.brokers[LOST_BROKER].fenced:
        await asyncio.sleep(0)
        now = time.process_time()
        turns.append(now - last)
        last = now
    took = time.process_time() - began
    controller.stop()
    await env.close()
    return {
        "leaders moved": led,
        "leaders moved, s": quorum.leaders_moved_at - began,
        "records": quorum.records,
        "all records, s": took,
        "decisions": len(quorum.blocked_s),
        "longest decision, ms": 1000 * max(quorum.blocked_s),
        "longest turn of the loop, ms": 1000 * max(turns),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=100_000)
    parser.add_argument("--partitions", type=int, default=10)
    parser.add_argument("--brokers", type=int, default=3)
    wanted = parser.parse_args()
    stored, encode_s = timed(lambda: list(batches(cluster_records(wanted.topics, wanted.partitions, wanted.brokers))))
    figures: dict[str, float] = {"snapshot, MB": sum(map(len, stored)) / 1e6, "made and encoded, s": encode_s}
    gc.collect()
    before_mb = resident_mb()
    image = Image()
    _, figures["loaded, s"] = timed(lambda: load(image, stored))
    gc.collect()
    figures["image, MB"] = resident_mb() - before_mb
    stored.clear()
    figures["a garbage collection, ms"] = 1000 * timed(gc.collect)[1]
    _, figures["written again, s"] = timed(lambda: sum(map(len, batches(image.snapshot()))))
    figures.update(asyncio.run(lose_a_broker(image)))
    for name, value in figures.items():
        print(f"{name:32}{value:14,.1f}")


if __name__ == "__main__":
    main()
