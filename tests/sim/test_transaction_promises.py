"""The promises about producers, transactions and members of groups, each told as a script."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from penstock.core.metadata.image import PartitionState
from penstock.model.errors import ErrorCode
from penstock.model.ids import NO_LEADER
from penstock.runtime.logs.housekeeping import FLUSH_CHECK_MS
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from penstock.wire.records import Record, build_batch
from sim.consumer import READ_COMMITTED, Consumer
from sim.faults import Fault
from sim.machine import Machine
from sim.schedule import LOST_EVERYWHERE, READ_BEFORE_SYNCED, Plan
from sim.shape import Shape
from sim.simulate import simulate
from sim.transactional import GROUP, VERSIONS, Fenced, TransactionalProducer
from sim.wire import BACKOFF_S, RETRIABLE, Cluster, Failed
from sim.world import TOPIC, World, without_collector
from support.history import Status
from support.history_checks import check

SCRIPTED = Shape(partitions=2, producers=0, consumers=0, members=0)
SCRIPT_S = 60.0
SLOW_DISK_US = 500_000
AGAIN = RETRIABLE | {ErrorCode.CONCURRENT_TRANSACTIONS}


def play(script: Callable[[World], Coroutine[Any, Any, None]], shape: Shape = SCRIPTED) -> None:
    """Run a script against a cluster."""

    def run() -> None:
        world = World("script", shape)
        try:
            world.start_nodes()
            assert world.call(world.create_topic(), SCRIPT_S)
            assert world.call(script(world), SCRIPT_S), f"the script did not end: {world.states()}"
            assert world.scheduler.errors == []
        finally:
            world.close()

    without_collector(run)


def producer_of(world: World, name: str, protocol: int, timeout_ms: int = 60_000) -> TransactionalProducer:
    return TransactionalProducer(name, "id", protocol, world._cluster(name), world.history, world.now_ms, timeout_ms)


async def produce(cluster: Cluster, request: ProduceRequest, version: int) -> Any:
    """One batch to the first partition; tries again only what never arrived."""
    while True:
        address = cluster.leader_address(TOPIC, 0)
        try:
            if address is None:
                raise Failed("no leader is known", maybe_done=False)
            response = await cluster.call(address, request, version=version)
        except Failed:
            await cluster.refresh([TOPIC])
            continue
        answer = response.responses[0].partition_responses[0]
        if answer.error_code not in RETRIABLE:
            return answer
        await cluster.refresh([TOPIC])


def batch(producer_id: int, sequence: int, *values: str) -> ProduceRequest:
    records = [Record(index, 0, None, value.encode()) for index, value in enumerate(values)]
    data = build_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
    return ProduceRequest(None, -1, 2_000, [TopicProduceData(TOPIC, partition_data=[PartitionProduceData(0, data)])])


async def committed_values(world: World) -> list[str]:
    """What readers of committed records get of the topic, once no transaction is open."""
    partitions = list(range(world.shape.partitions))
    reader = Consumer("reader", world._cluster("reader"), world.history, TOPIC, partitions, READ_COMMITTED)
    reader.fetched = []
    while (ends := await reader.stable_ends()) is None:  # noqa: ASYNC110
        await asyncio.sleep(BACKOFF_S)
    while any(reader.positions[partition] < end for partition, end in ends.items()):
        await reader.poll()
    return [value for *_, value in reader.fetched]


def test_19_a_repeated_batch_gets_its_first_offset_again_also_after_restarts() -> None:
    async def script(world: World) -> None:
        cluster = world._cluster("p")
        started = await cluster.call(cluster.some_address(), InitProducerIdRequest(None, 60_000))
        producer_id = started.producer_id
        first = await produce(cluster, batch(producer_id, 0, "a", "b"), 12)
        again = await produce(cluster, batch(producer_id, 0, "a", "b"), 12)
        assert first.error_code == again.error_code == ErrorCode.NONE
        assert again.base_offset == first.base_offset
        for machine in world.machines.values():
            machine.kill()
        world.keep_running()
        after = await produce(cluster, batch(producer_id, 0, "a", "b"), 12)
        assert (after.error_code, after.base_offset) == (ErrorCode.NONE, first.base_offset)
        gap = await produce(cluster, batch(producer_id, 7, "h"), 12)
        assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        following = await produce(cluster, batch(producer_id, 2, "c"), 12)
        assert (following.error_code, following.base_offset) == (ErrorCode.NONE, first.base_offset + 2)
        assert await committed_values(world) == ["a", "b", "c"]

    play(script)


@pytest.mark.parametrize("protocol", [1, 2])
def test_20_a_producer_with_a_successor_is_fenced(protocol: int) -> None:
    async def script(world: World) -> None:
        old, new = producer_of(world, "old", protocol), producer_of(world, "new", protocol)
        await old.start()
        old.begin()
        await old.send_all({(TOPIC, 0): [[("old", None)]]})
        await new.start()
        with pytest.raises(Fenced):
            await old.send_all({(TOPIC, 0): [[("older", None)]]})
        with pytest.raises(Fenced):
            await old.send_all({(TOPIC, 1): [[("oldest", None)]]})
        with pytest.raises(Fenced):
            await old.commit()
        new.begin()
        await new.send_all({(TOPIC, 0): [[("new", None)]]})
        await new.commit()
        assert await committed_values(world) == ["new"]

    play(script)


@pytest.mark.parametrize("protocol", [1, 2])
def test_21_a_batch_that_comes_after_the_abort_is_refused(protocol: int) -> None:
    async def script(world: World) -> None:
        producer = producer_of(world, "p", protocol)
        await producer.start()
        producer.begin()
        await producer.send_all({(TOPIC, 0): [[("aborted", None)]]})
        late = producer._request(TOPIC, 0, ["late"], 1)
        await producer.abort()
        # Markers are everywhere once the next transaction has begun somewhere else.
        producer.begin()
        await producer.send_all({(TOPIC, 1): [[("next", None)]]})
        answer = await produce(producer.cluster, late, VERSIONS[protocol]["ProduceRequest"])
        assert answer.error_code in (
            ErrorCode.INVALID_TXN_STATE,
            ErrorCode.INVALID_PRODUCER_EPOCH,
            ErrorCode.TRANSACTION_ABORTABLE,
        )
        await producer.commit()
        assert await committed_values(world) == ["next"]

    play(script)


@pytest.mark.parametrize("seed", range(2))
def test_22_a_coordinator_killed_in_mid_commit_leaves_all_or_nothing(seed: int) -> None:
    kills = tuple(Fault(2.0 + 2.1 * number, "strike_coordinator", (), 1.0, 0) for number in range(4))
    shape = Shape(
        partitions=2, producers=0, members=0, writers=2, copiers=1, produce_pause_s=0.05, delay_ms_max=1 + 10 * seed
    )
    committed: list[int] = []

    def inspect(world: World) -> None:
        committed.append(sum(one.status is Status.OK for one in world.history.transactions))

    assert simulate(Plan(seed, shape, kills, 11.0), inspect=inspect).anomalies == []
    assert committed[0] > 20


def test_23_a_stale_members_commit_is_refused() -> None:
    async def script(world: World) -> None:
        producer = producer_of(world, "p", 1)
        await producer.start()

        async def ask(request: Any, code_of: Callable[[Any], int]) -> Any:
            """Asked until it is about the request, not about the coordinator."""
            while True:
                try:
                    response = await producer.ask(GROUP, "g", request)
                except Failed:
                    await asyncio.sleep(BACKOFF_S)
                    continue
                if code_of(response) not in AGAIN:
                    return response
                producer.forget_coordinator(GROUP, "g")
                await asyncio.sleep(BACKOFF_S)

        async def heartbeat(member: str, epoch: int) -> Any:
            joins = epoch == 0
            request = ConsumerGroupHeartbeatRequest(
                "g",
                member,
                epoch,
                rebalance_timeout_ms=4_000 if joins else -1,
                subscribed_topic_names=[TOPIC] if joins else None,
                # It reports that it owns nothing, so that no rebalance waits for it to revoke anything.
                topic_partitions=[] if epoch >= 0 else None,
            )
            return await ask(request, lambda response: int(response.error_code))

        async def commit(member: str, epoch: int) -> int:
            topic = OffsetCommitRequestTopic(TOPIC, partitions=[OffsetCommitRequestPartition(0, 5)])
            request = OffsetCommitRequest("g", epoch, member, topics=[topic])
            return code_of_commit(await ask(request, code_of_commit))

        async def commit_in_transaction(member: str, epoch: int) -> int:
            topic = TxnOffsetCommitRequestTopic(TOPIC, [TxnOffsetCommitRequestPartition(0, 5)])
            request = TxnOffsetCommitRequest("id", "g", *producer._identity, epoch, member, topics=[topic])
            return code_of_commit(await ask(request, code_of_commit))

        first = (await heartbeat("a", 0)).member_epoch
        assert await commit("a", first) == ErrorCode.NONE
        await heartbeat("b", 0)
        later = first
        while later == first:
            later = (await heartbeat("a", later)).member_epoch
            await asyncio.sleep(BACKOFF_S)
        producer.begin()
        await producer.send_offsets("g", TOPIC, {1: 1})
        assert await commit("a", first) == ErrorCode.STALE_MEMBER_EPOCH
        assert await commit_in_transaction("a", first) in (ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.ILLEGAL_GENERATION)
        assert await commit_in_transaction("a", later) == ErrorCode.NONE
        await heartbeat("a", -1)
        assert await commit("a", later) == ErrorCode.UNKNOWN_MEMBER_ID
        assert await commit_in_transaction("a", later) == ErrorCode.UNKNOWN_MEMBER_ID
        await producer.abort()

    play(script)


def code_of_commit(response: Any) -> int:
    return int(response.topics[0].partitions[0].error_code)


# Power.

CUT_S = 6.0
FLUSH_MS = 500
SYNC_S_MAX = 0.25


def test_4_a_power_cut_of_all_takes_no_more_than_was_not_flushed() -> None:
    """With flush.ms only what was acknowledged less than this, and the time to look and to sync, before is lost."""
    shape = Shape(partitions=2, produce_pause_s=0.05, members=0, flush_ms=FLUSH_MS)
    lost_s: list[float] = []

    def inspect(world: World) -> None:
        for send in world.history.operations:
            final = world.history.finals.get(send.key)
            if final is not None and send.status is Status.OK and send.value not in final.values():
                assert send.completed is not None
                lost_s.append(CUT_S - send.completed)

    for seed in range(10):
        plan = Plan(seed, shape, (Fault(CUT_S, "power", (1, 2, 3), 0.5),), 10.0, LOST_EVERYWHERE)
        assert simulate(plan, inspect=inspect).anomalies == []
        if lost_s:
            break
    assert lost_s, "a power cut that takes nothing shows nothing"
    assert max(lost_s) <= (FLUSH_MS + FLUSH_CHECK_MS) / 1000 + SYNC_S_MAX


def test_9_the_last_in_sync_replica_does_not_lead_after_it_lost_power() -> None:
    """The last one to leave it did so when too few were left to commit anything, so it has all that was committed."""
    shape = Shape(partitions=1, producers=1, consumers=1, members=0, controllers=3, produce_pause_s=0.05)

    def run() -> None:
        world = World("last in sync", shape)
        try:
            world.start_nodes()
            assert world.call(world.create_topic(), SCRIPT_S)
            world.start_clients()
            world.run(2)
            others = [machine for machine in world.machines.values() if machine.node_id in (1, 2, 3)]
            leader = world.leader()
            assert leader is not None
            others.remove(leader)
            for machine in others:
                machine.kill()
                world.run(3)
            assert state_of(world).in_sync_replicas == (leader.node_id,)
            leader.lose_power()
            world.run(0.2)
            leader.start()
            world.run(5)
            assert leader.state == "up"
            assert state_of(world).leader == NO_LEADER
            behind, intact = others
            behind.start()
            world.run(3)
            assert state_of(world).leader == NO_LEADER
            intact.start()
            world.run(3)
            assert state_of(world).leader == intact.node_id
            world.stop_changes()
            assert world.run(SCRIPT_S, world.is_drained)
            assert world.call(world.catch_up(), SCRIPT_S)
            assert world.call(world.read_everything(), SCRIPT_S)
            assert check(world.history) == []
        finally:
            world.close()

    without_collector(run)


def test_9_a_leader_that_is_left_alone_has_everything_on_disk_before_others_are_forgotten() -> None:
    """Until then they are eligible, and it may lose power."""
    shape = replace(SCRIPTED, partitions=1, producers=1, consumers=1, controllers=3, min_insync_replicas=1)

    def run() -> None:
        world = World("left alone", shape)
        try:
            world.start_nodes()
            assert world.call(world.create_topic(), SCRIPT_S)
            world.start_clients()
            world.run(2)
            leader = world.leader()
            assert leader is not None
            assert leader.node is not None
            assert leader.node._broker is not None
            partition = leader.node._broker.partitions.get(TOPIC, 0)
            assert partition is not None
            assert partition.log.flushed_offset < partition.high_watermark
            leader.slow_disk_us_max = SLOW_DISK_US
            for number in {1, 2, 3} - {leader.node_id}:
                world.machines[number].kill()
            alone = (leader.node_id,), ()
            while (state_of(world).in_sync_replicas, state_of(world).eligible_leader_replicas) != alone:
                high_watermark = partition.high_watermark
                world.run(0.0001)
            assert partition.log.flushed_offset >= high_watermark
            leader.lose_power()
            world.run(1)
            world.keep_running()
            world.stop_changes()
            assert world.run(SCRIPT_S, world.is_drained)
            assert world.call(world.read_everything(), SCRIPT_S)
            lost = [one for one in check(world.history) if one.kind not in READ_BEFORE_SYNCED]
            assert lost == []
        finally:
            world.close()

    without_collector(run)


def test_9_a_broker_that_is_killed_while_it_registers_stays_trusted() -> None:
    """The controllers know an incarnation that does not know its own epoch; it had nothing to lose under it."""
    shape = replace(SCRIPTED, partitions=1, producers=1, consumers=1, controllers=3, min_insync_replicas=1)

    def run() -> None:
        world = World("registering", shape)
        try:
            world.start_nodes()
            assert world.call(world.create_topic(), SCRIPT_S)
            world.start_clients()
            world.run(2)
            leader = world.leader()
            assert leader is not None
            first, last = (world.machines[number] for number in (1, 2, 3) if number != leader.node_id)
            leader.lose_power()
            first.kill()
            last.kill()
            first.start()
            world.run(1)
            last.start()
            kill_when_registered(world, last)
            assert state_of(world).eligible_leader_replicas == (last.node_id,)
            leader.start()
            world.run(3)
            assert state_of(world).leader == NO_LEADER
            last.start()
            world.run(3)
            assert state_of(world).leader == last.node_id
            world.stop_changes()
            assert world.run(20, world.is_drained)
            assert world.call(world.read_everything(), SCRIPT_S)
            assert check(world.history) == []
        finally:
            world.close()

    without_collector(run)


def kill_when_registered(world: World, machine: Machine) -> None:
    """Kill a broker that starts as soon as the controllers have taken it in, before it hears of that."""

    def epoch() -> int:
        controller = world.controller()
        assert controller is not None
        assert controller.node is not None
        return controller.node._raft.image.brokers[machine.node_id].epoch

    before = epoch()
    while epoch() == before:
        world.run(0.0001)
    machine.kill()


def state_of(world: World) -> PartitionState:
    """The first partition as the active controller has it."""
    controller = world.controller()
    assert controller is not None
    assert controller.node is not None
    state = controller.node._raft.image.partition(TOPIC, 0)
    assert state is not None
    return state
