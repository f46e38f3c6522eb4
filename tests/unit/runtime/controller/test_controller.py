"""The active controller: brokers come, fall silent, leave; what follows for partitions; who may ask."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from unittest.mock import Mock, patch

import pytest
from controller_world import QUICK, ControllerWorld, play

from penstock.core.metadata.elections import ElectionType
from penstock.core.metadata.features import GROUP_VERSION, SHARE_VERSION, STREAMS_VERSION, TRANSACTION_VERSION
from penstock.core.metadata.image import ELIGIBLE_LEADER_REPLICAS_VERSION, METADATA_VERSION, ResourceType
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.controller import controller as controller_shell
from penstock.runtime.controller import duties as controller_duties
from penstock.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    BrokerState,
)
from penstock.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from penstock.wire.messages.elect_leaders import TopicPartitions
from penstock.wire.messages.metadata_records import FeatureLevelRecord, PartitionChangeRecord

CALM = replace(QUICK, session_timeout_ms=60_000, leader_imbalance_check_interval_ms=60_000)


def test_a_new_cluster_begins_with_its_features() -> None:
    async def scene(world: ControllerWorld) -> None:
        await world.until(lambda: METADATA_VERSION in world.image.features)
        assert world.image.features == {
            METADATA_VERSION: 30,
            ELIGIBLE_LEADER_REPLICAS_VERSION: 1,
            TRANSACTION_VERSION: 2,
            GROUP_VERSION: 1,
            SHARE_VERSION: 1,
            STREAMS_VERSION: 1,
        }
        assert world.image.overrides(ResourceType.BROKER, "") == {"min.insync.replicas": "2"}

    play(scene, min_insync_replicas=2)


def test_a_controller_begins_and_elects_once_the_log_takes_records_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_duties, "RETRY_MS", 10)

    async def scene(world: ControllerWorld) -> None:
        await world.start(1)
        await world.create("t", (1,))
        world.quorum.commit([PartitionChangeRecord(0, world.image.topics["t"].topic_id, leader=-1)])
        world.quorum.is_full = True
        world.controller.on_leadership(True)
        registered = asyncio.ensure_future(world.controller.register_broker(world.registration(2)))
        await asyncio.sleep(0.03)
        assert not registered.done()
        world.quorum.is_full = False
        await registered
        await world.until(lambda: world.state().leader == 1)
        # A sweep that fails later is repeated as well.
        world.quorum.commit([PartitionChangeRecord(0, world.image.topics["t"].topic_id, leader=-1)])
        world.quorum.is_full = True
        active = world.controller._active()
        active.sweep()
        await asyncio.sleep(0.03)
        world.quorum.is_full = False
        await world.until(lambda: world.state().leader == 1)

    play(scene, settings=CALM)


def test_a_silent_broker_is_fenced_and_its_partitions_move() -> None:
    async def scene(world: ControllerWorld) -> None:
        await world.start(1, 2)
        await world.create("t", (1, 2))
        alive = asyncio.ensure_future(world.keep_alive(2))
        took = await world.until(lambda: world.image.brokers[1].fenced)
        alive.cancel()
        assert world.state().leader == 2
        assert world.state().in_sync_replicas == (2,)
        assert took < 1.0
        assert not world.image.brokers[2].fenced

    play(scene)


def test_a_broker_whose_requests_were_abandoned_is_fenced_when_it_falls_silent() -> None:
    """Its connection broke just when it was registered, and again when it was unfenced."""

    async def scene(world: ControllerWorld) -> None:
        registering = asyncio.ensure_future(world.controller.register_broker(world.registration(1)))
        await world.turns_until(lambda: 1 in world.image.brokers)
        registering.cancel()
        world.epochs[1] = world.image.brokers[1].epoch
        beating = asyncio.ensure_future(world.beat(1))
        await world.turns_until(lambda: not world.image.brokers[1].fenced)
        beating.cancel()
        await world.until(lambda: world.image.brokers[1].fenced)
        assert not (await world.beat(1)).is_fenced

    play(scene)


def test_a_broken_connection_shortens_the_session_unless_there_is_another() -> None:
    async def scene(world: ControllerWorld) -> None:
        await world.start(1, 2)
        old, new = object(), object()
        await world.beat(1, old)
        await world.beat(1, new)
        world.controller.connection_lost(1, old)
        await asyncio.sleep(0.1)
        assert not world.image.brokers[1].fenced
        world.controller.connection_lost(1, new)
        await world.until(lambda: world.image.brokers[1].fenced, 1.0)
        assert not world.image.brokers[2].fenced

    play(scene, settings=CALM)


def test_a_heartbeat_within_the_grace_saves_the_session() -> None:
    async def scene(world: ControllerWorld) -> None:
        await world.start(1)
        connection = object()
        await world.beat(1, connection)
        world.controller.connection_lost(1, connection)
        await world.beat(1, object())
        await asyncio.sleep(0.1)
        assert not world.image.brokers[1].fenced

    play(scene, settings=CALM)


def test_a_new_active_controller_gives_every_broker_a_fresh_session() -> None:
    async def scene(world: ControllerWorld) -> None:
        await world.start(1)
        world.controller.on_leadership(False)
        await asyncio.sleep(0.3)
        world.controller.on_leadership(True)
        await asyncio.sleep(0.05)
        assert not world.image.brokers[1].fenced
        await world.until(lambda: world.image.brokers[1].fenced, 1.0)

    play(scene)


def test_a_suspended_controller_fences_no_broker_for_it() -> None:
    async def scene(world: ControllerWorld) -> None:
        await world.start(1)
        time.sleep(0.6)  # noqa: ASYNC251
        await asyncio.sleep(0.01)
        assert not world.image.brokers[1].fenced
        await world.until(lambda: world.image.brokers[1].fenced, 2.0)

    play(scene)


def test_only_the_active_controller_decides_about_brokers() -> None:
    async def scene(world: ControllerWorld) -> None:
        await world.start(1)
        world.controller.on_leadership(False)
        for call in (world.beat(1), world.controller.register_broker(world.registration(2))):
            with pytest.raises(ApiError) as caught:
                await call
            assert caught.value.code is ErrorCode.NOT_CONTROLLER

    play(scene)


def test_an_epoch_is_the_offset_of_the_registration() -> None:
    async def scene(world: ControllerWorld) -> None:
        await world.until(lambda: METADATA_VERSION in world.image.features)
        before = world.quorum.log.end_offset
        assert await world.controller.register_broker(world.registration(1)) == before
        reply = await world.controller.heartbeat(BrokerHeartbeatRequest(1, before, before - 1))
        assert (reply.is_caught_up, reply.is_fenced) == (False, True)
        reply = await world.controller.heartbeat(BrokerHeartbeatRequest(1, before, before))
        assert (reply.is_caught_up, reply.is_fenced) == (True, False)

    play(scene, settings=CALM)


def test_a_second_process_with_the_same_id_is_refused_while_the_first_lives() -> None:
    async def scene(world: ControllerWorld) -> None:
        await world.start(1)
        world.incarnations[1] = 2
        elsewhere = world.registration(1)._replace(log_dirs=[b"e" * 16])
        with pytest.raises(ApiError) as caught:
            await world.controller.register_broker(elsewhere)
        assert caught.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
        await world.until(lambda: world.image.brokers[1].fenced)
        assert await world.controller.register_broker(elsewhere) > world.epochs[1]
        with pytest.raises(ApiError) as caught:
            await world.beat(1)
        assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH

    play(scene)


def test_a_controlled_shutdown_waits_until_others_know() -> None:
    async def scene(world: ControllerWorld) -> None:
        await world.start(1, 2)
        await world.create("t", (1, 2), (2, 1))
        behind = world.quorum.log.end_offset - 1
        await world.beat(2, current_metadata_offset=behind)
        assert (await world.beat(1, want_shut_down=True)).should_shut_down is False
        assert [world.state("t", index).leader for index in (0, 1)] == [2, 2]
        await world.beat(2, current_metadata_offset=behind)
        assert (await world.beat(1, want_shut_down=True)).should_shut_down is False
        await world.beat(2)
        reply = await world.beat(1, want_shut_down=True)
        assert (reply.should_shut_down, reply.is_fenced) == (True, True)
        assert world.state("t", 1).in_sync_replicas == (2,)

    play(scene, settings=CALM)


def test_what_many_partitions_need_is_done_in_bounded_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_duties, "RECORDS_PER_DECISION", 10)
    monkeypatch.setattr("penstock.runtime.controller.controller.RECORDS_PER_DECISION", 10)
    monkeypatch.setattr(controller_duties, "PARTITIONS_PER_TURN", 7)

    async def scene(world: ControllerWorld) -> None:
        await world.start(1, 2, 3)
        for number in range(20):
            await world.create(f"t{number}", (1, 2), (2, 1), (1, 2), (3, 1))
        world.quorum.batches.clear()
        connection = object()
        await world.beat(1, connection)
        world.controller.connection_lost(1, connection)
        await world.until(lambda: world.image.brokers[1].fenced)
        assert max(world.quorum.batches) <= 11
        assert not world.image.leader_counts[1]
        assert not world.image.in_sync_counts[1]
        world.quorum.batches.clear()
        assert not (await world.beat(2, want_shut_down=True)).should_shut_down
        while not (await world.beat(2, want_shut_down=True)).should_shut_down:
            await world.beat(3)
            await asyncio.sleep(0)
        assert max(world.quorum.batches) <= 11
        assert world.image.leader_counts[-1] == 60, "no other replica has what was on 1 and 2"
        world.quorum.batches.clear()
        world.incarnations[2] = 2
        request = world.registration(2, previous_broker_epoch=world.epochs[2])
        world.epochs[2] = await world.controller.register_broker(request)
        await world.beat(2)
        await world.until(lambda: not world.image.leader_counts[-1])
        assert max(world.quorum.batches) <= 11

    play(scene, settings=CALM)


@pytest.mark.parametrize("ending", ["fenced", "stopped", "unregistered", "killed"])
def test_the_last_in_sync_replicas_of_many_partitions_go_in_bounded_decisions(
    monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    """Without eligible leader replicas they stay in the ISR, which is no reason to go through them again."""
    for module in (controller_duties, controller_shell):
        monkeypatch.setattr(module, "RECORDS_PER_DECISION", 10)

    async def scene(world: ControllerWorld) -> None:
        await world.start(1, 2)
        world.quorum.commit([FeatureLevelRecord(name=ELIGIBLE_LEADER_REPLICAS_VERSION, feature_level=0)])
        for number in range(10):
            await world.create(f"t{number}", (1,), (1,))
            await world.create(f"u{number}", (1, 2))
        world.quorum.batches.clear()
        if ending == "stopped":
            while not (await world.beat(1, want_shut_down=True)).should_shut_down:
                await world.beat(2)
        elif ending == "killed":
            world.incarnations[1] = 2
            await world.beat(1, want_fence=True)
            await world.until(lambda: world.image.brokers[1].fenced)
            world.epochs[1] = await world.controller.register_broker(world.registration(1))
        else:
            await world.beat(1, want_fence=True)
            await world.until(lambda: world.image.brokers[1].fenced)
        if ending == "unregistered":
            await world.controller.unregister_broker(1)
        assert max(world.quorum.batches) <= 11
        assert not world.image.leader_counts[1]
        assert world.state("t0").in_sync_replicas == (1,)
        assert world.state("u0").in_sync_replicas == (2,)

    play(scene, settings=CALM)


@pytest.mark.parametrize("both", [False, True])
def test_a_directory_with_many_partitions_fails_in_bounded_decisions(
    monkeypatch: pytest.MonkeyPatch, both: bool
) -> None:
    for module in (controller_duties, controller_shell):
        monkeypatch.setattr(module, "RECORDS_PER_DECISION", 10)

    async def scene(world: ControllerWorld) -> None:
        await world.start(1, 2)
        disks = [bytes([number]) * 16 for number in (7, 8)]
        await world.controller.register_broker(world.registration(1, log_dirs=disks))
        for number in range(20):
            await world.create(f"t{number}", (1, 2), (2, 1))
        for number in range(20):
            topic_id, other = world.image.topics[f"t{number}"].topic_id, world.state(f"t{number}").directory(2)
            places = (disks[0], other), (other, disks[0])
            changes = [PartitionChangeRecord(index, topic_id, directories=one) for index, one in enumerate(places)]
            world.quorum.commit(changes)
        world.quorum.batches.clear()
        reply = await world.beat(1, offline_log_dirs=disks if both else disks[:1])
        assert not reply.is_partial
        if both:
            await world.until(lambda: world.image.brokers[1].fenced)
        else:
            assert list(world.image.brokers[1].registration.log_dirs) == disks[1:]
            assert not world.image.brokers[1].fenced
        assert not world.image.in_sync_counts[1]
        assert world.image.leader_counts[2] == 40
        assert max(world.quorum.batches) <= 11

    play(scene, settings=CALM)


def test_a_broker_with_intact_directories_returns_in_bounded_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stays eligible in most partitions, which is no reason to go through them again."""
    monkeypatch.setattr(controller_duties, "RECORDS_PER_DECISION", 10)

    async def scene(world: ControllerWorld) -> None:
        await world.start(1, 2)
        for number in range(20):
            await world.create(f"t{number}", (1, 2), (2, 1), (1, 2))
        await world.beat(2, want_fence=True)
        assert world.image.in_sync_counts[1] == 60
        world.quorum.batches.clear()
        world.incarnations[1] = 2
        request = world.registration(1, intact_broker_epoch=world.epochs[1])
        request = request._replace(intact_log_dirs=[world.state("t0").directory(1)])
        world.epochs[1] = await world.controller.register_broker(request)
        assert max(world.quorum.batches) <= 11
        assert not world.image.in_sync_counts[1]
        assert world.image.eligible_counts[1] == 60

    play(scene, settings=CALM)


def test_an_incarnation_that_was_replaced_while_it_registered_gets_no_session() -> None:
    async def scene(world: ControllerWorld) -> None:
        duties = world.controller._duties
        assert duties is not None
        await duties.begun.wait()
        with patch.object(duties.heartbeats, "register", Mock(wraps=duties.heartbeats.register)) as register:
            first = asyncio.ensure_future(world.controller.register_broker(world.registration(1)))
            world.incarnations[1] = 2
            second = asyncio.ensure_future(world.controller.register_broker(world.registration(1)))
            epochs = await asyncio.gather(first, second)
        assert world.image.brokers[1].epoch == epochs[1] > epochs[0]
        assert register.call_count == 1

    play(scene, settings=CALM)


def test_a_broker_with_many_partitions_is_fenced_in_pieces_when_it_wants_to_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (controller_duties, controller_shell):
        monkeypatch.setattr(module, "RECORDS_PER_DECISION", 10)

    async def scene(world: ControllerWorld) -> None:
        await world.start(1, 2)
        for number in range(5):
            await world.create(f"t{number}", (1, 2), (2, 1), (1, 2))
        assert not (await world.beat(1)).is_fenced
        world.quorum.batches.clear()
        assert not (await world.beat(1, want_fence=True)).is_fenced
        await world.until(lambda: world.image.brokers[1].fenced)
        assert max(world.quorum.batches) <= 11
        assert not world.image.brokers[2].fenced

    play(scene, settings=CALM)


def test_leadership_goes_back_to_the_preferred_replica() -> None:
    async def scene(world: ControllerWorld) -> None:
        await world.start(1, 2)
        await world.create("t", (1, 2))
        await world.beat(1, want_fence=True)
        assert world.state().leader == 2
        alive = asyncio.ensure_future(world.keep_alive(1, 2))
        await world.until(lambda: not world.image.brokers[1].fenced)
        assert world.state().leader == 2
        await join_isr(world, "t", 0, (2, 1))
        await world.until(lambda: world.state().leader == 1)
        alive.cancel()

    play(scene)


async def join_isr(world: ControllerWorld, topic: str, partition: int, in_sync: tuple[int, ...]) -> None:
    state = world.state(topic, partition)
    row = AlterPartitionRequestPartitionData(
        partition, state.leader_epoch, (), [BrokerState(one, -1) for one in in_sync], 0, state.partition_epoch
    )
    topics = [AlterPartitionRequestTopicData(world.image.topics[topic].topic_id, [row])]
    request = AlterPartitionRequest(state.leader, world.epochs[state.leader], topics)
    (answer,) = await world.controller.alter_partition(request)
    assert answer.partitions[0].error_code == ErrorCode.NONE


def test_unclean_elections_only_where_a_topic_enables_them() -> None:
    async def scene(world: ControllerWorld) -> None:
        await world.start(1, 2)
        await world.create("careful", (1, 2))
        await world.create("careless", (1, 2), unclean_leader_election_enable="true")
        await world.beat(2, want_fence=True)
        for name in ("careful", "careless"):
            await join_isr(world, name, 0, (1,))
        await world.beat(1, want_fence=True)
        assert {world.state(name).leader for name in ("careful", "careless")} == {-1}
        alive = asyncio.ensure_future(world.keep_alive(2))
        await world.until(lambda: world.state("careless").leader == 2)
        await asyncio.sleep(0.15)
        assert world.state("careful").leader == -1
        alive.cancel()
        (answer,) = await world.controller.elect_leaders(ElectionType.UNCLEAN, [TopicPartitions("careful", [0])])
        assert answer.partition_result[0].error_code == ErrorCode.NONE
        assert world.state("careful").leader == 2

    play(scene, settings=CALM)


def test_an_unregistered_broker_is_forgotten() -> None:
    async def scene(world: ControllerWorld) -> None:
        await world.start(1, 2)
        await world.create("t", (1, 2))
        with pytest.raises(ApiError) as caught:
            await world.controller.unregister_broker(1)
        assert (caught.value.code, world.state().leader) == (ErrorCode.INVALID_REQUEST, 1)
        connection = object()
        await world.beat(1, connection)
        world.controller.connection_lost(1, connection)
        await world.until(lambda: world.image.brokers[1].fenced, 2.0)
        await world.controller.unregister_broker(1)
        assert 1 not in world.image.brokers
        assert world.state().leader == 2
        with pytest.raises(ApiError) as caught:
            await world.controller.unregister_broker(1)
        assert caught.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED

    play(scene, settings=CALM)
