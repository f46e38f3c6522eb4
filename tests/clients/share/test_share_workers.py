"""Apache Kafka's own share consumers, which acknowledge each record: two of them, and brokers that are killed."""

from __future__ import annotations

import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from penstock.testing import Cluster
from support.kafka_tools import java_command, java_missing, kafka_tool, libraries_of

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(300)]

VERSION = "4.3.1"
GROUP, TOPIC, LETTERS = "workers", "jobs", "dlq.jobs"
DELIVERIES_MAX = 5
DEADLINE_S = 90.0
JOBS = 300
PARTITIONS = 3


def until(is_so: Callable[[], object], workers: list[Worker]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        assert all(worker.is_running for worker in workers), [worker.lines[-5:] for worker in workers]
        assert time.monotonic() < deadline, [worker.lines[-5:] for worker in workers]
        time.sleep(0.1)


class Worker:
    """A ShareWorker in a process of its own; `lines` are what it printed."""

    def __init__(self, cluster: Cluster) -> None:
        program = Path(__file__).with_name("ShareWorker.java")
        command = java_command(str(program), cluster.bootstrap_servers, GROUP, TOPIC, libraries=libraries_of(VERSION))
        self.lines: list[str] = []
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        self.lines += (line for line in iter(self._process.stdout.readline, ""))

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def said(self, *kinds: str) -> list[str]:
        """The values of records with which it did one of these."""
        rows = [line.split() for line in self.lines]
        return [row[4] for row in rows if row[0] in kinds]

    def end(self) -> None:
        if self.is_running:
            self._process.communicate("end\n", timeout=60)
        self._reader.join(60)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    if (missing := java_missing(VERSION)) is not None:
        pytest.skip(missing)
    settings = {"share.coordinator.state.topic.num.partitions": "3", "offsets.topic.num.partitions": "3"}
    with Cluster(settings, nodes=3) as running:
        yield running


def produce(cluster: Cluster, values: list[str]) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 1})
    for number, value in enumerate(values):
        producer.produce(TOPIC, value.encode(), partition=number // 4 % PARTITIONS)
    assert producer.flush(60) == 0


def letters(cluster: Cluster) -> list[str]:
    """The values of all dead letters."""
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "none", "enable.partition.eof": True}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(LETTERS, number, OFFSET_BEGINNING) for number in range(2)])
    found: list[str] = []
    ended: set[int | None] = set()
    deadline = time.monotonic() + DEADLINE_S
    while len(ended) < 2:
        assert time.monotonic() < deadline
        for message in consumer.consume(500, 0.2):
            if message.error() is None:
                found.append((message.value() or b"").decode())
            elif message.error().name() == "_PARTITION_EOF":
                ended.add(message.partition())
    consumer.close()
    return found


def test_each_job_is_done_or_a_dead_letter_whatever_process_dies(cluster: Cluster) -> None:
    cluster.create_topic(TOPIC, partitions=PARTITIONS)
    cluster.create_topic(LETTERS, partitions=2, configs={"errors.deadletterqueue.group.enable": "true"})
    dead_letters = f"errors.deadletterqueue.topic.name={LETTERS},errors.deadletterqueue.copy.record.enable=true"
    configured = kafka_tool(
        *("kafka-configs", "--bootstrap-server", cluster.bootstrap_servers, "--alter"),
        *("--entity-type", "groups", "--entity-name", GROUP),
        *("--add-config", f"share.auto.offset.reset=earliest,share.record.lock.duration.ms=15000,{dead_letters}"),
        libraries=libraries_of(VERSION),
    )
    assert configured.returncode == 0, configured.stdout + configured.stderr
    jobs = [f"{kind}-{number}" for number in range(JOBS) for kind in ("job", "reject", "later", "never")]
    workers = [Worker(cluster), Worker(cluster)]
    wanted = {job for job in jobs if job.startswith(("job", "later"))}

    def accepted() -> Counter[str]:
        return Counter(value for worker in workers for value in worker.said("ACCEPT") if value in wanted)

    def all_work() -> bool:
        """The second worker finds something to do."""
        produce(cluster, ["job-more"] * 12)
        return all(worker.said("ACCEPT") for worker in workers)

    try:
        until(all_work, workers)
        produce(cluster, jobs[: len(jobs) // 2])
        until(lambda: sum(accepted().values()) > len(wanted) // 4, workers)
        cluster.kill(2)
        produce(cluster, jobs[len(jobs) // 2 :])
        until(lambda: wanted <= accepted().keys(), workers)
        cluster.start(2)
        cluster.kill(3)
        given_up = {job for job in jobs if job.startswith(("reject", "never"))}
        until(lambda: given_up <= {*letters(cluster)}, workers)
        cluster.start(3)
        cluster.kill(1)
        cluster.start(1)
        assert Counter(letters(cluster)) == Counter(given_up)
    finally:
        for worker in workers:
            worker.end()
    # What was released while its broker died may come again for each of the two that did, and not oftener.
    released = Counter(value for worker in workers for value in worker.said("RELEASE") if value.startswith("never"))
    assert max(released.values()) <= DELIVERIES_MAX + 2
