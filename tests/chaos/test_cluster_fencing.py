"""Producers and group members that were replaced stay replaced when another node takes over."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from penstock.model.errors import ErrorCode
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from support.chaos_cluster import ChaosCluster
from support.chaos_load import CLIENT, read_all
from support.group_clients import commit_request, join_request, sync_request
from support.wire_client import WireClient, batch_of

JOIN_VERSION = SYNC_VERSION = 3
COMMIT_VERSION = 8
COORDINATOR_VERSION = 3
GROUP_COORDINATOR, TRANSACTION_COORDINATOR = 0, 1

Figure = Callable[[str], None]


@pytest.mark.timeout(300)
def test_fault_20_a_producer_of_an_old_epoch_is_fenced_by_the_next_leader_too(
    chaos: ChaosCluster, figure: Figure
) -> None:
    topic = chaos.cluster.create_topic()
    chaos.wait_healthy((topic,))
    old_leader = chaos.leader(topic)
    with chaos.wire(old_leader) as client:
        producer_id = client.new_producer_id()

        def send(client: WireClient, epoch: int, sequence: int) -> Any:
            value = b"epoch %d sequence %d" % (epoch, sequence)
            batch = batch_of([value], producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
            return client.produce(topic, batch)

        assert send(client, 0, 0).error_code == 0
        first = send(client, 1, 0)
        assert first.error_code == 0
        assert send(client, 0, 1).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    killed_at = time.monotonic()
    chaos.kill(old_leader)
    chaos.wait_for("another leader", lambda: chaos.leader(topic) not in (-1, old_leader), 20)
    took = time.monotonic() - killed_at
    with chaos.wire(chaos.leader(topic)) as client:
        assert send(client, 0, 1).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        again = send(client, 1, 0)
        assert (again.error_code, again.base_offset) == (0, first.base_offset), "one copy, at its first offset"
        assert send(client, 1, 1).error_code == 0
    found = [value for _, value in read_all(chaos.servers, topic, 0)]
    assert found == ["epoch 0 sequence 0", "epoch 1 sequence 0", "epoch 1 sequence 1"]
    figure(f"20 old producer epoch: refused before and after the failover, which took {took:.2f} s; one copy each")


@pytest.mark.timeout(300)
def test_fault_20_a_transactional_producer_that_was_replaced_stays_fenced(chaos: ChaosCluster, figure: Figure) -> None:
    """The coordinator that knew of the replacement is killed before the old producer tries to go on."""
    topic = chaos.cluster.create_topic()
    settings = {**CLIENT, "bootstrap.servers": chaos.servers, "transactional.id": topic}
    old, new = Producer(settings), Producer(settings)
    old.init_transactions(30)
    old.begin_transaction()
    old.produce(topic, "of the old one")
    old.flush(10)
    new.init_transactions(30)
    chaos.kill(coordinator(chaos, topic, TRANSACTION_COORDINATOR))
    with pytest.raises(KafkaException) as refused:
        old.commit_transaction(60)
    new.begin_transaction()
    new.produce(topic, "of the new one")
    new.commit_transaction(60)
    code = refused.value.args[0].code()
    assert code in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED)
    assert [value for _, value in read_all(chaos.servers, topic, 0)] == ["of the new one"]
    figure(f"20 replaced transactional producer: {refused.value.args[0].name()} after its coordinator was killed")


@pytest.mark.timeout(300)
def test_fault_23_a_commit_of_an_old_generation_is_refused_by_the_next_coordinator_too(
    chaos: ChaosCluster, figure: Figure
) -> None:
    topic = chaos.cluster.create_topic()
    group = f"group-of-{topic}"
    first = coordinator(chaos, group, GROUP_COORDINATOR)
    with chaos.wire(first) as client:
        member, generation = join(client, group, "")
        assert commit(client, group, topic, 10, member, generation) == 0
        member, newer = join(client, group, member)
        assert newer > generation
        assert commit(client, group, topic, 11, member, generation) == ErrorCode.ILLEGAL_GENERATION
    killed_at = time.monotonic()
    chaos.kill(first)
    with chaos.wire(coordinator(chaos, group, GROUP_COORDINATOR, other_than=first)) as client:
        chaos.wait_for("a coordinator", lambda: commit(client, group, topic, 12, member, newer) == 0, 20)
        took = time.monotonic() - killed_at
        assert commit(client, group, topic, 13, member, generation) == ErrorCode.ILLEGAL_GENERATION
        assert commit(client, group, topic, 14, "another member", newer) == ErrorCode.UNKNOWN_MEMBER_ID
        assert commit(client, group, topic, 15, "", -1) == ErrorCode.UNKNOWN_MEMBER_ID
        assert commit(client, group, topic, 16, member, newer) == 0
    figure(f"23 stale member's commit: refused before and after the failover; the member commits after {took:.2f} s")


def coordinator(chaos: ChaosCluster, key: str, kind: int, other_than: int = -1) -> int:
    """The node that coordinates a group or a transactional id."""
    found = -1

    def is_found() -> bool:
        nonlocal found
        with chaos.wire(chaos.running()[0]) as client:
            answer = client.call(FindCoordinatorRequest(key, kind), COORDINATOR_VERSION)
        found = answer.node_id if answer.error_code == 0 else -1
        return found not in (-1, other_than)

    chaos.wait_for(f"a coordinator of {key}", is_found, 30)
    return found


def join(client: WireClient, group: str, member: str) -> tuple[str, int]:
    """Become, or go on as, the only member of a group; the member's id and the group's generation."""
    joined = client.call(join_request(member, group_id=group), JOIN_VERSION)
    assert joined.error_code == 0, joined
    shares = {joined.member_id: b""}
    synced = client.call(
        sync_request(joined.member_id, joined.generation_id, shares)._replace(group_id=group), SYNC_VERSION
    )
    assert synced.error_code == 0, synced
    return joined.member_id, joined.generation_id


def commit(client: WireClient, group: str, topic: str, offset: int, member: str, generation: int) -> int:
    """Commit an offset and return the error code."""
    request = commit_request({(topic, 0): offset}, member, generation, group_id=group)
    answer = client.call(request, COMMIT_VERSION)
    code: int = answer.topics[0].partitions[0].error_code
    return code
