"""Members of a share group take, acknowledge and give back records, over sockets and without a group's membership."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from penstock.api import pieces
from penstock.api.pieces import ROWS_MAX
from penstock.api.share import share_fetch
from penstock.core.share.acknowledgements import AckType
from penstock.core.share.sessions import SessionlessMembers, ShareSession
from penstock.core.share.state import ShareKey
from penstock.model.errors import ErrorCode
from penstock.runtime.share import partitions as share_partitions
from penstock.runtime.share.states import SHARE_TOPIC
from penstock.wire.messages import initialize_share_group_state as beginning
from penstock.wire.messages import read_share_group_state_summary as summing
from penstock.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    EntityData,
    OpData,
)
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.messages.settle_share_record import SettleShareRecordRequest
from penstock.wire.messages.share_acknowledge import AcknowledgementBatch as AcknowledgeBatch
from penstock.wire.messages.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from penstock.wire.messages.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ShareFetchRequest,
)
from penstock.wire.messages.take_share_records import TakeShareRecordsRequest
from support.node_thread import NodeThread
from support.wire_client import WireClient, batch_of, records_in
from support.wire_transactions import WireProducer

ACCEPT, RELEASE, REJECT, RENEW = AckType.ACCEPT, AckType.RELEASE, AckType.REJECT, AckType.RENEW
GROUP_RESOURCE = 32
SHARE = 2
EARLIEST_OFFSET, LATEST_OFFSET = -2, -1
DEADLINE_S = 20.0
SETTINGS = {
    "share.coordinator.state.topic.num.partitions": "2",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": "30000",
    "share.coordinator.snapshot.update.records.per.snapshot": "3",
}


def until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeThread]:
    with NodeThread(tmp_path_factory.mktemp("share"), SETTINGS) as thread:
        yield thread
        assert thread.errors == []


class World:
    """A topic of one partition, a share group that begins at its start, and a connection for what is not a member's."""

    def __init__(self, node: NodeThread, connections: ExitStack, start: int = 0, **configs: str) -> None:
        self._connections = connections
        self.node = node
        self.client = self.connect()
        self.topic = f"topic-{uuid4().hex[:8]}"
        self.group = f"group-{uuid4().hex[:8]}"
        created = self.client.call(CreateTopicsRequest([CreatableTopic(self.topic, 1, 1)], 5_000), 7)
        assert created.topics[0].error_code == 0
        described = self.client.call(MetadataRequest([MetadataRequestTopic(name=self.topic)]), 12)
        self.topic_id = described.topics[0].topic_id
        if configs:
            self.configure(**configs)
        key = ShareKey(self.group, self.topic_id, 0).coordinator_key
        self.client.call(FindCoordinatorRequest(key_type=SHARE, coordinator_keys=[key]), 6)
        until(lambda: self.begin(start) == 0)

    def connect(self, client_id: str = "wire-client") -> WireClient:
        return self._connections.enter_context(WireClient(self.node.address, client_id))

    def configure(self, **configs: str) -> None:
        rows = [AlterableConfig(name.replace("_", "."), 0, value) for name, value in configs.items()]
        resource = AlterConfigsResource(GROUP_RESOURCE, self.group, rows)
        answer = self.client.call(IncrementalAlterConfigsRequest([resource]), 1)
        assert answer.responses[0].error_code == 0, answer

    def begin(self, start: int, state_epoch: int = 0) -> int:
        row = beginning.PartitionData(0, state_epoch, start)
        request = beginning.InitializeShareGroupStateRequest(
            self.group, [beginning.InitializeStateData(self.topic_id, [row])]
        )
        code: int = self.client.call(request, 0).results[0].partitions[0].error_code
        return code

    def produce(self, *values: bytes) -> None:
        def accepted() -> bool:
            return self.client.produce(self.topic, batch_of([*values])).error_code == 0

        until(accepted)

    def summary(self) -> tuple[int, int]:
        row = summing.PartitionData(0, -1)
        request = summing.ReadShareGroupStateSummaryRequest(
            self.group, [summing.ReadStateSummaryData(self.topic_id, [row])]
        )
        answer = self.client.call(request, 1).results[0].partitions[0]
        return answer.start_offset, answer.delivery_complete_count


class Member:
    """A member of the group, on its own connection."""

    def __init__(self, world: World, name: str, client_id: str = "wire-client") -> None:
        self.world = world
        self.name = name
        self.epoch = 0
        self.client = world.connect(client_id)

    def fetch(self, *acknowledged: tuple[int, int, list[int]], wait_ms: int = 5_000, **options: Any) -> Any:
        """The answer for the partition; None when there is nothing to say of it."""
        batches = [AcknowledgementBatch(*one) for one in acknowledged]
        topics = [FetchTopic(self.world.topic_id, [FetchPartition(0, batches)])] if batches or not self.epoch else []
        request = ShareFetchRequest(
            self.world.group, self.name, self.epoch, wait_ms, 1, 1_000_000, 500, 500, topics=topics
        )
        response = self.client.call(request._replace(**options), 2)
        assert response.error_code == 0, response
        self.epoch += 1
        return response.responses[0].partitions[0] if response.responses else None

    def acquired(self, **options: Any) -> list[tuple[int, int, int]]:
        row = self.fetch(**options)
        return [] if row is None else [tuple(one) for one in row.acquired_records]

    def say(self, first: int, last: int, *types: int, **options: Any) -> int:
        topic = AcknowledgeTopic(
            self.world.topic_id, [AcknowledgePartition(0, [AcknowledgeBatch(first, last, [*types])])]
        )
        request = ShareAcknowledgeRequest(self.world.group, self.name, self.epoch, topics=[topic])
        response = self.client.call(request._replace(**options), 2)
        assert response.error_code == 0, response
        self.epoch += 1
        code: int = response.responses[0].partitions[0].error_code
        return code


@pytest.fixture
def connections() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def world(node: NodeThread, connections: ExitStack) -> World:
    return World(node, connections)


def test_each_record_goes_to_one_member(world: World) -> None:
    world.produce(b"a", b"b", b"c")
    one, two = Member(world, "one"), Member(world, "two")
    row = one.fetch()
    assert [record.value for record in records_in(row.records)] == [b"a", b"b", b"c"]
    assert two.acquired(wait_ms=0) == []
    assert one.say(0, 2, ACCEPT, RELEASE, REJECT) == 0
    assert world.summary() == (1, 1)
    row = two.fetch()
    assert [tuple(acquired) for acquired in row.acquired_records] == [(1, 1, 2)]
    assert one.say(1, 1, ACCEPT) == ErrorCode.INVALID_RECORD_STATE
    # Acknowledged with the next fetch, which finds the next records.
    world.produce(b"d")
    row = two.fetch((1, 1, [ACCEPT]))
    assert (row.acknowledge_error_code, [tuple(acquired) for acquired in row.acquired_records]) == (0, [(3, 3, 1)])
    assert world.summary() == (3, 0)


def test_a_fetch_waits_for_records_that_come_or_come_back(world: World) -> None:
    one, two = Member(world, "one"), Member(world, "two")
    sent = one.client.send(waiting := _fetch(one), 2)
    world.produce(b"a")
    received, response = one.client.receive(waiting, 2)
    one.epoch = 1
    assert received == sent
    assert [tuple(row) for row in response.responses[0].partitions[0].acquired_records] == [(0, 0, 1)]
    two.client.send(waiting := _fetch(two), 2)
    assert one.say(0, 0, RELEASE) == 0
    _, response = two.client.receive(waiting, 2)
    assert [tuple(row) for row in response.responses[0].partitions[0].acquired_records] == [(0, 0, 2)]


def test_members_that_wait_together_get_one_record_after_the_other(world: World) -> None:
    def receive(member: Member) -> tuple[Member, list[tuple[int, int, int]]]:
        member.client.send(_fetch(member), 2)
        _, response = member.client.receive(_fetch(member), 2)
        member.epoch = 1
        return member, [tuple(row) for row in response.responses[0].partitions[0].acquired_records]

    with ThreadPoolExecutor() as threads:
        waiting = {threads.submit(receive, Member(world, name)) for name in ("one", "two", "three")}
        for offset in range(3):
            world.produce(b"x")
            done, waiting = wait(waiting, DEADLINE_S, FIRST_COMPLETED)
            ((member, acquired),) = [one.result() for one in done]
            assert acquired == [(offset, offset, 1)]
            # The others are woken when this is durable, too, and there is nothing for them.
            assert member.say(offset, offset, ACCEPT) == 0


def _fetch(member: Member) -> ShareFetchRequest:
    topics = [FetchTopic(member.world.topic_id, [FetchPartition(0)])]
    return ShareFetchRequest(member.world.group, member.name, 0, 15_000, 1, 1_000_000, 500, 500, topics=topics)


def test_the_records_of_a_member_that_goes_come_back(world: World) -> None:
    world.produce(b"a", b"b")
    one, two, three = (Member(world, name) for name in ("one", "two", "three"))
    assert one.acquired() == [(0, 1, 1)]
    two.client.send(waiting := _fetch(two), 2)
    one.client.close()
    _, response = two.client.receive(waiting, 2)
    assert [tuple(row) for row in response.responses[0].partitions[0].acquired_records] == [(0, 1, 2)]
    # A member that closes its session gives back what it has not acknowledged.
    two.epoch = -1
    assert two.say(0, 0, ACCEPT) == 0
    assert three.acquired() == [(1, 1, 3)]


def test_a_connection_does_not_keep_sessions_that_others_have_ended(world: World) -> None:
    opening, ending = world.connect(), world.connect()
    for name in ("one", "two", "three"):
        request = ShareFetchRequest(world.group, name, 0, 0, 1, 1_000_000, 500, 500)
        assert opening.call(request, 2).error_code == 0
        assert ending.call(request._replace(share_session_epoch=-1), 2).error_code == 0

    def kept() -> list[ShareSession]:
        gc.collect()
        return [each for each in gc.get_objects() if type(each) is ShareSession and each.group == world.group]

    until(lambda: not kept())


def test_a_session_of_many_partitions_is_served_in_turns(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counter[int]()

    async def in_turns(rows: Collection[Any]) -> AsyncIterator[Any]:
        counted[len(rows)] += 1
        async for row in pieces.in_turns(rows):
            yield row

    monkeypatch.setattr(share_fetch, "in_turns", in_turns)
    partitions = [FetchPartition(number) for number in range(3 * ROWS_MAX)]
    topics = [FetchTopic(world.topic_id, partitions), FetchTopic(uuid4().bytes, partitions)]
    fetching = ShareFetchRequest(world.group, "m", 0, 0, 1, 1_000_000, 500, 500, topics=topics)
    response = world.client.call(fetching, 2)
    # Those that are looked for, and those that there is something to say of.
    assert counted == {6 * ROWS_MAX: 1, 6 * ROWS_MAX - 1: 1}
    codes = Counter(row.error_code for topic in response.responses for row in topic.partitions)
    assert codes == {
        ErrorCode.UNKNOWN_TOPIC_ID: len(partitions),
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: len(partitions) - 1,
    }
    batches = [AcknowledgeBatch(0, 0, [ACCEPT])]
    acknowledged = [AcknowledgePartition(number, batches) for number in range(3 * ROWS_MAX)]
    acknowledging = ShareAcknowledgeRequest(
        world.group, "m", 1, topics=[AcknowledgeTopic(world.topic_id, acknowledged)]
    )
    answer = world.client.call(acknowledging, 2)
    assert [row.partition_index for row in answer.responses[0].partitions] == [*range(3 * ROWS_MAX)]


def test_locks_end_and_are_renewed(node: NodeThread, connections: ExitStack) -> None:
    world = World(node, connections, share_record_lock_duration_ms="1000")
    world.produce(b"a")
    one, two = Member(world, "one"), Member(world, "two")
    assert one.acquired() == [(0, 0, 1)]
    assert one.say(0, 0, RENEW, is_renew_ack=True) == 0
    assert one.say(0, 0, RENEW) == ErrorCode.INVALID_REQUEST
    assert two.acquired(wait_ms=15_000) == [(0, 0, 2)]
    assert one.say(0, 0, ACCEPT) == ErrorCode.INVALID_RECORD_STATE
    assert two.say(0, 0, ACCEPT) == 0


def test_strict_limits_hand_out_no_more_than_requested(world: World) -> None:
    world.produce(*[b"x"] * 10)
    one, two = Member(world, "one"), Member(world, "two")
    assert one.acquired(max_records=3, share_acquire_mode=1) == [(0, 2, 1)]
    assert two.acquired(max_records=3) == [(3, 9, 1)]


def test_a_group_can_have_strict_limits_for_members_that_do_not_ask(node: NodeThread, connections: ExitStack) -> None:
    world = World(node, connections, penstock_share_acquire_mode="record_limit")
    world.produce(*[b"x"] * 10)
    one, two = Member(world, "one"), Member(world, "two")
    assert one.acquired(max_records=3) == [(0, 2, 1)]
    assert two.acquired(max_records=4) == [(3, 6, 1)]


def test_a_group_starts_where_auto_offset_reset_sets(node: NodeThread, connections: ExitStack) -> None:
    for reset, expected in (("earliest", [(0, 1, 1)]), ("latest", []), ("by_duration:PT1H", [(0, 1, 1)])):
        world = World(node, connections, -1, share_auto_offset_reset=reset)
        world.produce(b"a", b"b")
        member = Member(world, "one")
        assert member.acquired(wait_ms=0 if reset == "latest" else 5_000) == expected or reset == "latest"
        if reset == "latest":
            until(lambda world=world: world.summary()[0] == 2)
            world.produce(b"c")
            assert member.acquired() == [(2, 2, 1)]


class Taker:
    """A member without a session; each request has a connection of its own."""

    def __init__(self, world: World, name: str = "taker") -> None:
        self.world = world
        self.request = TakeShareRecordsRequest(world.group, name, world.topic_id, [0], 1, 1_000_000, 15_000)

    def take(self, **options: Any) -> Any:
        with WireClient(self.world.node.address) as client:
            response = client.call(self.request._replace(**options), 0)
        assert response.error_code == 0, response
        return response.partitions[0] if response.partitions else None

    def taken(self, **options: Any) -> list[tuple[int, int, int]]:
        row = self.take(**options)
        return [] if row is None else [tuple(one) for one in row.acquired_records]

    def settle(self, offset: int, delivery_count: int, kind: int, incarnation: int = -1) -> Any:
        member, topic_id = self.request.member_id, self.world.topic_id
        request = SettleShareRecordRequest(
            self.world.group, member, topic_id, 0, offset, delivery_count, kind, incarnation
        )
        with WireClient(self.world.node.address) as client:
            return client.call(request, 0)


def test_what_is_taken_without_a_session_is_settled_over_any_connection(world: World) -> None:
    world.produce(b"a", b"b", b"c")
    one, two = Taker(world, "one"), Taker(world, "two")
    assert (one.taken(), two.taken(), one.taken(max_records=5)) == ([(0, 0, 1)], [(1, 1, 1)], [(2, 2, 1)])
    # A session that ends releases what it held, and leaves the takers' records alone.
    member = Member(world, "three")
    assert member.acquired(wait_ms=0) == []
    member.epoch = -1
    assert member.say(0, 0, ACCEPT) == ErrorCode.INVALID_RECORD_STATE
    assert one.settle(0, 1, ACCEPT).error_code == 0
    assert one.settle(0, 1, ACCEPT).error_code == ErrorCode.INVALID_RECORD_STATE
    assert one.settle(1, 1, ACCEPT).error_code == ErrorCode.INVALID_RECORD_STATE
    assert two.settle(1, 1, RELEASE).error_code == 0
    assert two.taken() == [(1, 1, 2)]
    assert two.settle(1, 1, ACCEPT).error_code == ErrorCode.INVALID_RECORD_STATE
    assert two.settle(1, 2, REJECT).error_code == 0
    assert world.summary() == (2, 0)


def test_what_was_taken_of_another_leader_is_not_settled(world: World) -> None:
    world.produce(b"a")
    taker = Taker(world)
    row = taker.take()
    assert row.incarnation >= 0
    assert taker.settle(0, 1, ACCEPT, row.incarnation ^ 1).error_code == ErrorCode.INVALID_RECORD_STATE
    assert taker.settle(0, 1, ACCEPT, row.incarnation).error_code == 0


def test_a_taker_waits_without_taking(world: World) -> None:
    taker, other = Taker(world), Taker(world, "other")
    for make_ready in (lambda: world.produce(b"a"), lambda: other.settle(0, 1, RELEASE)):
        with WireClient(world.node.address) as client:
            client.send(waiting := taker.request._replace(max_records=0), 0)
            make_ready()
            _, response = client.receive(waiting, 0)
        assert [(row.error_code, len(row.acquired_records)) for row in response.partitions] == [(0, 0)]
        assert len(other.taken()) == 1
    assert taker.taken(max_records=0, max_wait_ms=0) == []


def test_the_lock_of_what_was_taken_ends(node: NodeThread, connections: ExitStack) -> None:
    world = World(node, connections, share_record_lock_duration_ms="1000")
    world.produce(b"a")
    one, two = Taker(world, "one"), Taker(world, "two")
    assert one.taken() == [(0, 0, 1)]
    assert one.settle(0, 1, RENEW).lock_ms == 1_000
    assert two.taken() == [(0, 0, 2)]
    late = one.settle(0, 1, ACCEPT)
    assert (late.error_code, "delivered again" in late.error_message) == (ErrorCode.INVALID_RECORD_STATE, True)
    assert two.settle(0, 2, ACCEPT).error_code == 0


def test_a_groups_settings_count_from_the_next_request_on(world: World) -> None:
    world.produce(b"a")
    taker = Taker(world)
    assert taker.taken() == [(0, 0, 1)]
    assert taker.settle(0, 1, RENEW).lock_ms == 30_000
    for lock_ms in (20_000, 10_000):
        world.configure(share_record_lock_duration_ms=str(lock_ms))
        until(lambda lock_ms=lock_ms: taker.settle(0, 1, RENEW).lock_ms == lock_ms)


def test_a_sessionless_member_sets_where_a_group_starts_unless_the_group_does(
    node: NodeThread, connections: ExitStack
) -> None:
    for own, asked, expected in ((None, "earliest", 0), (None, None, 2), ("latest", "earliest", 2)):
        world = World(node, connections, -1, **({"share_auto_offset_reset": own} if own else {}))
        world.produce(b"a", b"b")
        taker = Taker(world)
        taker.take(offset_reset=asked, max_wait_ms=0, max_records=0)
        until(lambda world=world, expected=expected: world.summary()[0] == expected)


def test_a_share_partition_is_dropped_when_no_member_takes_or_holds_records(
    tmp_path: Path, connections: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(share_partitions, "SWEEP_S", 0.02)
    monkeypatch.setattr(SessionlessMembers, "PRESENT_MS", 50)
    with NodeThread(tmp_path, SETTINGS) as node:
        world = World(node, connections)
        world.produce(b"a")
        taker = Taker(world)
        broker = node.node._broker
        assert broker is not None
        assert taker.taken() == [(0, 0, 1)]
        # Many sweeps later the record is still held.
        assert taker.take(max_records=0, max_wait_ms=500) is None
        assert [led.key.group for led in broker._shares.led()] == [world.group]
        assert taker.settle(0, 1, ACCEPT).error_code == 0
        until(lambda: not [*broker._shares.led()])


def test_sessions_have_epochs_and_belong_to_members(world: World) -> None:
    one = Member(world, "one")
    one.fetch(wait_ms=0)
    for epoch, error in ((0, 0), (5, ErrorCode.INVALID_SHARE_SESSION_EPOCH), (1, 0), (-1, 0)):
        request = _fetch(one)._replace(share_session_epoch=epoch, max_wait_ms=0, topics=[])
        assert one.client.call(request, 2).error_code == error
    request = ShareAcknowledgeRequest(world.group, "one", 2)
    assert one.client.call(request, 2).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert (
        one.client.call(request._replace(share_session_epoch=0), 2).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    )
    nameless = request._replace(member_id="")
    assert one.client.call(nameless, 2).error_code == ErrorCode.INVALID_REQUEST
    missing = _fetch(one)._replace(topics=[FetchTopic(uuid4().bytes, [FetchPartition(0)])])
    response = one.client.call(missing, 2)
    assert response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_the_state_outlives_the_broker(tmp_path: Path, connections: ExitStack) -> None:
    with NodeThread(tmp_path, SETTINGS) as node:
        world = World(node, connections)
        world.produce(*[b"x"] * 12)
        member = Member(world, "one")
        assert member.acquired() == [(0, 11, 1)]
        for offset in (0, 1, 2, 5, 7, 8):
            assert member.say(offset, offset, ACCEPT) == 0
        assert member.say(6, 6, RELEASE) == 0
        assert world.summary() == (3, 3)
        group, topic_id = world.group, world.topic_id
    with NodeThread(tmp_path, SETTINGS) as node:
        world.node = node
        world.client = world.connect()
        assert (world.group, world.topic_id) == (group, topic_id)
        until(lambda: world.summary() == (3, 3))
        taken: list[tuple[int, int, int]] = []
        member = Member(world, "two")
        until(lambda: taken.extend(member.acquired(wait_ms=200)) or sum(b - a + 1 for a, b, _ in taken) == 6)
        # What was with a member that never said anything of it counts as never delivered.
        assert sorted(taken) == [(3, 4, 1), (6, 6, 2), (9, 11, 1)]


def test_aborted_records_are_not_delivered_to_readers_of_committed_ones(
    node: NodeThread, connections: ExitStack
) -> None:
    world = World(node, connections, share_isolation_level="read_committed")
    producer = WireProducer(world.connect(), f"producer-{uuid4().hex[:8]}")
    producer.start()
    for value, is_committed in ((b"aborted", False), (b"committed", True), (b"aborted again", False)):
        assert producer.add(world.topic) == 0
        assert producer.write(world.topic, value).error_code == 0
        assert producer.end(commit=is_committed) == 0
    # The last marker follows the answer; nothing is stable before it.
    until(lambda: world.client.list_offset(world.topic, LATEST_OFFSET, isolation_level=1).offset == 6)
    member = Member(world, "one")
    row = member.fetch()
    assert [tuple(one) for one in row.acquired_records] == [(2, 2, 1)]
    assert [record.value for record in records_in(row.records)] == [b"committed"]
    assert member.acquired(wait_ms=0) == []
    assert member.say(2, 2, ACCEPT) == 0
    assert world.summary() == (6, 0)
    everybody = Member(World(node, connections), "one")
    everybody.world.topic_id = world.topic_id
    until(lambda: everybody.world.begin(0) == 0)
    assert everybody.acquired() == [(0, 0, 1), (2, 2, 1), (4, 4, 1)]


def test_the_log_of_states_is_cut_before_what_counts(tmp_path: Path, connections: ExitStack) -> None:
    settings = {
        **SETTINGS,
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.state.topic.prune.interval.ms": "50",
        "share.coordinator.cold.partition.snapshot.interval.ms": "300",
    }
    with NodeThread(tmp_path, settings) as node:
        world = World(node, connections)
        cold = World(node, connections, 7)
        world.produce(*[b"x"] * 20)
        member = Member(world, "one")
        assert member.acquired() == [(0, 19, 1)]
        for offset in range(0, 20, 2):
            assert member.say(offset, offset, ACCEPT) == 0
        # Ten changes and two beginnings at least were written.
        until(lambda: world.client.list_offset(SHARE_TOPIC, EARLIEST_OFFSET).offset > 12)
        assert (world.summary(), cold.summary()[0]) == ((1, 9), 7)
    with NodeThread(tmp_path, settings) as node:
        for one in (world, cold):
            one.node = node
            one.client = one.connect()
        until(lambda: (world.summary(), cold.summary()[0]) == ((1, 9), 7))


def test_shared_records_count_against_a_consumers_quota(world: World) -> None:
    client_id = f"greedy-{uuid4().hex[:8]}"
    entry = AlterClientQuotasRequestEntryData(
        [EntityData("client-id", client_id)], [OpData("consumer_byte_rate", 5_000.0, False)]
    )
    assert world.client.call(AlterClientQuotasRequest([entry], False), 1).entries[0].error_code == 0
    world.produce(b"x" * 100_000)
    member = Member(world, "one", client_id)
    response = member.client.call(_fetch(member), 2)
    assert response.responses[0].partitions[0].acquired_records
    assert response.throttle_time_ms > 0
    member.client.close()
    response = world.connect(client_id).call(Taker(world).request, 0)
    assert response.partitions[0].acquired_records
    assert response.throttle_time_ms > 0
