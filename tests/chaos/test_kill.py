"""kill -9 at any moment: what was acknowledged is there, once and in order; what was not may be, never in pieces.

PENSTOCK_KILLS is how often the broker is killed under load (5 by default), PENSTOCK_TAIL_MB how much unsynced data
the start-up test lets it recover (100 by default).
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections import defaultdict
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, Producer

from penstock.model.errors import ErrorCode
from penstock.testing import Cluster
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.delete_topics import DeleteTopicsRequest
from penstock.wire.messages.metadata import MetadataRequest
from support.wire_client import FETCH_VERSION, WireClient, batch_of, fetch_request, records_in

KILLS = int(os.environ.get("PENSTOCK_KILLS", "5"))
TAIL_MB = int(os.environ.get("PENSTOCK_TAIL_MB", "100"))
TAIL_SECONDS_MAX = 5.0
PARTITIONS = 4
MB = 2**20


class Load(threading.Thread):
    """An idempotent producer that writes numbers to every partition, and what it was told about each."""

    def __init__(self, broker: Cluster, topic: str) -> None:
        super().__init__(name="load")
        self._topic = topic
        self._stopped = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "batch.size": 4000,
                "message.timeout.ms": 60_000,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        self.acknowledged: dict[int, dict[int, int]] = defaultdict(dict)
        self.failed: list[KafkaError] = []

    def run(self) -> None:
        number = 0
        while not self._stopped.is_set():
            try:
                self._producer.produce(
                    self._topic, b"%d" % number, partition=number % PARTITIONS, on_delivery=self._delivered
                )
                number += 1
            except BufferError:
                self._producer.poll(0.05)
            self._producer.poll(0)
            if number % 50 == 0:
                time.sleep(0.002)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(error)
            return
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        assert isinstance(value, bytes)
        self.acknowledged[partition][offset] = int(value)

    def finish(self) -> None:
        """Stop writing and wait until every record's fate is known."""
        self._stopped.set()
        self.join(30)
        assert self._producer.flush(60) == 0


def numbers_in(broker: Cluster, topic: str, partition: int) -> dict[int, int]:
    """Every record of a partition: offset and number."""
    found: dict[int, int] = {}
    with WireClient(broker.bootstrap_servers) as client:
        end = client.list_offset(topic, -1, partition=partition).offset
        offset = 0
        while offset < end:
            request = fetch_request(topic, offset, partition=partition)
            data: Any = client.call(request, FETCH_VERSION).responses[0].partitions[0]
            assert data.error_code == 0
            for record in records_in(data.records):
                found[record.offset] = int(record.value or b"")
            offset = max(found) + 1
    return found


@pytest.mark.timeout(600)
@pytest.mark.parametrize("clean", [False, True], ids=["killed", "stopped"])
def test_ended_again_and_again_under_load_nothing_acknowledged_is_lost_or_doubled(clean: bool) -> None:
    randomness = random.Random(KILLS)
    times = KILLS // 2 if clean else KILLS
    with Cluster() as broker:
        topic = broker.create_topic(partitions=PARTITIONS, configs={"segment.bytes": str(MB)})
        load = Load(broker, topic)
        load.start()
        starts = []
        for _ in range(times):
            time.sleep(randomness.uniform(0.2, 1.0))
            if clean:
                assert broker.stop()
            else:
                broker.kill()
            began = time.monotonic()
            broker.start()
            starts.append(time.monotonic() - began)
        time.sleep(0.3)
        load.finish()
        assert not load.failed, load.failed[:3]
        total = 0
        for partition in range(PARTITIONS):
            found = numbers_in(broker, topic, partition)
            acknowledged = load.acknowledged[partition]
            assert {offset: found.get(offset) for offset in acknowledged} == acknowledged, "acknowledged and lost"
            numbers = [found[offset] for offset in sorted(found)]
            assert len(set(numbers)) == len(numbers), "written twice"
            assert numbers == sorted(numbers), "out of order"
            total += len(acknowledged)
        assert total > 100 * times
        assert "Traceback" not in broker.logs()
        sys.stderr.write(f"{times} ends, {total} acknowledged records, slowest restart {max(starts):.2f} s\n")


def test_sequences_survive_a_kill() -> None:
    """The same batch again is the same offset again; a later one is refused; the next one is taken."""
    with Cluster() as broker:
        topic = broker.create_topic()

        def batch(sequence: int) -> bytes:
            values = [b"%d" % (sequence + index) for index in range(3)]
            return batch_of(values, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)

        with WireClient(broker.bootstrap_servers) as client:
            producer_id = client.new_producer_id()
            for sequence in range(0, 30, 3):
                assert client.produce(topic, batch(sequence)).base_offset == sequence
        # The last five batches are remembered; of a clean stop's snapshot, which has Kafka's format, the last one.
        for clean, remembered in ((False, (27, 24, 15)), (True, (27,)), (False, (27,))):
            broker.stop() if clean else broker.kill()
            broker.start()
            with WireClient(broker.bootstrap_servers) as client:
                for sequence in remembered:
                    again = client.produce(topic, batch(sequence))
                    assert (again.error_code, again.base_offset) == (0, sequence)
                gap = client.produce(topic, batch(33))
                assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
                assert client.list_offset(topic, -1).offset == 30
                other = client.new_producer_id()
                assert other != producer_id, "a producer id was handed out twice"
        with WireClient(broker.bootstrap_servers) as client:
            assert client.produce(topic, batch(30)).base_offset == 30


def topics_of(client: WireClient) -> dict[str, bytes]:
    found = client.call(MetadataRequest(None), 12)
    return {topic.name: topic.topic_id for topic in found.topics}


def test_killed_while_topics_come_and_go_every_acknowledged_change_stays() -> None:
    """Snapshots of the metadata are written all the while, and old segments removed."""
    randomness = random.Random(3)
    settings = {"metadata.log.max.record.bytes.between.snapshots": "4000", "auto.create.topics.enable": "false"}
    with Cluster(settings) as broker:
        expected: dict[str, bytes] = {}
        doubtful: set[str] = set()
        number = 0
        for _ in range(4):
            killer = threading.Timer(randomness.uniform(0.3, 0.8), broker.kill)
            killer.start()
            try:
                with WireClient(broker.bootstrap_servers) as client:
                    while True:
                        if expected and number % 3 == 2:
                            name = randomness.choice(sorted(expected))
                            doubtful = {name}
                            answer = client.call(DeleteTopicsRequest((), [name], 5_000), 4)
                            assert answer.responses[0].error_code == 0
                            del expected[name]
                        else:
                            name = f"topic-{number}"
                            doubtful = {name}
                            answer = client.call(CreateTopicsRequest([CreatableTopic(name, 2, 1)], 5_000), 7)
                            assert answer.topics[0].error_code == 0
                            expected[name] = answer.topics[0].topic_id
                        doubtful = set()
                        number += 1
            except ConnectionError:
                pass
            killer.join()
            number += 1
            broker.start()
            with WireClient(broker.bootstrap_servers) as client:
                present = topics_of(client)
                certain = {name: topic_id for name, topic_id in expected.items() if name not in doubtful}
                assert {name: present.get(name) for name in certain} == certain
                assert set(present) - set(certain) <= doubtful
                expected = present
                for name in present:
                    assert client.produce(name, batch_of([b"x"]), partition=1).error_code == 0
        directory = broker.data_dir / "__cluster_metadata-0"
        assert number > 30
        assert len(list(directory.glob("*.checkpoint"))) == 2, "two snapshots are kept"
        assert min(directory.glob("*.log")).name != "00000000000000000000.log", "old segments were not removed"
        assert "Traceback" not in broker.logs()


def test_start_up_with_a_large_unsynced_tail_is_quick() -> None:
    """acks=1 writes whose sync was not requested, then a crash: all of it is read and checked at the next start."""
    settings = {"log.segment.bytes": str(1024 * MB)}
    with Cluster(settings) as broker:
        topic = broker.create_topic(configs={"max.message.bytes": str(2 * MB)})
        batch = batch_of([os.urandom(1000) for _ in range(1000)])
        count = TAIL_MB * MB // len(batch)
        with WireClient(broker.bootstrap_servers) as client:
            for _ in range(count):
                assert client.produce(topic, batch, acks=1).error_code == 0
        broker.kill()
        began = time.monotonic()
        broker.start()
        seconds = time.monotonic() - began
        sys.stderr.write(f"start-up with a tail of {TAIL_MB} MB: {seconds:.2f} s\n")
        assert seconds < TAIL_SECONDS_MAX
        with WireClient(broker.bootstrap_servers) as client:
            assert client.list_offset(topic, -1).offset == count * 1000
