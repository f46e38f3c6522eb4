"""Starts member programs, feeds their topic, does them harm, and collects what they wrote."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Producer
from group_checker import Event, History, read_java_log, read_log

from penstock.model.errors import ErrorCode
from penstock.testing import Cluster
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
)
from penstock.wire.records import Record
from support import kafkajs
from support.kafka_tools import TOOL_FLAGS, java_command
from support.wire_client import WireClient, records_in

PROGRAMS = Path(__file__).parent
OFFSETS_TOPIC = "__consumer_offsets"
NUDGE_S = 10.0
LATEST = -1
SESSION_TIMEOUT_MS = 3000
LEAVE_TIMEOUT_S = 15
PYTHON_PROGRAMS = {"confluent": "confluent.py", "kafka-python": "kafkapython.py", "aiokafka": "aio.py"}
JAVA_ASSIGNORS = {
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "roundrobin": "org.apache.kafka.clients.consumer.RoundRobinAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}
JAVA_LOGS = (
    "-Dorg.slf4j.simpleLogger.logFile=System.out",
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.clients.consumer.internals.ConsumerCoordinator=info",
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.clients.consumer.internals.ConsumerMembershipManager=info",
)
FEED_ROUND_S = 0.02
# Lines that say little when something went wrong.
BUSINESS_AS_USUAL = ('"processed"', '"committed"', '"records_consumed"', '"offsets_committed"')


def find_coordinator(wire: WireClient, group: str) -> int:
    """The error that FindCoordinator gives for a group."""
    (found,) = wire.call(FindCoordinatorRequest(coordinator_keys=[group]), 4).coordinators
    return int(found.error_code)


@dataclass(slots=True)
class Running:
    """A member's process and its log."""

    name: str
    client: str
    process: subprocess.Popen[bytes]
    log: Path
    instance_id: str | None = None
    stalls: list[float] = field(default_factory=list)
    killed_at: float | None = None

    def events(self) -> list[Event]:
        return read_java_log(self.log) if self.client == "java" else read_log(self.log)

    def history(self) -> History:
        return History(self.instance_id or self.name, self.events(), self.stalls, self.killed_at)

    def said(self, kind: str) -> list[Event]:
        return [event for event in self.events() if event.event == kind]

    def owned(self) -> set[int]:
        """The partitions it owns now, by its own account."""
        owned: set[int] = set()
        for event in self.events():
            if event.event == "assigned":
                owned |= set(event.partitions)
            elif event.event in ("revoked", "lost"):
                owned -= set(event.partitions)
        return owned


class Crew:
    """The members of one group on one topic. Leaving the context ends all of them."""

    def __init__(self, cluster: Cluster, directory: Path, group: str, partitions: int = 12) -> None:
        self.cluster = cluster
        self.group = group
        self.partitions = partitions
        self.topic = cluster.create_topic(partitions=partitions)
        self.members: list[Running] = []
        self._directory = directory
        self._feeding: threading.Thread | None = None
        self._fed = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop_feeding()
        for member in self.members:
            if member.process.poll() is None:
                member.process.kill()
                member.process.wait()

    def join(self, client: str, **orders: Any) -> Running:
        """Start a member; `orders` are those of the member programs, such as assignor, protocol or instance_id."""
        name = f"{client}-{len(self.members)}"
        log = self._directory / f"{self.group}-{name}.log"
        member = Running(name, client, self._start(client, name, log, orders), log, orders.get("instance_id"))
        self.members.append(member)
        return member

    def _start(self, client: str, name: str, log: Path, orders: dict[str, Any]) -> subprocess.Popen[bytes]:
        errors = log.with_suffix(".err")
        if client == "java":
            with log.open("ab") as out, errors.open("ab") as err:
                return subprocess.Popen(self._java_command(log, orders), stdout=out, stderr=err, start_new_session=True)
        told = {
            "name": name,
            "servers": self.cluster.bootstrap_servers,
            "topic": self.topic,
            "group": self.group,
            "log": str(log),
            "session_timeout_ms": SESSION_TIMEOUT_MS,
            **orders,
        }
        if client == "kafkajs":
            command = ["node", str(PROGRAMS / "kafkajs.mjs"), json.dumps(told), str(kafkajs.MODULE)]
        else:
            command = [sys.executable, str(PROGRAMS / PYTHON_PROGRAMS[client]), json.dumps(told)]
        with errors.open("ab") as err:
            return subprocess.Popen(command, stdout=err, stderr=err, start_new_session=True)

    def _java_command(self, log: Path, orders: dict[str, Any]) -> list[str]:
        protocol = orders.get("protocol", "classic")
        properties = {"max.poll.records": 100, "fetch.max.wait.ms": 100, "client.id": log.stem}
        arguments = ["--bootstrap-server", self.cluster.bootstrap_servers, "--topic", self.topic]
        arguments += ["--group-id", self.group, "--group-protocol", protocol, "--reset-policy", "earliest"]
        if protocol == "classic":
            session_timeout_ms = orders.get("session_timeout_ms", SESSION_TIMEOUT_MS)
            properties["heartbeat.interval.ms"] = session_timeout_ms // 8
            arguments += ["--session-timeout", str(session_timeout_ms)]
            arguments += ["--assignment-strategy", JAVA_ASSIGNORS[orders.get("assignor", "range")]]
        elif "assignor" in orders:
            arguments += ["--group-remote-assignor", orders["assignor"]]
        if "instance_id" in orders:
            arguments += ["--group-instance-id", orders["instance_id"]]
        config = log.with_suffix(".properties")
        config.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        flags = (*TOOL_FLAGS, *JAVA_LOGS)
        return java_command("kafka-verifiable-consumer", *arguments, "--consumer.config", str(config), flags=flags)

    def leave(self, member: Running) -> None:
        """Ask a member to leave, and wait until it is gone."""
        member.process.send_signal(signal.SIGTERM)
        try:
            member.process.wait(LEAVE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{member.name} does not leave\n{self.tails()}") from None

    def kill(self, member: Running) -> None:
        """End a member as a crash would."""
        member.killed_at = time.time()
        member.process.kill()
        member.process.wait()

    def stall(self, member: Running) -> None:
        """Stop a member where it stands."""
        member.stalls.append(time.time())
        os.kill(member.process.pid, signal.SIGSTOP)

    def resume(self, member: Running) -> None:
        """Let a stalled member go on."""
        os.kill(member.process.pid, signal.SIGCONT)

    def leave_all(self) -> None:
        """Everybody who is there leaves, at once."""
        running = [member for member in self.members if member.process.poll() is None]
        for member in running:
            member.process.send_signal(signal.SIGTERM)
        for member in running:
            self.leave(member)

    def feed(self, records_per_s: int = 1500) -> None:
        """Produce to all partitions in the background, until told to stop."""
        self._fed.clear()
        self._feeding = threading.Thread(target=self._feed, args=(records_per_s,))
        self._feeding.start()

    def _feed(self, records_per_s: int) -> None:
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap_servers, "linger.ms": 5, "log_level": 0})
        number = 0
        while not self._fed.wait(FEED_ROUND_S):
            for _ in range(int(records_per_s * FEED_ROUND_S)):
                producer.produce(self.topic, b"%d" % number, partition=number % self.partitions)
                number += 1
            producer.poll(0)
        producer.flush()

    def stop_feeding(self) -> None:
        """Produce no more; everything is written when this returns."""
        self._fed.set()
        if self._feeding is not None:
            self._feeding.join()
            self._feeding = None

    def produce(self, records: int) -> None:
        """Write this many records to each partition."""
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap_servers, "log_level": 0})
        for number in range(records * self.partitions):
            producer.produce(self.topic, b"%d" % number, partition=number % self.partitions)
        producer.flush()

    def ends(self) -> dict[int, int]:
        """The end offset of each partition."""
        with WireClient(self.cluster.bootstrap_servers) as wire:
            return {
                number: wire.list_offset(self.topic, LATEST, partition=number).offset
                for number in range(self.partitions)
            }

    def committed(self) -> dict[int, int]:
        """The group's committed offset of each partition; -1 where there is none."""
        wanted = [OffsetFetchRequestTopics(self.topic, partition_indexes=list(range(self.partitions)))]
        with WireClient(self.cluster.bootstrap_servers) as wire:
            # Makes the offsets topic if no member has come so far as to ask for it.
            self.wait_until("a coordinator", lambda: not find_coordinator(wire, self.group))
            request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(self.group, topics=wanted)])
            answer = OffsetFetchResponseGroup(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            while answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                (answer,) = wire.call(request, 9).groups
        assert answer.error_code == 0, answer
        return {row.partition_index: row.committed_offset for topic in answer.topics for row in topic.partitions}

    def wait_until(self, what: str, condition: Callable[[], bool], timeout_s: float = 30) -> None:
        """Wait for a condition, or fail with the ends of all logs."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what}\n{self.tails()}"
            time.sleep(0.1)

    def wait_until_shared(self, members: Sequence[Running], timeout_s: float = 30) -> None:
        """Wait until these members, and no others, own all partitions, each at least one."""
        everything = set(range(self.partitions))

        def shared() -> bool:
            owned = [member.owned() for member in members]
            return all(owned) and sum(map(len, owned)) == self.partitions and set().union(*owned) == everything

        self.wait_until(f"{[member.name for member in members]} share the topic", shared, timeout_s)

    def wait_until_read(self, timeout_s: float = 40) -> None:
        """Wait until everything that was produced is committed as processed.

        A commit that is refused because a rebalance has overtaken it is made up for with the next one only, so
        members that are not done after a while get something more to commit.
        """
        deadline = time.monotonic() + timeout_s
        nudge_at = time.monotonic() + NUDGE_S
        ends = self.ends()
        while self.committed() != ends:
            assert time.monotonic() < deadline, f"not within {timeout_s:g} s: commits reach {ends}\n{self.tails()}"
            time.sleep(0.1)
            if time.monotonic() > nudge_at:
                nudge_at += NUDGE_S
                self.produce(1)
                ends = self.ends()

    def histories(self) -> list[History]:
        """What the members wrote."""
        return [member.history() for member in self.members]

    def offsets_records(self) -> list[Record]:
        """Every record of the offsets topic, partition by partition."""
        return offsets_records(self.cluster)

    def tails(self, lines: int = 12) -> str:
        """The ends of all logs, for the analysis of a failure."""
        parts = []
        for member in self.members:
            text = member.log.read_text() if member.log.exists() else "(no log)"
            rows = [row for row in text.splitlines() if not any(word in row for word in BUSINESS_AS_USUAL)]
            errors = member.log.with_suffix(".err").read_text()
            state = "running" if member.process.poll() is None else f"ended with {member.process.returncode}"
            parts.append("\n".join([f"--- {member.name}, {state}", *rows[-lines:], errors[-1500:]]))
        parts += ["--- broker", *self.cluster.logs().splitlines()[-lines:]]
        return "\n".join(parts)


def offsets_records(cluster: Cluster) -> list[Record]:
    """Every record of the offsets topic, partition by partition."""
    found: list[Record] = []
    with WireClient(cluster.bootstrap_servers) as wire:
        partition = 0
        while (end := wire.list_offset(OFFSETS_TOPIC, LATEST, partition=partition)).error_code == 0:
            offset = 0
            while offset < end.offset:
                records = records_in(wire.fetch(OFFSETS_TOPIC, offset, partition=partition).records)
                found += [record for record in records if record.offset >= offset]
                offset = records[-1].offset + 1
            partition += 1
    return found
