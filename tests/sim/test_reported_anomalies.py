"""Anomalies that were reported of other systems, by Jepsen and by users, each provoked here.

Each test is named after the system and the anomaly. Those that are scripts repeat what was reported step by step; the
others are runs in which it could occur, judged by the checker of histories.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from penstock.model.errors import ErrorCode
from penstock.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.wire.messages.end_txn import EndTxnRequest
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from sim.disk import DATA, Directory, Inode
from sim.faults import STRIKES, Fault
from sim.machine import Machine
from sim.schedule import Plan
from sim.shape import Shape
from sim.simulate import simulate
from sim.test_transaction_promises import SCRIPTED, batch, committed_values, play, produce, producer_of
from sim.transactional import AGAIN, TRANSACTION, VERSIONS
from sim.wire import BACKOFF_S
from sim.world import TOPIC, World
from support.history import Operation, Status

SEEDS = range(2)
PLACE = f"{TOPIC}-0"
# More than a leader remembers of a producer.
BATCHES = 12


async def until(condition: Any) -> None:
    """Ends when the condition holds."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(BACKOFF_S)


def replicas(world: World) -> tuple[int, ...]:
    machine = world.controller()
    state = machine.node._raft.image.partition(TOPIC, 0) if machine is not None and machine.node is not None else None
    return () if state is None or state.adding_replicas or state.removing_replicas else state.replicas


def in_sync(world: World) -> frozenset[int]:
    machine = world.controller()
    state = machine.node._raft.image.partition(TOPIC, 0) if machine is not None and machine.node is not None else None
    return frozenset() if state is None else frozenset(state.in_sync_replicas)


def up(world: World) -> bool:
    return all(machine.state == "up" for machine in world.machines.values())


def test_automq_437_idempotent_duplicates_after_reassignment() -> None:
    """A partition moved to other brokers, and batches that were sent again were stored twice there."""

    async def script(world: World) -> None:
        cluster = world._cluster("p")
        started = await cluster.call(cluster.some_address(), InitProducerIdRequest(None, 60_000))
        producer_id = started.producer_id
        offsets = []
        for number in range(BATCHES):
            answer = await produce(cluster, batch(producer_id, 2 * number, f"{number}a", f"{number}b"), 12)
            assert answer.error_code == ErrorCode.NONE
            offsets.append(answer.base_offset)
        newcomer = next(node for node in world.machines if node not in replicas(world))
        # None of the new leader's batches was sent to it by the producer.
        for target in ((newcomer,), (newcomer, *[node for node in world.machines if node != newcomer][:2])):
            topics = [ReassignableTopic(TOPIC, [ReassignablePartition(0, target)])]
            world.operate(AlterPartitionReassignmentsRequest(30_000, topics=topics))
            await until(lambda target=target: replicas(world) == target and len(in_sync(world)) == len(target))
            for number in range(BATCHES):
                again = await produce(cluster, batch(producer_id, 2 * number, f"{number}a", f"{number}b"), 12)
                assert (again.error_code, again.base_offset) == (ErrorCode.NONE, offsets[number])
        after = await produce(cluster, batch(producer_id, 2 * BATCHES, "after"), 12)
        assert (after.error_code, after.base_offset) == (ErrorCode.NONE, offsets[-1] + 2)
        values = [f"{number}{letter}" for number in range(BATCHES) for letter in "ab"]
        assert await committed_values(world) == [*values, "after"]

    play(script, replace(SCRIPTED, nodes=4))


@pytest.mark.parametrize("seed", SEEDS)
def test_automq_437_idempotent_duplicates_during_reassignment(seed: int) -> None:
    moves = ((1, 2, 3), (4, 3, 2), (2, 1, 4), (3, 4, 1))
    faults = [Fault(2.0 + 2 * number, "reassign", moves[number % 4], 0.0, number % 2) for number in range(8)]
    faults += [Fault(3.05 + 4 * number, "strike_leader", (), 1.0, STRIKES.index("kill")) for number in range(4)]
    shape = Shape(nodes=4, partitions=2, producers=3, members=0, produce_pause_s=0.02)
    outcome = simulate(Plan(seed, shape, tuple(faults), 19.0))
    assert outcome.anomalies == []
    assert outcome.acknowledged > 100


TRANSACTIONAL = Shape(partitions=2, producers=0, members=0, writers=3, copiers=1, produce_pause_s=0.05)


def judged(seed: int, *faults: Fault, seconds: float = 14.0) -> World:
    """A run with transactions in which these faults led to no anomaly."""
    worlds: list[World] = []
    outcome = simulate(Plan(seed, TRANSACTIONAL, faults, seconds), inspect=worlds.append)
    assert outcome.anomalies == []
    return worlds[0]


@pytest.mark.parametrize("seed", SEEDS)
def test_redpanda_2022_aborted_reads(seed: int) -> None:
    """Records of aborted transactions were read by consumers of committed ones."""
    kills = [Fault(2.0 + 2 * number, "strike_coordinator", (), 1.0, 0) for number in range(5)]
    leaders = [Fault(3.0 + 3 * number, "strike_leader", (), 1.0, STRIKES.index("pause")) for number in range(3)]
    world = judged(seed, *kills, *leaders)
    statuses = [one.status for one in world.history.transactions]
    assert statuses.count(Status.OK) > 10
    assert any(status is not Status.OK for status in statuses), "nothing was aborted"


@pytest.mark.parametrize("seed", SEEDS)
def test_redpanda_2022_inconsistent_offsets(seed: int) -> None:
    """Two values had one offset after a leader was cut off or killed."""
    strikes = ("isolate", "kill", "pause", "isolate", "kill")
    faults = [
        Fault(2.0 + 3 * number, "strike_leader", (), 2.0, STRIKES.index(kind)) for number, kind in enumerate(strikes)
    ]
    shape = Shape(partitions=1, producers=3, consumers=2, members=0, produce_pause_s=0.02)
    outcome = simulate(Plan(seed, shape, tuple(faults), 18.0))
    assert outcome.anomalies == []
    assert outcome.acknowledged > 100


@pytest.mark.parametrize("seed", SEEDS)
def test_bufstream_2024_spurious_offset_0(seed: int) -> None:
    """Acknowledgements named the offset 0 though the records were elsewhere."""
    faults = [Fault(2.0 + 2 * number, "strike_leader", (), 1.0, number % 3) for number in range(6)]
    worlds: list[World] = []
    shape = Shape(partitions=2, producers=3, members=0, produce_pause_s=0.02)
    outcome = simulate(Plan(seed, shape, tuple(faults), 15.0), inspect=worlds.append)
    assert outcome.anomalies == []
    for operations in acknowledged(worlds[0]):
        zeroes = [one for one in operations if one.result == 0]
        assert len(zeroes) <= 1


def acknowledged(world: World) -> Iterator[list[Operation]]:
    """What was acknowledged with an offset, by partition."""
    for partition in range(world.shape.partitions):
        sends = [one for one in world.history.operations if one.key == f"{TOPIC}-{partition}"]
        yield [one for one in sends if one.status is Status.OK and isinstance(one.result, int)]


@pytest.mark.parametrize("seed", SEEDS)
def test_bufstream_2024_stuck_consumers(seed: int) -> None:
    """Consumers got nothing any more after brokers had been paused and killed; here they read all there is."""
    faults = (
        Fault(2.0, "pause", (1,), 4.0),
        Fault(3.0, "kill", (2,), 3.0),
        Fault(8.0, "pause", (3,), 4.0),
        Fault(9.0, "kill", (1,), 3.0),
    )
    shape = Shape(partitions=2, producers=2, consumers=2, members=3, classic_members=2)
    # That everything is read at the end, and groups share the partitions, is part of the verdict.
    assert simulate(Plan(seed, shape, faults, 15.0)).anomalies == []


def test_bufstream_2024_transaction_messages_out_of_order() -> None:
    """A commit that came late ended the producer's next transaction, whose later writes were lost (KAFKA-17754)."""

    async def script(world: World) -> None:
        producer = producer_of(world, "p", 2)
        await producer.start()
        producer.begin()
        await producer.send_all({(TOPIC, 0): [[("first", None)]]})
        late = EndTxnRequest("id", *producer._identity, True)
        late_write = producer._request(TOPIC, 0, ["late"], 1)
        await producer.commit()
        producer.begin()
        await producer.send_all({(TOPIC, 0): [[("second", None)]]})
        answer = await producer.ask(TRANSACTION, "id", late)
        assert answer.error_code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
        written = await produce(producer.cluster, late_write, VERSIONS[2]["ProduceRequest"])
        assert written.error_code in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE)
        await producer.send_all({(TOPIC, 1): [[("third", None)]]})
        await producer.abort()
        # Also while nothing is open, once the abort is carried out.
        while (answer := await producer.ask(TRANSACTION, "id", late)).error_code in AGAIN:  # noqa: ASYNC110
            await asyncio.sleep(BACKOFF_S)
        assert answer.error_code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE)
        assert await committed_values(world) == ["first"]

    play(script)


@pytest.mark.parametrize("seed", SEEDS)
def test_bufstream_2024_write_of_a_transaction_lost(seed: int) -> None:
    faults = [Fault(2.0 + 1.7 * number, "strike_coordinator", (), 1.0, number % 2) for number in range(6)]
    faults += [Fault(2.9 + 3 * number, "reset", (1, 2, 3), 0.5) for number in range(3)]
    world = judged(seed, *faults)
    assert sum(one.status is Status.OK for one in world.history.transactions) > 10


def log_file(machine: Machine) -> Inode:
    """The first segment of the partition on a machine's disk."""
    data = machine.disk.root.entries[DATA]
    assert isinstance(data, Directory)
    directory = data.entries[PLACE]
    assert isinstance(directory, Directory)
    found = directory.entries["00000000000000000000.log"]
    assert isinstance(found, Inode)
    return found


def spoil(inode: Inode, position: int) -> None:
    """A bit of a file on the disk is another one."""
    for content in (inode.data, inode.durable):
        if position < len(content):
            content[position] ^= 0x10


@pytest.mark.parametrize("part", [0.01, 0.5, 0.99])
def test_nats_2025_one_flipped_bit_on_one_node_loses_nothing(part: float) -> None:
    """One bit in the file of one of five nodes made it lose half of the records, and it became the leader."""

    async def script(world: World) -> None:
        cluster = world._cluster("p")
        started = await cluster.call(cluster.some_address(), InitProducerIdRequest(None, 60_000))
        values = [f"value {number}" for number in range(40)]
        for number, value in enumerate(values):
            answer = await produce(cluster, batch(started.producer_id, number, value), 12)
            assert answer.error_code == ErrorCode.NONE
        leader = world.leader()
        assert leader is not None
        damaged = next(world.machines[node] for node in replicas(world) if world.machines[node] is not leader)
        damaged.kill()
        inode = log_file(damaged)
        spoil(inode, int(len(inode.data) * part))
        damaged.start()
        await until(lambda: up(world))
        assert await committed_values(world) == values
        # The two others that have it go away and come back: whichever leads, nothing is truncated.
        for machine in [world.machines[node] for node in replicas(world) if world.machines[node] is not damaged]:
            await until(lambda machine=machine: in_sync(world) >= {machine.node_id} and len(in_sync(world)) >= 2)
            machine.stop()
            await until(lambda machine=machine: machine.state == "down")
            await asyncio.sleep(2.0)
            machine.start()
            await until(lambda: up(world))
            machine_log = log_file(machine).data
            assert values[-1].encode() in machine_log, "acknowledged records were cut off"
            assert values[0].encode() in machine_log

    play(script, replace(SCRIPTED, nodes=5))


def test_nats_2025_a_truncated_snapshot_deletes_no_topic() -> None:
    """A node whose snapshot was cut short took its streams for deleted, and removed them everywhere."""

    async def script(world: World) -> None:
        cluster = world._cluster("p")
        started = await cluster.call(cluster.some_address(), InitProducerIdRequest(None, 60_000))
        for number in range(20):
            answer = await produce(cluster, batch(started.producer_id, number, f"value {number}"), 12)
            assert answer.error_code == ErrorCode.NONE
        controller = world.controller()
        assert controller is not None
        damaged = next(machine for machine in world.machines.values() if machine is not controller)
        await until(lambda: snapshots(damaged))
        damaged.kill()
        for name in snapshots(damaged):
            inode = metadata_directory(damaged).entries[name]
            assert isinstance(inode, Inode)
            for content in (inode.data, inode.durable):
                del content[len(content) // 2 :]
        damaged.start()
        await until(lambda: damaged.state == "refused")
        assert log_file(damaged).data
        assert await committed_values(world) == [f"value {number}" for number in range(20)]
        # Nor does it when it is started again, and again.
        damaged.start()
        await until(lambda: damaged.state == "refused")
        assert f"value {19}".encode() in log_file(damaged).data

    play(script, replace(SCRIPTED, snapshot_bytes=2_000))


def metadata_directory(machine: Machine) -> Directory:
    data = machine.disk.root.entries[DATA]
    assert isinstance(data, Directory)
    found = data.entries["__cluster_metadata-0"]
    assert isinstance(found, Directory)
    return found


def snapshots(machine: Machine) -> list[str]:
    """The snapshots of the metadata on a machine's disk."""
    return [name for name in metadata_directory(machine).entries if name.endswith(".checkpoint") and name[0] == "0"]
