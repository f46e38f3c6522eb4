"""Brokers register, show that they live, are fenced, and leave."""

from __future__ import annotations

from typing import Any

import pytest
from metadata_world import CLUSTER_ID, GRACE_MS, SESSION_MS, ClusterWorld

from penstock.core.metadata import brokers, producer_ids
from penstock.core.metadata.heartbeats import Heartbeats
from penstock.core.metadata.image import ELIGIBLE_LEADER_REPLICAS_VERSION, METADATA_VERSION
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from penstock.wire.messages.broker_registration import Feature
from penstock.wire.messages.metadata_records import RegisterBrokerRecord

NEWCOMER = 9


def refusal(world: ClusterWorld, broker_id: int = NEWCOMER, **changes: Any) -> ApiError:
    before = world.offset
    with pytest.raises(ApiError) as caught:
        world.register(broker_id, **changes)
    assert world.offset == before
    return caught.value


def test_the_epoch_of_a_registration_is_its_offset() -> None:
    world = ClusterWorld(2)
    world.create("t", (1, 2))
    world.lose(1)
    world.incarnations[1] += 1
    before = world.offset
    request = world.registration(1)
    result = brokers.register(world.image, request, CLUSTER_ID, before, False, world.defaults)
    position = next(index for index, one in enumerate(result.records) if isinstance(one, RegisterBrokerRecord))
    assert position > 0, "what the earlier incarnation had comes first"
    assert result.response == before + position == result.records[position].broker_epoch
    assert result.records[position].fenced


def test_the_same_incarnation_amends_its_registration() -> None:
    world = ClusterWorld(1)
    epoch = world.image.brokers[1].epoch
    assert world.register(1, rack="a") == epoch
    broker = world.image.brokers[1]
    assert (broker.epoch, broker.registration.rack, broker.fenced) == (epoch, "a", False)


def test_a_rejected_registration_has_the_reason() -> None:
    world = ClusterWorld(2)
    assert refusal(world, cluster_id="another").code is ErrorCode.INCONSISTENT_CLUSTER_ID
    assert refusal(world, log_dirs=[]).code is ErrorCode.INVALID_REGISTRATION
    assert refusal(world, log_dirs=[bytes(16)]).code is ErrorCode.INVALID_REGISTRATION
    assert refusal(world, log_dirs=[b"d" * 16] * 2).code is ErrorCode.INVALID_REGISTRATION
    taken = refusal(world, log_dirs=[world.directory(2)])
    assert (taken.code, "broker 2" in taken.message) == (ErrorCode.INVALID_REGISTRATION, True)
    world.incarnations[1] += 1
    elsewhere = [world.directory(1, number=1)]
    assert refusal(world, 1, log_dirs=elsewhere).code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert refusal(world, is_migrating_zk_broker=True).code is ErrorCode.BROKER_ID_NOT_REGISTERED


def test_the_broker_that_holds_the_data_directories_takes_over_at_once() -> None:
    """They are locked: their last owner's process is gone, however fresh its session."""
    world = ClusterWorld(1)
    epoch = world.image.brokers[1].epoch
    world.incarnations[1] += 1
    elsewhere = [world.directory(1, number=1)]
    assert (
        refusal(world, 1, log_dirs=elsewhere, previous_broker_epoch=epoch).code
        is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    )
    second = world.register(1, previous_broker_epoch=epoch)
    assert second > epoch
    world.heartbeat(1)
    world.incarnations[1] += 1
    for intact, found in (([world.directory(1)], epoch), (elsewhere, second)):
        refused = refusal(world, 1, intact_broker_epoch=found, intact_log_dirs=intact)
        assert refused.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert world.register(1, intact_broker_epoch=second, intact_log_dirs=[world.directory(1)]) > second


def test_a_late_registration_of_an_earlier_process_does_not_replace_a_living_one() -> None:
    world = ClusterWorld(1)
    first = world.image.brokers[1].epoch
    world.incarnations[1] += 1
    second = world.register(1, previous_broker_epoch=first)
    world.heartbeat(1)
    world.incarnations[1] -= 1
    for previous in (first - 1, first, -1):
        refused = refusal(world, 1, previous_broker_epoch=previous)
        assert refused.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert (world.image.brokers[1].epoch, world.image.brokers[1].fenced) == (second, False)
    assert world.heartbeat(1).is_fenced is False
    world.lose(1)
    assert world.register(1) > second, "no other broker is alive"


@pytest.mark.parametrize(
    "supported",
    [
        [Feature(METADATA_VERSION, 7, 26), Feature(ELIGIBLE_LEADER_REPLICAS_VERSION, 0, 1)],
        [Feature(METADATA_VERSION, 7, 27)],
        [Feature(ELIGIBLE_LEADER_REPLICAS_VERSION, 0, 1)],
        [Feature(METADATA_VERSION, 7, 27), Feature(ELIGIBLE_LEADER_REPLICAS_VERSION, 0, 1), Feature("x", 2, 3)],
    ],
)
def test_a_broker_must_support_what_the_cluster_runs(supported: list[Feature]) -> None:
    assert refusal(ClusterWorld(1), features=supported).code is ErrorCode.UNSUPPORTED_VERSION


def test_a_heartbeat_of_another_incarnation_is_refused() -> None:
    world = ClusterWorld(1)
    with pytest.raises(ApiError) as caught:
        world.heartbeat(1, broker_epoch=world.image.brokers[1].epoch - 1)
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH
    with pytest.raises(ApiError) as caught:
        brokers.check_broker_epoch(world.image, NEWCOMER, 0)
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_a_broker_is_unfenced_once_it_knows_of_its_registration() -> None:
    world = ClusterWorld(1)
    epoch = world.register(2)
    reply = world.heartbeat(2, current_metadata_offset=epoch - 1)
    assert reply == brokers.HeartbeatReply(is_caught_up=False, is_fenced=True)
    assert world.heartbeat(2, current_metadata_offset=epoch, want_fence=True).is_fenced
    reply = world.heartbeat(2, current_metadata_offset=epoch)
    assert reply == brokers.HeartbeatReply(is_caught_up=True, is_fenced=False)


def test_a_broker_can_ask_to_be_fenced() -> None:
    world = ClusterWorld(2)
    world.create("t", (1, 2))
    assert world.heartbeat(1, want_fence=True).is_fenced
    assert world.show() == "leader=2@1 isr=2 elr=1"


def test_a_broker_that_leads_nothing_may_go_at_once() -> None:
    world = ClusterWorld(2)
    world.create("t", (2, 1))
    reply = world.heartbeat(1, want_shut_down=True)
    assert (reply.is_fenced, reply.should_shut_down) == (True, True)
    assert world.show() == "leader=2@0 isr=2 elr=1"


def test_a_fenced_broker_may_go_at_once() -> None:
    world = ClusterWorld(2)
    world.fence(1)
    assert world.heartbeat(1, want_shut_down=True).should_shut_down


def test_a_broker_that_leads_may_go_when_all_know_its_successors() -> None:
    world = ClusterWorld(3)
    world.create("t", (1, 2, 3))
    reply = world.heartbeat(1, want_shut_down=True)
    assert reply == brokers.HeartbeatReply(is_caught_up=True, is_fenced=False)
    assert world.show() == "leader=2@1 isr=2,3"
    assert world.image.brokers[1].in_controlled_shutdown
    assert world.alter_isr([2, 3, 1]).error_code == ErrorCode.INELIGIBLE_REPLICA
    world.heartbeat(2)
    assert not world.heartbeat(1, want_shut_down=True).should_shut_down, "3 might still think that 1 leads"
    world.heartbeat(3)
    assert world.heartbeat(1, want_shut_down=True).should_shut_down
    world.start(1, clean=True)
    assert not world.image.brokers[1].in_controlled_shutdown


def test_more_than_one_decision_holds_is_left_to_the_caller() -> None:
    world = ClusterWorld(2)
    world.create("t", *[(1, 2)] * 5)
    world.heartbeat(2)
    result = brokers.heartbeat(world.image, world.heartbeats, _beat(world, 1, want_shut_down=True), world.defaults, 4)
    assert len(result.records) == 1, "it is in controlled shutdown, and that is all"
    result = brokers.heartbeat(world.image, world.heartbeats, _beat(world, 1, want_fence=True), world.defaults, 4)
    assert (result.records, result.response.is_fenced) == ([], False)
    world.fence(1, 2)
    result = brokers.heartbeat(world.image, world.heartbeats, _beat(world, 2), world.defaults, 4)
    assert len(result.records) == 1 + 4


def _beat(world: ClusterWorld, broker_id: int, **changes: Any) -> BrokerHeartbeatRequest:
    epoch = world.image.brokers[broker_id].epoch
    return BrokerHeartbeatRequest(broker_id, epoch, world.offset)._replace(**changes)


def test_a_broker_that_is_alive_and_in_sync_is_not_unregistered() -> None:
    """It may have returned since the request was made."""
    world = ClusterWorld(2)
    world.create("t", (1, 2))
    with pytest.raises(ApiError) as caught:
        brokers.unregister(world.image, 1, world.defaults)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    world.alter_isr([1])
    world.carry_out(brokers.unregister(world.image, 2, world.defaults))
    assert 2 not in world.image.brokers


def test_an_unregistered_broker_is_gone() -> None:
    world = ClusterWorld(2)
    world.create("t", (1, 2))
    world.fence(1)
    world.carry_out(brokers.unregister(world.image, 1, world.defaults))
    assert world.show() == "leader=2@1 isr=2 elr=1"
    assert 1 not in world.image.brokers
    with pytest.raises(ApiError) as caught:
        brokers.unregister(world.image, 1, world.defaults)
    assert caught.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED


def test_producer_ids_go_to_registered_brokers_in_blocks() -> None:
    world = ClusterWorld(2)
    blocks = [
        world.carry_out(producer_ids.allocate(world.image, number, world.image.brokers[number].epoch))
        for number in (1, 2)
    ]
    assert blocks == [range(1000), range(1000, 2000)]
    with pytest.raises(ApiError) as caught:
        producer_ids.allocate(world.image, 1, 12345)
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_sessions_end_in_the_order_of_silence() -> None:
    world = ClusterWorld(4)
    sessions = Heartbeats(world.image, SESSION_MS, GRACE_MS)
    for broker_id in (1, 2, 3):
        sessions.register(broker_id, broker_id)
    world.fence(4)
    assert sessions.next_check_ms(0) == SESSION_MS + 2
    assert sessions.stale_brokers(SESSION_MS + 1) == []
    assert sessions.stale_brokers(SESSION_MS + 3) == [1, 2]
    sessions.touch(1, 10)
    assert sessions.stale_brokers(SESSION_MS + 9) == [2, 3]
    sessions.fencing(2, True)
    assert sessions.stale_brokers(SESSION_MS + 9) == [3]
    world.fence(3)
    assert sessions.next_check_ms(0) == SESSION_MS + 11
    assert not sessions.has_valid_session(3, 0)
    assert sessions.has_valid_session(1, SESSION_MS + 10)
    assert not sessions.has_valid_session(1, SESSION_MS + 11)


def test_a_lost_connection_leaves_a_short_grace_and_a_standstill_expires_no_session() -> None:
    sessions = Heartbeats(ClusterWorld(1).image, SESSION_MS, GRACE_MS)
    sessions.register(1, 0)
    sessions.connection_lost(1, 100)
    assert sessions.stale_brokers(100 + GRACE_MS) == []
    assert sessions.stale_brokers(101 + GRACE_MS) == [1]
    sessions.extend(50)
    assert sessions.stale_brokers(150 + GRACE_MS) == []
    sessions.touch(1, 400)
    sessions.connection_lost(1, 400 + SESSION_MS - 1)
    assert sessions.stale_brokers(401 + SESSION_MS) == [1], "a session never gets longer by a lost connection"


def test_a_broker_that_is_unfenced_in_the_image_has_a_session_whatever_became_of_its_request() -> None:
    world = ClusterWorld(2)
    sessions = Heartbeats(world.image, SESSION_MS, GRACE_MS)
    assert sessions.next_check_ms(7) == 7 + SESSION_MS
    assert sessions.stale_brokers(7) == []
    assert sessions.has_valid_session(1, 7 + SESSION_MS)
    assert sessions.stale_brokers(8 + SESSION_MS) == [1, 2]
    sessions.begin_controlled_shutdown(2, 5)
    world.start(2)
    assert not sessions.shutting_down(2), "another incarnation has another session"
    assert sessions.stale_brokers(8 + SESSION_MS) == [1]
