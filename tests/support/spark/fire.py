"""A copy of a topic by Spark, exactly once, under fire: what is killed and when, and how the copy is judged."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from penstock.testing import Cluster

KINDS = ("executor", "leader", "driver")
JOB = Path(__file__).parents[2] / "spark" / "copy_job.py"
# A driver takes long to come to work on a busy machine; kills before that would only test Java's start.
COMMIT_WAIT_SECONDS = 240.0
DRIVERS_MAX = 100
WORKER_WORDS = b"pyspark.daemon"


class Findings(NamedTuple):
    """What a copy lacks, and what it has more than once."""

    missing: int
    doubled: int
    records: int


def judge(bootstrap: str, topic: str, expected: Iterable[bytes | None]) -> Findings:
    """Count every key that readers of committed records see in a topic."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "judge", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.partition.eof": True, "log_level": 0})
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, index, 0) for index in partitions])
    arrived: Counter[bytes | None] = Counter()
    ended = 0
    while ended < len(partitions):
        message = consumer.poll(60)
        assert message is not None, "nothing for a minute: an open transaction is in the way"
        if message.error() is not None:
            ended += 1
        else:
            arrived[message.key()] += 1
    consumer.close()
    missing = set(expected) - set(arrived)
    return Findings(len(missing), sum(count - 1 for count in arrived.values()), arrived.total())


class Copy:
    """The job in a process of its own, started again whenever it is killed or fails.

    `executors` returns which processes may be killed as executors of a driver; without it, its Python workers.
    """

    def __init__(
        self,
        cluster: Cluster,
        topics: tuple[str, str],
        checkpoint: Path,
        *,
        master: str = "local[2,8]",
        executors: Callable[[], Iterable[int]] | None = None,
    ) -> None:
        self._cluster = cluster
        self._topics = topics
        self._checkpoint = checkpoint
        self._master = master
        self._executors = executors
        self._driver: subprocess.Popen[bytes] | None = None
        self.drivers = 0
        self.killed: Counter[str] = Counter()

    def under_fire(self, kills: int, randomness: random.Random, deadline_seconds: float) -> None:
        """Copy to the end, with so many kills on the way, of all kinds; AssertionError if it does not get there."""
        deadline = time.monotonic() + deadline_seconds
        kinds = [KINDS[number % len(KINDS)] for number in range(kills)]
        randomness.shuffle(kinds)
        done = 0
        try:
            for kind in kinds:
                done = self._work(done)
                time.sleep(randomness.random() * 1.5)
                self._kill(kind, randomness)
            while self._run().wait(max(1.0, deadline - time.monotonic())) != 0:
                assert time.monotonic() < deadline, "the copy did not end"
        finally:
            self._kill_driver()

    def until_commits(self, count: int) -> None:
        """Let the copy go on until so many micro-batches are noted as done."""
        self._work(count - 1)

    def _run(self) -> subprocess.Popen[bytes]:
        if self._driver is None or self._driver.poll() is not None:
            assert self.drivers < DRIVERS_MAX, "driver after driver fails"
            self.drivers += 1
            arguments = [self._cluster.bootstrap_servers, *self._topics, str(self._checkpoint), self._master]
            command = [sys.executable, str(JOB), *arguments]
            with self._checkpoint.with_suffix(".log").open("ab") as log:
                self._driver = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        return self._driver

    def _work(self, done: int) -> int:
        """Let the copy go on until another micro-batch is noted as done; returns how many are."""
        deadline = time.monotonic() + COMMIT_WAIT_SECONDS
        while time.monotonic() < deadline:
            driver = self._run()
            found = len([path for path in (self._checkpoint / "commits").glob("*") if path.name.isdigit()])
            if found > done or driver.poll() == 0:
                return found
            time.sleep(0.05)
        raise AssertionError(f"no micro-batch was done for {COMMIT_WAIT_SECONDS:.0f} s")

    def _kill(self, kind: str, randomness: random.Random) -> None:
        if kind == "driver":
            self._kill_driver()
        elif kind == "executor":
            found = sorted(self._executors() if self._executors is not None else python_workers(self._run().pid))
            if not found:
                return
            os.kill(randomness.choice(found), signal.SIGKILL)
        else:
            self._kill_leader(randomness)
        self.killed[kind] += 1

    def _kill_leader(self, randomness: random.Random) -> None:
        """A broker that leads a partition of one of the topics crashes, and is back a moment later."""
        admin = AdminClient({"bootstrap.servers": self._cluster.bootstrap_servers, "log_level": 0})
        topic = randomness.choice(self._topics)
        leaders = {each.leader for each in admin.list_topics(topic, timeout=30).topics[topic].partitions.values()}
        leader = randomness.choice(sorted(leaders & set(self._cluster.node_ids)))
        self._cluster.kill(leader)
        time.sleep(randomness.random() * 3)
        self._cluster.start(leader)

    def _kill_driver(self) -> None:
        """The whole group: the driver, its Java and its Python workers."""
        if self._driver is not None and self._driver.poll() is None:
            os.killpg(self._driver.pid, signal.SIGKILL)
            self._driver.wait()


def python_workers(driver: int) -> list[int]:
    """The processes below a driver that run Python for it and have no children of their own."""
    parents: dict[int, int] = {}
    workers = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            fields = (path / "stat").read_text().rpartition(")")[2].split()
            parents[int(path.name)] = int(fields[1])
            if os.getsid(int(path.name)) == os.getsid(driver) and WORKER_WORDS in (path / "cmdline").read_bytes():
                workers.append(int(path.name))
        except (OSError, IndexError):
            continue
    return [pid for pid in workers if pid not in parents.values()]
