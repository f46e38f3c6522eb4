"""Copy jobs under fire: read, write and commit in one transaction while jobs and nodes are killed at random.

Whatever dies, in the end there is exactly one committed copy of each record. PENSTOCK_COPY_RECORDS sets how many are
copied, PENSTOCK_COPY_BATCH how many in a transaction, PENSTOCK_COPY_SEED what happens to whom.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from random import Random

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from penstock.testing import Cluster
from support.job_runner import JobRunner
from support.kafka_tools import java_command, java_missing

RECORDS = int(os.environ.get("PENSTOCK_COPY_RECORDS", "3000"))
BATCH = int(os.environ.get("PENSTOCK_COPY_BATCH", "25"))
SEED = int(os.environ.get("PENSTOCK_COPY_SEED", "1"))
TIMEOUT_S = 60.0 + RECORDS / 25
NODES = 3
PARTITIONS = 3
PAUSE_S = (1.0, 4.0)
DOWN_S = (0.0, 1.5)
SETTINGS = {
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
    "min.insync.replicas": "2",
}
COPIED = b"copy of "

pytestmark = [pytest.mark.slow, pytest.mark.timeout(4 * TIMEOUT_S)]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(SETTINGS, nodes=NODES, start_timeout_s=60) as running:
        yield running


class Havoc:
    """Kills the job, or a node that comes back, one after the other."""

    def __init__(self, cluster: Cluster, job: JobRunner, seed: int) -> None:
        self._cluster = cluster
        self._job = job
        self._random = Random(seed)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.nodes_killed = 0
        self.failure: Exception | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """No more of it; every node is up afterwards."""
        self._over.set()
        self._thread.join(120)
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        random = self._random
        try:
            while not self._over.wait(random.uniform(*PAUSE_S)):
                if random.random() < 0.4:
                    self._job.kill()
                    continue
                node = random.choice(self._cluster.node_ids)
                self._cluster.kill(node)
                self.nodes_killed += 1
                time.sleep(random.uniform(*DOWN_S))
                self._cluster.start(node)
        except Exception as error:  # noqa: BLE001
            self.failure = error


def fill(cluster: Cluster, topic: str) -> None:
    writer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "enable.idempotence": True})
    for number in range(RECORDS):
        writer.produce(topic, b"%d" % number, b"%d" % number)
        if number % 10_000 == 0:
            writer.poll(0)
    assert writer.flush(60) == 0


def wait_until_copied(cluster: Cluster, group: str, topic: str, partitions: int, job: JobRunner) -> None:
    """The group has committed the end of the source."""
    reader = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": group, "log_level": 0})
    wanted = [TopicPartition(topic, index) for index in range(partitions)]
    deadline = time.monotonic() + TIMEOUT_S
    committed = 0
    while committed < RECORDS and not job.finished.is_set():
        if time.monotonic() > deadline:
            pytest.fail(f"only {committed} of {RECORDS} were copied in {TIMEOUT_S:.0f} s:\n" + "\n".join(job.lines))
        time.sleep(0.5)
        try:
            committed = sum(max(0, one.offset) for one in reader.committed(wanted, 5))
        except KafkaException:
            continue
    reader.close()


def read_committed(cluster: Cluster, topic: str, partitions: int) -> list[bytes]:
    """Everything that a reader of committed records finds."""
    reader = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "check",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    reader.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(partitions)])
    found: list[bytes] = []
    at_end: set[int] = set()
    deadline = time.monotonic() + 60
    while len(at_end) < partitions and time.monotonic() < deadline:
        for message in reader.consume(5_000, 1.0):
            error = message.error()
            if error is None:
                found.append(message.value())
            elif error.code() == KafkaError._PARTITION_EOF:
                at_end.add(message.partition())
    reader.close()
    assert len(at_end) == partitions, "the reader did not reach the end"
    return found


def run_under_fire(
    cluster: Cluster, job: JobRunner, group: str, source: str, target: str, *, partitions: int, prefix: bytes
) -> None:
    havoc = Havoc(cluster, job, SEED)
    started = time.monotonic()
    job.start()
    havoc.start()
    try:
        wait_until_copied(cluster, group, source, partitions, job)
    finally:
        havoc.stop()
        job.stop()
    seconds = time.monotonic() - started
    counts = f"{job.starts} starts, {job.kills} killed, {job.stuck} stuck; {havoc.nodes_killed} nodes killed"
    sys.stdout.write(f"{group}: {RECORDS} records in {seconds:.0f} s; job: {counts}\n")
    found = sorted(int(value.removeprefix(prefix)) for value in read_committed(cluster, target, PARTITIONS))
    assert found == list(range(RECORDS)), counts


@pytest.mark.parametrize("client", ["confluent", "aiokafka"])
def test_one_committed_copy_of_each_record_with_a_python_client(cluster: Cluster, client: str) -> None:
    source, target = cluster.create_topic(partitions=2), cluster.create_topic(partitions=PARTITIONS)
    fill(cluster, source)
    job = JobRunner(
        [sys.executable, "-m", "support.copy_job", client, cluster.bootstrap_servers, source, target, client]
    )
    run_under_fire(cluster, job, client, source, target, partitions=2, prefix=COPIED)


@pytest.mark.java
def test_one_committed_copy_of_each_record_with_the_java_client(cluster: Cluster) -> None:
    if (missing := java_missing()) is not None:
        pytest.skip(missing)
    source, target = cluster.create_topic(partitions=1), cluster.create_topic(partitions=PARTITIONS)
    fill(cluster, source)
    command = java_command(
        "org.apache.kafka.tools.TransactionalMessageCopier",
        *("--broker-list", cluster.bootstrap_servers),
        *("--input-topic", source, "--input-partition", "0", "--output-topic", target),
        *("--consumer-group", "java", "--transactional-id", "java"),
        *("--transaction-size", str(2 * BATCH), "--transaction-timeout", "10000"),
        *("--use-group-metadata", "--enable-random-aborts"),
    )
    job = JobRunner(command, lambda code: code == 0)
    run_under_fire(cluster, job, "java", source, target, partitions=1, prefix=b"")
