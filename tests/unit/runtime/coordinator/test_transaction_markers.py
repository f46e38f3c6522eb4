"""Markers reach their partitions: all of them, wherever they are led, however often that fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.core.metadata.image import Image
from penstock.core.replica.producer_state import NO_OFFSET, EndMarker
from penstock.core.transaction.contract import Markers
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import NO_LEADER, TopicPartition
from penstock.runtime.brokers import Brokers
from penstock.runtime.coordinator import marker_writer
from penstock.runtime.coordinator import markers as transaction_markers
from penstock.runtime.coordinator.marker_writer import MarkerWriter
from penstock.runtime.coordinator.markers import TransactionMarkers
from penstock.runtime.env import SystemEnv
from penstock.runtime.peer import PeerLost
from penstock.wire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

HERE = 1
A, B, C = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
OFFSETS = TopicPartition("__consumer_offsets", 0)


def markers(*partitions: TopicPartition, producer_id: int = 7, version: int = 0) -> Markers:
    return Markers(f"id-{producer_id}", producer_id, 3, True, 5, partitions, version)


class Leaders:
    """Leaders that take markers: `answers` has, by broker, what they do with their next requests; then they accept."""

    def __init__(self, leaders: dict[TopicPartition, int | None]) -> None:
        self.leaders = leaders
        self.answers: dict[int, list[ErrorCode | Exception | Callable[[], None]]] = {}
        self.requests: list[tuple[int, WriteTxnMarkersRequest]] = []
        self.in_flight: dict[int, int] = {}
        self.in_flight_max = 0
        self.gate: asyncio.Event | None = None
        # Where transactions began, in partitions that want it said.
        self.first_offsets: dict[TopicPartition, int] = {}

    def leader_of(self, topic: str, partition: int) -> int | None:
        return self.leaders[TopicPartition(topic, partition)]

    def make_peer(self, broker_id: int) -> Any:
        brokers = self

        class Peer:
            def send(self, message: Any, *, timeout_ms: int | None = None) -> asyncio.Future[Any]:  # noqa: ARG002
                return asyncio.ensure_future(brokers.take(broker_id, message))

        return Peer()

    async def take(self, broker_id: int, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        self.requests.append((broker_id, request))
        self.in_flight[broker_id] = self.in_flight.get(broker_id, 0) + 1
        self.in_flight_max = max(self.in_flight_max, self.in_flight[broker_id])
        await (self.gate.wait() if self.gate else asyncio.sleep(0))
        self.in_flight[broker_id] -= 1
        queue = self.answers.get(broker_id, [])
        outcome = queue.pop(0) if queue else ErrorCode.NONE
        if isinstance(outcome, Exception):
            raise outcome
        if not isinstance(outcome, ErrorCode):
            outcome()
            outcome = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return WriteTxnMarkersResponse(
            [
                WritableTxnMarkerResult(
                    row.producer_id,
                    [
                        WritableTxnMarkerTopicResult(
                            topic.name,
                            [self.verdict(topic, index, outcome) for index in topic.partition_indexes],
                        )
                        for topic in row.topics
                    ],
                )
                for row in request.markers
            ]
        )

    def verdict(
        self, topic: WritableTxnMarkerTopic, index: int, outcome: ErrorCode
    ) -> WritableTxnMarkerPartitionResult:
        first_offset = self.first_offsets.get(TopicPartition(topic.name, index), -1)
        said = dict(zip(topic.partition_indexes, topic.first_offsets, strict=False)).get(index)
        if outcome or said is None or said == first_offset:
            return WritableTxnMarkerPartitionResult(index, outcome)
        return WritableTxnMarkerPartitionResult(index, ErrorCode.CONCURRENT_TRANSACTIONS, first_offset)


Story = Callable[[TransactionMarkers], Coroutine[Any, Any, None]]


def tell(brokers: Leaders, story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_markers, "RETRY_MIN_MS", 1)

    async def run() -> None:
        env = SystemEnv()
        asked = Brokers(HERE, brokers.make_peer, lambda request: brokers.take(HERE, request))
        sender = TransactionMarkers(env, asked, brokers.leader_of)
        await asyncio.wait_for(story(sender), 10)
        await env.close()

    asyncio.run(run())


async def sent(sender: TransactionMarkers, wanted: Markers) -> list[TopicPartition]:
    """What is reported, once all is."""
    reported: list[TopicPartition] = []
    done = asyncio.Event()

    def report(partitions: list[TopicPartition]) -> None:
        reported.extend(partitions)
        if len(reported) >= len(wanted.partitions):
            done.set()

    sender.send(wanted, report)
    await done.wait()
    return reported


def test_each_leader_gets_its_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Leaders({A: HERE, B: 2, C: 2})

    async def story(sender: TransactionMarkers) -> None:
        assert sorted(await sent(sender, markers(A, B, C))) == [A, B, C]

    tell(brokers, story, monkeypatch)
    rows = {
        broker_id: [(topic.name, [*topic.partition_indexes]) for topic in request.markers[0].topics]
        for broker_id, request in brokers.requests
    }
    assert rows == {HERE: [("t", [0])], 2: [("t", [1]), ("u", [0])]}
    row = brokers.requests[0][1].markers[0]
    assert (row.producer_id, row.producer_epoch, row.transaction_result, row.coordinator_epoch) == (7, 3, True, 5)


def test_a_request_takes_along_all_that_waits_and_one_is_under_way_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Leaders({A: 2})

    async def story(sender: TransactionMarkers) -> None:
        brokers.gate = asyncio.Event()
        waiting = [asyncio.ensure_future(sent(sender, markers(A, producer_id=number))) for number in range(5)]
        await asyncio.sleep(0.01)
        brokers.gate.set()
        await asyncio.gather(*waiting)

    tell(brokers, story, monkeypatch)
    assert brokers.in_flight_max == 1
    assert sum(len(request.markers) for _, request in brokers.requests) == 5
    assert len(brokers.requests) <= 2


def test_a_large_batch_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_markers, "PARTITIONS_PER_REQUEST_MAX", 2)
    brokers = Leaders({A: 2, B: 2})

    async def story(sender: TransactionMarkers) -> None:
        await asyncio.gather(*(sent(sender, markers(A, B, producer_id=number)) for number in range(3)))

    tell(brokers, story, monkeypatch)
    assert [len(request.markers) for _, request in brokers.requests] == [1, 1, 1]


@pytest.mark.parametrize(
    "failure",
    [
        PeerLost("gone"),
        ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "full"),
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
@pytest.mark.parametrize("leader", [HERE, 2])
def test_what_fails_is_tried_again(
    failure: ErrorCode | Exception, leader: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers = Leaders({A: leader})
    brokers.answers[leader] = [failure, failure]

    async def story(sender: TransactionMarkers) -> None:
        assert await sent(sender, markers(A)) == [A]

    tell(brokers, story, monkeypatch)
    assert len(brokers.requests) == 3


def test_a_leader_is_sent_the_first_offset_of_the_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    paused: list[TopicPartition] = []
    monkeypatch.setattr(TransactionMarkers, "_try_later", lambda *given: paused.extend(given[2]))
    brokers = Leaders({A: 2, B: 2, C: HERE})
    brokers.first_offsets = {A: 40, C: 7}

    async def story(sender: TransactionMarkers) -> None:
        assert sorted(await sent(sender, markers(A, B, C, version=1))) == [A, B, C]

    tell(brokers, story, monkeypatch)
    said = [
        (broker_id, topic.name, [*topic.partition_indexes], [*topic.first_offsets])
        for broker_id, request in brokers.requests
        for topic in request.markers[0].topics
    ]
    assert sorted(said) == [(1, "u", [0], [-1]), (1, "u", [0], [7]), (2, "t", [0], [40]), (2, "t", [0, 1], [-1, -1])]
    assert paused == []


def test_a_leader_that_lost_the_first_offset_reports_the_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Leaders({A: 2})
    brokers.first_offsets = {A: 40}
    brokers.answers[2] = [ErrorCode.NONE, lambda: brokers.first_offsets.update({A: 44})]

    async def story(sender: TransactionMarkers) -> None:
        assert await sent(sender, markers(A, version=1)) == [A]

    tell(brokers, story, monkeypatch)
    said = [[*request.markers[0].topics[0].first_offsets] for _, request in brokers.requests]
    assert said == [[-1], [40], [40], [44]]


def test_where_every_transaction_has_its_epoch_no_offset_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Leaders({A: 2})
    brokers.first_offsets = {A: 40}

    async def story(sender: TransactionMarkers) -> None:
        assert await sent(sender, markers(A, version=2)) == [A]

    tell(brokers, story, monkeypatch)
    assert [[*request.markers[0].topics[0].first_offsets] for _, request in brokers.requests] == [[]]


def test_a_new_leader_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Leaders({A: 2})
    brokers.answers[2] = [lambda: brokers.leaders.update({A: 3})]

    async def story(sender: TransactionMarkers) -> None:
        assert await sent(sender, markers(A)) == [A]

    tell(brokers, story, monkeypatch)
    assert [broker_id for broker_id, _ in brokers.requests] == [2, 3]


def test_a_partition_without_a_leader_waits_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Leaders({A: NO_LEADER, B: 2})

    async def story(sender: TransactionMarkers) -> None:
        asyncio.get_running_loop().call_later(0.02, brokers.leaders.update, {A: 2})
        assert await sent(sender, markers(A, B)) == [B, A]

    tell(brokers, story, monkeypatch)


def test_a_partition_that_was_deleted_needs_no_marker(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Leaders({A: None, B: 2})
    brokers.answers[2] = [lambda: brokers.leaders.update({B: None})]

    async def story(sender: TransactionMarkers) -> None:
        assert await sent(sender, markers(A, B)) == [A, B]

    tell(brokers, story, monkeypatch)
    assert len(brokers.requests) == 1


def test_a_partition_that_knows_a_later_epoch_needs_no_marker(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Leaders({A: 2})
    brokers.answers[2] = [ErrorCode.INVALID_PRODUCER_EPOCH]

    async def story(sender: TransactionMarkers) -> None:
        assert await sent(sender, markers(A)) == [A]

    tell(brokers, story, monkeypatch)
    assert len(brokers.requests) == 1


def test_a_fenced_coordinator_leaves_it_to_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Leaders({A: 2})
    brokers.answers[2] = [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
    reported: list[TopicPartition] = []

    async def story(sender: TransactionMarkers) -> None:
        sender.send(markers(A), reported.extend)
        await asyncio.sleep(0.05)

    tell(brokers, story, monkeypatch)
    assert (reported, len(brokers.requests)) == ([], 1)


def test_markers_that_are_no_longer_wanted_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Leaders({A: 2})
    brokers.answers[2] = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 100
    reported: list[TopicPartition] = []
    wanted = True

    async def story(sender: TransactionMarkers) -> None:
        nonlocal wanted
        sender.send(markers(A), reported.extend, lambda: wanted)
        await asyncio.sleep(0.02)
        wanted = False
        await asyncio.sleep(0.02)
        tried = len(brokers.requests)
        await asyncio.sleep(0.1)
        assert len(brokers.requests) == tried > 0

    tell(brokers, story, monkeypatch)
    assert reported == []


def test_a_late_answer_for_unwanted_markers_is_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Leaders({A: 2})
    reported: list[TopicPartition] = []
    wanted = True

    async def story(sender: TransactionMarkers) -> None:
        nonlocal wanted
        brokers.gate = asyncio.Event()
        sender.send(markers(A), reported.extend, lambda: wanted)
        await asyncio.sleep(0.01)
        wanted = False
        brokers.gate.set()
        await asyncio.sleep(0.02)

    tell(brokers, story, monkeypatch)
    assert len(brokers.requests) == 1
    assert reported == []


@pytest.mark.parametrize("leader", [HERE, 2])
def test_a_partition_that_cannot_commit_its_marker_holds_up_no_other(
    leader: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers = Leaders({A: leader, B: leader, C: leader})
    take = brokers.take

    async def story(sender: TransactionMarkers) -> None:
        gate, is_stuck, is_done = asyncio.Event(), asyncio.Event(), asyncio.Event()
        stuck = 0

        async def slow(broker_id: int, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
            nonlocal stuck
            response = await take(broker_id, request)
            if gate.is_set() or not any(0 in topic.partition_indexes and topic.name == "t" for topic in rows(request)):
                return response
            stuck += 1
            if stuck > 1:
                # The second request is only about the partition that did not commit in time.
                assert [(topic.name, [*topic.partition_indexes]) for topic in rows(request)] == [("t", [0])]
                is_stuck.set()
                await gate.wait()
                return response
            return WriteTxnMarkersResponse(
                [
                    WritableTxnMarkerResult(
                        marker.producer_id,
                        [topic._replace(partitions=[*map(timed_out, topic.partitions)]) for topic in marker.topics],
                    )
                    for marker in response.markers
                ]
            )

        def timed_out(row: WritableTxnMarkerPartitionResult) -> WritableTxnMarkerPartitionResult:
            return row._replace(error_code=ErrorCode.NONE if row.partition_index else ErrorCode.REQUEST_TIMED_OUT)

        brokers.take = slow  # type: ignore[method-assign]
        reported: list[TopicPartition] = []

        def report(partitions: list[TopicPartition]) -> None:
            reported.extend(partitions)
            if len(reported) == 2:
                is_done.set()

        sender.send(markers(A, B), report)
        await is_stuck.wait()
        assert reported == [B]
        for producer_id in (8, 9):
            assert await sent(sender, markers(B, C, producer_id=producer_id)) == [B, C]
        assert reported == [B]
        gate.set()
        await is_done.wait()
        assert reported == [B, A]
        # Once it has committed it is asked together with the others again.
        before = len(brokers.requests)
        assert await sent(sender, markers(A, B, producer_id=10)) == [A, B]
        assert len(brokers.requests) == before + 1

    tell(brokers, story, monkeypatch)


def rows(request: WriteTxnMarkersRequest) -> list[WritableTxnMarkerTopic]:
    return [topic for marker in request.markers for topic in marker.topics]


class Replica:
    """A partition whose markers are committed when the test decides; `open` is whether a transaction is."""

    def __init__(self, name: TopicPartition) -> None:
        self.name = name
        self.topic_id = name.topic.encode()
        self.leader_epoch = 1
        self.open = False
        self.appended: list[EndMarker] = []
        self.waiting: list[asyncio.Future[None]] = []
        self.log = SimpleNamespace(producers=self)

    def get(self, _: int) -> Any:
        return SimpleNamespace(transaction_first_offset=3 if self.open else NO_OFFSET)

    def append_marker(self, _: int, __: int, marker: EndMarker, ___: int) -> Any:
        self.appended.append(marker)
        return SimpleNamespace(next_offset=len(self.appended))

    def committed(self, _: int) -> asyncio.Future[None]:
        self.waiting.append(asyncio.get_running_loop().create_future())
        return self.waiting[-1]

    def commit(self, error: ApiError | None = None) -> None:
        for future in self.waiting:
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(None)
        self.waiting.clear()


def write_to_replicas(
    monkeypatch: pytest.MonkeyPatch,
    story: Callable[[MarkerWriter, dict[TopicPartition, Replica]], Coroutine[Any, Any, None]],
) -> None:
    monkeypatch.setattr(marker_writer, "COMMIT_TIMEOUT_S", 0.001)

    async def run() -> None:
        env = SystemEnv()
        replicas = {name: Replica(name) for name in (A, OFFSETS)}
        partitions = SimpleNamespace(
            lookup=lambda topic, _, index, **__: replicas[TopicPartition(topic, index)],
            home=lambda _: SimpleNamespace(check_writable=lambda: None),
            image=Image(),
        )

        def end(_: int, __: object, marker: EndMarker) -> asyncio.Future[None]:
            replicas[OFFSETS].append_marker(0, 0, marker, 0)
            return replicas[OFFSETS].committed(0)

        groups = SimpleNamespace(end_transaction=end)
        await story(MarkerWriter(env, partitions, groups), replicas)  # type: ignore[arg-type]
        await env.close()

    asyncio.run(run())


MARKER = EndMarker(False, 0)


async def times_out(writer: MarkerWriter, name: TopicPartition, producer_id: int = 7) -> bool:
    with pytest.raises(ApiError) as error:
        await writer.write(name, producer_id, 0, MARKER)
    return error.value.code is ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.parametrize("name", [A, OFFSETS], ids=str)
def test_a_marker_that_is_not_replicated_in_time_is_answered_and_not_appended_again(
    monkeypatch: pytest.MonkeyPatch, name: TopicPartition
) -> None:
    async def story(writer: MarkerWriter, replicas: dict[TopicPartition, Replica]) -> None:
        replica = replicas[name]
        for _ in range(3):
            assert await times_out(writer, name)
        assert len(replica.appended) == 1
        assert await times_out(writer, name, producer_id=8)
        assert len(replica.appended) == 2, "another producer's"
        waiting = asyncio.ensure_future(writer.write(name, 7, 0, MARKER))
        await asyncio.sleep(0)
        replica.commit()
        await waiting
        assert len(replica.appended) == 2
        assert writer._waiting == {}

    write_to_replicas(monkeypatch, story)


def test_a_marker_is_appended_again_where_the_first_one_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(writer: MarkerWriter, replicas: dict[TopicPartition, Replica]) -> None:
        replica = replicas[A]
        assert await times_out(writer, A)
        replica.open = True
        assert await times_out(writer, A)
        assert len(replica.appended) == 2, "in version 1 the next transaction has the same epoch"
        replica.open = False
        replica.leader_epoch = 2
        assert await times_out(writer, A)
        assert len(replica.appended) == 3, "the first one may have been truncated"
        replica.commit(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        await asyncio.sleep(0)
        assert await times_out(writer, A)
        assert len(replica.appended) == 4

    write_to_replicas(monkeypatch, story)


def test_a_failure_of_our_own_loses_no_marker(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Leaders({A: HERE, B: HERE, C: HERE})
    brokers.answers[HERE] = [TypeError("a bug")]

    async def story(sender: TransactionMarkers) -> None:
        brokers.gate = asyncio.Event()
        first = asyncio.ensure_future(sent(sender, markers(A)))
        await asyncio.sleep(0.01)
        behind = asyncio.ensure_future(sent(sender, markers(B, C, producer_id=8)))
        await asyncio.sleep(0.01)
        brokers.gate.set()
        assert await asyncio.wait_for(first, 2) == [A]
        assert sorted(await asyncio.wait_for(behind, 2)) == [B, C]

    tell(brokers, story, monkeypatch)
