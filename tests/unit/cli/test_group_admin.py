"""Busy coordinators are waited for, other errors come at once with advice, and lost partitions are left out."""

from __future__ import annotations

import concurrent.futures
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition

from penstock.cli.admin import Partition, Topic
from penstock.cli.failures import CommandFailure
from penstock.cli.group import admin as group_admin
from penstock.cli.group.admin import CommittedOffset, GroupAdmin, by_topic

PLACE = {("orders", 0): CommittedOffset(5, 2, "note")}


class FakeClient:
    """Answers one call after the other from a list: exceptions, or partitions with their errors."""

    def __init__(self, answers: list[KafkaError | KafkaException | None]) -> None:
        self.answers = answers
        self.seen: list[TopicPartition] = []

    def alter_consumer_group_offsets(self, request: list[ConsumerGroupTopicPartitions], **_: Any) -> dict[str, Any]:
        [wanted] = request
        answer = self.answers.pop(0)
        future: concurrent.futures.Future[ConsumerGroupTopicPartitions] = concurrent.futures.Future()
        if isinstance(answer, KafkaException):
            future.set_exception(answer)
        else:
            [self.seen] = [list(wanted.topic_partitions or ())]
            partitions = [Answer("orders", 0, answer)]
            future.set_result(ConsumerGroupTopicPartitions(wanted.group_id, partitions))  # type: ignore[arg-type]
        return {wanted.group_id: future}

    def list_consumer_groups(self, **_: Any) -> concurrent.futures.Future[Any]:
        answer = self.answers.pop(0)
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        # As librdkafka's binding: the errors of brokers are no exceptions.
        future.set_result(SimpleNamespace(valid=[], errors=[answer] if answer is not None else []))
        return future

    def list_offsets(self, wanted: dict[TopicPartition, Any], **_: Any) -> dict[TopicPartition, Any]:
        self.seen = list(wanted)
        futures = {}
        for name in wanted:
            futures[name] = concurrent.futures.Future[Any]()
            if name.partition:
                futures[name].set_exception(KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE)))
            else:
                futures[name].set_result(SimpleNamespace(offset=7))
        return futures


class Answer:
    def __init__(self, topic: str, partition: int, error: KafkaError | None) -> None:
        self.topic, self.partition, self.error = topic, partition, error


def admin(monkeypatch: pytest.MonkeyPatch, *answers: KafkaError | KafkaException | None) -> tuple[GroupAdmin, Any]:
    monkeypatch.setattr(group_admin, "RETRY_S", 0.001)
    made = GroupAdmin.__new__(GroupAdmin)
    client = FakeClient(list(answers))
    made._client = client  # type: ignore[assignment]
    made._timeout_s = 0.2
    return made, client


def test_a_coordinator_that_loads_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    loading = KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS)
    made, client = admin(monkeypatch, KafkaException(loading), loading, None)
    made.commit("billing", PLACE)
    assert client.answers == []
    [sent] = client.seen
    assert (sent.topic, sent.partition, sent.offset, sent.leader_epoch, sent.metadata) == ("orders", 0, 5, 2, "note")


def test_a_broker_that_loads_is_asked_for_its_groups_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made, client = admin(monkeypatch, KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS), None)
    assert made.groups() == []
    assert client.answers == []


def test_a_broker_that_does_not_list_its_groups_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = admin(monkeypatch, KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED))
    with pytest.raises(CommandFailure, match="cannot list the groups of every broker"):
        made.groups()


def test_it_is_not_asked_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    moved = KafkaError(KafkaError.NOT_COORDINATOR)
    made, client = admin(monkeypatch, *[moved] * 10_000)
    with pytest.raises(CommandFailure, match="cannot set the offsets of group billing in orders-0"):
        made.commit("billing", PLACE)
    assert 1 < len(client.answers) < 9_999


def test_other_errors_come_at_once_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    made, client = admin(monkeypatch, KafkaError(KafkaError.UNKNOWN_MEMBER_ID), None)
    with pytest.raises(CommandFailure) as caught:
        made.commit("billing", PLACE)
    assert "(UNKNOWN_MEMBER_ID); 0 of 1 partition set" in caught.value.why
    assert "`penstock group describe billing`" in caught.value.advice
    assert client.answers == [None]
    made, _ = admin(monkeypatch, KafkaException(KafkaError(KafkaError.GROUP_ID_NOT_FOUND)))
    with pytest.raises(CommandFailure) as caught:
        made.commit("billing", PLACE)
    assert "penstock group list" in caught.value.advice


def test_ends_are_asked_only_of_partitions_with_a_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    made, client = admin(monkeypatch)
    partitions = (Partition(0, 1, (1,), (1,)), Partition(1, 1, (1,), (1,)), Partition(2, -1, (1,), ()))
    monkeypatch.setattr(made, "topics", lambda: [Topic("orders", partitions, False)])
    assert made.end_offsets([("orders", 0), ("orders", 1), ("orders", 2), ("gone", 0)]) == {("orders", 0): 7}
    assert [(each.topic, each.partition) for each in client.seen] == [("orders", 0), ("orders", 1)]
    assert made.end_offsets([]) == {}


def test_partitions_by_topic() -> None:
    assert by_topic([("b", 1), ("a", 2), ("a", 0)]) == {"a": [0, 2], "b": [1]}
