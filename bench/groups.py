"""What groups cost a node: `python -m bench.groups`.

Two measurements. `heartbeats`: many groups of members that only send heartbeats, one connection each, next to a
producer that sends a record every few milliseconds; its latency with and without them, the processor time of a
heartbeat, and the memory of a group. `load`: many committed offsets, a restart, and the time until their coordinator
answers. Members, the producer and the node share the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import uvloop
from tests.support.wire_client import WireClient, batch_of

from bench.group_members import KINDS, Member, beat, connect
from bench.processes import cpu_seconds, resident_bytes
from penstock.model.errors import ErrorCode
from penstock.testing import Cluster
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.list_groups import ListGroupsRequest
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

PROBE_INTERVAL_S = 0.004
PROBE_RECORD = b"x" * 200
SETTINGS = {
    "group.initial.rebalance.delay.ms": "2000",
    "group.consumer.max.session.timeout.ms": "60000",
    "offsets.topic.num.partitions": "50",
    # Members connect in crowds, and what does not fit into the backlog is reset.
    "socket.listen.backlog.size": "2048",
}
GROUPS_AT_ONCE = 200
COMMITS_IN_FLIGHT = 32
PARTITIONS_A_COMMIT = 100
COMMIT_VERSION = 8
MEBIBYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    what: str
    produce_ms: tuple[float, float, float]
    node_cpu_share: float
    resident_bytes: int
    beats_per_s: float = 0.0
    beat_ms: tuple[float, float] = (0.0, 0.0)
    beat_cpu_us: float = 0.0

    def line(self) -> str:
        """The row as it is printed."""
        latency = "".join(f"{value:7.2f}" for value in self.produce_ms)
        line = f"{self.what:18}{latency}{self.node_cpu_share * 100:9.1f}{self.resident_bytes / MEBIBYTE:9.0f}"
        if not self.beats_per_s:
            return line
        return f"{line}{self.beats_per_s:13.0f}{self.beat_ms[0]:7.2f}{self.beat_ms[1]:7.2f}{self.beat_cpu_us:10.1f}"


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def probe(address: str, topic: str, seconds: float, acks: int) -> list[float]:
    """Produce one record at a time, at a steady pace, and return how long each took in milliseconds."""
    took = []
    with WireClient(address) as wire:
        due = time.monotonic()
        until = due + seconds
        while due < until:
            time.sleep(max(0.0, due - time.monotonic()))
            batch = batch_of([PROBE_RECORD])
            began = time.perf_counter()
            answer = wire.produce(topic, batch, acks=acks)
            took.append((time.perf_counter() - began) * 1000)
            assert answer.error_code == 0, answer
            due += PROBE_INTERVAL_S
    return took


class HeartbeatBench:
    """One node, a topic for the producer, and members that come and go."""

    def __init__(self, cluster: Cluster, arguments: argparse.Namespace) -> None:
        self._cluster = cluster
        self._arguments = arguments
        self._topic = cluster.create_topic(partitions=10)
        with WireClient(cluster.bootstrap_servers) as wire:
            wire.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["any"]), 4)

    @property
    def _pid(self) -> int:
        assert self._cluster.pid is not None
        return self._cluster.pid

    async def measure(self, what: str, members: Sequence[Member], without: Row | None = None) -> Row:
        """Produce while the members send heartbeats, if there are any."""
        seconds, address = self._arguments.seconds, self._cluster.bootstrap_servers
        command = [sys.executable, "-m", "bench.groups", "probe", address, self._topic]
        command += [f"--seconds={seconds}", f"--acks={self._arguments.acks}"]
        cpu, began = cpu_seconds(self._pid), time.monotonic()
        producer = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        beats = await beat(members, self._arguments.interval, seconds)
        output, _ = await producer.communicate()
        used, elapsed = cpu_seconds(self._pid) - cpu, time.monotonic() - began
        latencies = json.loads(output)
        row = Row(
            what,
            (percentile(latencies, 0.5), percentile(latencies, 0.99), max(latencies)),
            used / elapsed,
            resident_bytes(self._pid),
        )
        if not beats or without is None:
            return row
        return replace(
            row,
            beats_per_s=len(beats) / elapsed,
            beat_ms=(percentile(beats, 0.5) * 1000, percentile(beats, 0.99) * 1000),
            beat_cpu_us=(used - without.node_cpu_share * elapsed) / len(beats) * 1e6,
        )

    async def gather(self, kind: str) -> tuple[list[Member], float, float]:
        """Make all groups; with the memory of a connection and of a group (without connections), in KiB."""
        count = self._arguments.groups
        groups = [
            [KINDS[kind](f"{kind}-{number}", index, self._topic) for index in range(self._arguments.members)]
            for number in range(count)
        ]
        members = [member for group in groups for member in group]
        host, port = self._cluster.bootstrap_servers.rsplit(":", 1)
        before = resident_bytes(self._pid)
        await connect(members, host, int(port))
        connected = resident_bytes(self._pid)
        for start in range(0, count, GROUPS_AT_ONCE):
            some = groups[start : start + GROUPS_AT_ONCE]
            await asyncio.gather(*(member.join() for group in some for member in group))
        joined = resident_bytes(self._pid)
        return members, (connected - before) / len(members) / 1024, (joined - connected) / count / 1024

    async def run(self, kind: str) -> tuple[list[Row], str]:
        """The rows without and with groups of one kind, and a note about memory."""
        without = await self.measure(f"no {kind} groups", [])
        members, connection_kib, group_kib = await self.gather(kind)
        row = await self.measure(f"{kind} groups", members, without)
        for member in members:
            member.connection.close()
        return [without, row], f"{kind}: {group_kib:.1f} KiB a group, {connection_kib:.1f} KiB a connection"


def commit_offsets(cluster: Cluster, keys: int) -> None:
    """Commit this many offsets, each of another group or partition."""
    topic = cluster.create_topic(partitions=PARTITIONS_A_COMMIT)
    with WireClient(cluster.bootstrap_servers) as wire:
        wire.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["any"]), 4)
        rows = [OffsetCommitRequestPartition(index, 1_000_000 + index, 3, "") for index in range(PARTITIONS_A_COMMIT)]
        topics = [OffsetCommitRequestTopic(topic, partitions=rows)]
        waiting: list[OffsetCommitRequest] = []
        for number in range(keys // PARTITIONS_A_COMMIT):
            request = OffsetCommitRequest(f"group-of-many-{number}", topics=topics)
            wire.send(request, COMMIT_VERSION)
            waiting.append(request)
            if len(waiting) == COMMITS_IN_FLIGHT:
                _, answer = wire.receive(waiting.pop(0), COMMIT_VERSION)
                assert answer.topics[0].partitions[0].error_code == 0, answer
        for request in waiting:
            wire.receive(request, COMMIT_VERSION)


def seconds_until_loaded(cluster: Cluster) -> float:
    """The time from now until no coordinator is loading any more."""
    began = time.perf_counter()
    with WireClient(cluster.bootstrap_servers) as wire:
        while wire.call(ListGroupsRequest(), 4).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            time.sleep(0.005)
    return time.perf_counter() - began


def run_load(arguments: argparse.Namespace) -> None:
    """Measure how long a node with many offsets takes to be ready, and print it."""
    with Cluster(SETTINGS) as cluster:
        began = time.perf_counter()
        commit_offsets(cluster, arguments.keys)
        written = time.perf_counter() - began
        print(f"{arguments.keys} offsets committed in {written:.1f} s ({written / arguments.keys * 1e6:.1f} µs each)")
        for how in ("stopped in good order", "killed"):
            (cluster.stop if how != "killed" else cluster.kill)()
            began = time.perf_counter()
            cluster.start()
            started = time.perf_counter() - began
            loading = seconds_until_loaded(cluster)
            assert cluster.pid is not None
            memory = resident_bytes(cluster.pid) / MEBIBYTE
            print(f"{how}: serves after {started:.2f} s, all groups loaded {loading:.2f} s later, {memory:.0f} MiB")


async def run_heartbeats(arguments: argparse.Namespace) -> None:
    """Measure what heartbeats cost, each kind of group on a node of its own, and print the table."""
    rows, notes = [], []
    for kind in arguments.kinds:
        with Cluster(SETTINGS) as cluster:
            try:
                found, note = await HeartbeatBench(cluster, arguments).run(kind)
            except ConnectionError:
                print(cluster.logs(), file=sys.stderr)
                raise
        rows += found
        notes.append(note)
    print(f"\n{arguments.groups} groups of {arguments.members} members, a heartbeat every {arguments.interval:g} s")
    print(f"one record of {len(PROBE_RECORD)} bytes every {PROBE_INTERVAL_S * 1000:g} ms, acks={arguments.acks}\n")
    print("                       produce ms          node   memory   heartbeats      ms      processor")
    print("                     p50    p99    max    CPU %      MiB     a second    p50    p99   µs each")
    for row in rows:
        print(row.line())
    print("\n" + "\n".join(notes))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.groups", description=__doc__)
    parser.add_argument("what", nargs="?", default="all", choices=("all", "heartbeats", "load", "probe"))
    parser.add_argument("probed", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument("--groups", type=int, default=1000)
    parser.add_argument("--members", type=int, default=10, help="members of a group")
    parser.add_argument("--interval", type=float, default=3.0, help="seconds between the heartbeats of a member")
    parser.add_argument("--seconds", type=float, default=15.0, help="length of each measurement")
    parser.add_argument("--acks", type=int, default=-1, choices=(-1, 1))
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--keys", type=int, default=1_000_000, help="offsets to load")
    arguments = parser.parse_args()
    if arguments.what == "probe":
        print(json.dumps(probe(arguments.probed[0], arguments.probed[1], arguments.seconds, arguments.acks)))
        return
    if arguments.what in ("all", "load"):
        run_load(arguments)
    if arguments.what in ("all", "heartbeats"):
        uvloop.run(run_heartbeats(arguments))


if __name__ == "__main__":
    main()
