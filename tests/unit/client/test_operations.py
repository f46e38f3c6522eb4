"""Operations without I/O: which broker each request is for, and what is sent again."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.client.address import Address
from penstock.client.failures import NoAnswer, NotServed
from penstock.client.operations import groups, offsets, topics
from penstock.client.operations.offsets import LATEST, Position
from penstock.client.operations.routing import Cluster, Pause, Refused, ToAny, ToBroker, ToEach, find_coordinators
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.wire.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from penstock.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from penstock.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

ONE, TWO = Address("one", 9092), Address("two", 9092)
BROKERS = [MetadataResponseBroker(1, *ONE), MetadataResponseBroker(2, *TWO)]
METADATA = MetadataResponse(
    brokers=BROKERS,
    controller_id=2,
    topics=[
        MetadataResponseTopic(
            0, "orders", partitions=[MetadataResponsePartition(0, 0, 1), MetadataResponsePartition(0, 1, 2)]
        )
    ],
)
ORDERS = [TopicPartition("orders", number) for number in (0, 1)]


class Driver:
    """Performs one operation by hand: `step` is the current one, until `result` is there."""

    def __init__(self, operation: Any, *arguments: Any, **named: Any) -> None:
        self.cluster = Cluster()
        self.result: Any = None
        self._steps = operation(self.cluster, *arguments, **named)
        self.step: Any = next(self._steps)

    def answer(self, response: Any) -> Any:
        """Perform the current step, and return the next one."""
        self.cluster.learn(response)
        try:
            self.step = self._steps.throw(response) if isinstance(response, NoAnswer) else self._steps.send(response)
        except StopIteration as done:
            self.step, self.result = None, done.value
        return self.step


def created(code: int, message: str | None = None) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[CreatableTopicResult("orders", error_code=code, error_message=message)])


def ends(**codes_by_partition: int) -> ListOffsetsResponse:
    rows = [
        ListOffsetsPartitionResponse(int(number[1:]), code, offset=7) for number, code in codes_by_partition.items()
    ]
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse("orders", rows)])


def test_where_brokers_do_not_forward_a_change_goes_to_the_controller() -> None:
    driver = Driver(topics.create_topic, "orders", 2)
    assert isinstance(driver.step, ToAny)
    assert isinstance(driver.answer(created(ErrorCode.NOT_CONTROLLER)).request, MetadataRequest)
    step = driver.answer(METADATA)
    assert (type(step), step.address, type(step.request)) == (ToBroker, TWO, CreateTopicsRequest)
    assert driver.answer(created(0)) is None


def test_a_change_that_may_have_been_made_is_not_made_again() -> None:
    driver = Driver(topics.create_topic, "orders")
    with pytest.raises(Refused) as caught:
        driver.answer(created(ErrorCode.REQUEST_TIMED_OUT))
    assert (caught.value.name, caught.value.subject) == ("REQUEST_TIMED_OUT", "orders")


def test_refusals_have_librdkafkas_names_and_the_brokers_words() -> None:
    driver = Driver(topics.create_topic, "orders")
    with pytest.raises(Refused) as caught:
        driver.answer(created(ErrorCode.INVALID_TOPIC_EXCEPTION, "too long"))
    assert (caught.value.reason, str(caught.value)) == (
        "too long (TOPIC_EXCEPTION)",
        "orders: too long (INVALID_TOPIC_EXCEPTION)",
    )
    assert Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION).reason == (
        "Broker: Unknown topic or partition (UNKNOWN_TOPIC_OR_PART)"
    )


def test_all_leaders_are_queried_at_once_and_again_only_for_what_is_missing() -> None:
    driver = Driver(offsets.positions, dict.fromkeys(ORDERS, LATEST))
    step = driver.answer(METADATA)
    assert {address: len(request.topics[0].partitions) for address, request in step.requests.items()} == {
        ONE: 1,
        TWO: 1,
    }
    moved = ends(p1=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    pause = driver.answer({ONE: ends(p0=0), TWO: moved})
    assert isinstance(pause, Pause)
    assert "orders-1" in str(pause.problem)
    assert isinstance(driver.answer(None), ToAny)
    step = driver.answer(METADATA)
    assert isinstance(step, ToEach)
    assert [*step.requests] == [TWO]
    driver.answer({TWO: ends(p1=0)})
    assert driver.result == dict.fromkeys(ORDERS, Position(7, -1, -1))


def test_a_lost_leader_is_looked_up_again_after_growing_pauses() -> None:
    driver = Driver(offsets.positions, {ORDERS[0]: LATEST})
    pauses = []
    for _ in range(7):
        driver.answer(METADATA)
        pauses.append(driver.answer({ONE: NoAnswer("one is gone")}).seconds)
        assert isinstance(driver.answer(None).request, MetadataRequest)
    assert pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_what_brokers_do_not_serve_is_not_sent_again() -> None:
    driver = Driver(topics.list_topics)
    with pytest.raises(NotServed):
        driver.answer(NotServed("too old"))


def test_a_topic_that_is_not_there_is_part_of_the_result() -> None:
    driver = Driver(offsets.read_positions, {ORDERS[0]: LATEST, TopicPartition("gone", 3): LATEST})
    gone = MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "gone")
    driver.answer(METADATA._replace(topics=[*METADATA.topics, gone]))
    driver.answer({ONE: ends(p0=0)})
    refused = driver.result.pop(TopicPartition("gone", 3))
    assert (refused.name, driver.result) == ("UNKNOWN_TOPIC_OR_PART", {ORDERS[0]: Position(7, -1, -1)})


def test_groups_are_asked_of_their_coordinators_each_in_one_request() -> None:
    driver = Driver(groups.committed_offsets, ["a", "b", "c"])
    found = [Coordinator("a", 1, *ONE), Coordinator("b", 2, *TWO), Coordinator("c", 1, *ONE)]
    step = driver.answer(FindCoordinatorResponse(coordinators=found))
    assert {address: [each.group_id for each in request.groups] for address, request in step.requests.items()} == {
        ONE: ["a", "c"],
        TWO: ["b"],
    }


def test_a_group_that_may_not_be_seen_is_refused_by_itself() -> None:
    steps = find_coordinators(["a", "b"])
    next(steps)
    denied = Coordinator("b", -1, "", -1, ErrorCode.GROUP_AUTHORIZATION_FAILED, None)
    with pytest.raises(StopIteration) as done:
        steps.send(FindCoordinatorResponse(coordinators=[Coordinator("a", 1, *ONE), denied]))
    coordinated, refused = done.value.value
    assert [*coordinated.values()] == [["a"]]
    assert refused["b"].name == "GROUP_AUTHORIZATION_FAILED"
