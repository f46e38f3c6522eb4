"""What a broker promised until its power was cut, and whether it keeps that afterwards.

Each probe does one thing over and over in a thread until the broker is gone, and notes what was acknowledged; the last
one, which got no answer, may have happened or not.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from penstock.model.errors import ErrorCode
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.delete_topics import DeleteTopicsRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.metadata import MetadataRequest
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from penstock.wire.records import split_batches
from support.wire_client import FETCH_VERSION, WireClient, batch_of, fetch_request, records_in

PATIENCE_S = 20.0
WAIT_S = 60.0
GROUP = "probe"
RECORDS = 3
# That many batches of a producer are known by their sequences.
REMEMBERED = 5
PADDING = b"." * 1000
KEYS = 5
KEYED_BYTES = 20_000
PASSING = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)


class Probe:
    """One thread at a time; `address` is the broker's."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self.acknowledged = 0

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            with WireClient(self._address) as client:
                while True:
                    self.step(client)
        except (ConnectionError, TimeoutError):
            # The power is cut.
            return
        except BaseException as error:  # noqa: BLE001 - raised by `join`
            self._error = error

    def wait_for(self, count: int) -> None:
        """Return when so many more were acknowledged; raises what went wrong."""
        wanted = self.acknowledged + count
        deadline = time.monotonic() + WAIT_S
        while self.acknowledged < wanted:
            if self._error is not None:
                raise self._error
            assert time.monotonic() < deadline, f"{type(self).__name__}: no {count} acknowledgements in {WAIT_S:g} s"
            time.sleep(0.01)

    def join(self) -> None:
        """The broker is gone, so this one has ended; raises what went wrong before."""
        assert self._thread is not None
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), f"{type(self).__name__} did not end"
        if self._error is not None:
            raise self._error

    def step(self, client: WireClient) -> None:
        """Do the next thing and note that it was acknowledged."""
        raise NotImplementedError

    def verify(self, client: WireClient) -> None:
        """What was acknowledged is there; what is in doubt is settled by what is there."""
        raise NotImplementedError


class Batches(Probe):
    """A producer with sequences: its records are where they were said to be, and it is recognized."""

    def __init__(self, address: str, topic: str) -> None:
        super().__init__(address)
        self._topic = topic
        with WireClient(address) as client:
            self._producer_id = client.new_producer_id()

    def step(self, client: WireClient) -> None:
        assert self._send(client, self.acknowledged) == (ErrorCode.NONE, self.acknowledged * RECORDS)
        self.acknowledged += 1

    def _send(self, client: WireClient, number: int) -> tuple[int, int]:
        """The answer's error and offset. A broker that has just started may not lead yet."""
        first = number * RECORDS
        batch = batch_of(
            [b"%d" % (first + index) + PADDING for index in range(RECORDS)],
            producer_id=self._producer_id,
            producer_epoch=0,
            base_sequence=first,
        )
        answer = patiently(lambda: client.produce(self._topic, batch), lambda answer: answer.error_code)
        return answer.error_code, answer.base_offset

    def verify(self, client: WireClient) -> None:
        found = values_in(client, self._topic)
        values = [b"%d" % number + PADDING for number in range(len(found))]
        assert found == values, "records are missing, moved or doubled"
        assert len(found) % RECORDS == 0, "a batch is there in part"
        kept = len(found) // RECORDS
        assert self.acknowledged <= kept, f"of {self.acknowledged} acknowledged batches {kept} are there"
        assert kept <= self.acknowledged + 1, "batches that were never sent"
        # Only of clean stops nothing but the last one is known.
        for number in range(max(0, kept - REMEMBERED), kept):
            assert self._send(client, number) == (ErrorCode.NONE, number * RECORDS), (
                "a repeated batch is not recognized"
            )
        error, _ = self._send(client, kept + 1)
        assert error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "a gap in a producer's sequences is taken"
        assert len(values_in(client, self._topic)) == len(found), "a repeated batch was stored again"
        self.acknowledged = kept


class Offsets(Probe):
    """A group whose committed offset rises."""

    def __init__(self, address: str, topic: str) -> None:
        super().__init__(address)
        self._topic = topic

    def step(self, client: WireClient) -> None:
        row = OffsetCommitRequestTopic(self._topic, partitions=[OffsetCommitRequestPartition(0, self.acknowledged + 1)])
        find = FindCoordinatorRequest("", 0, [GROUP])
        patiently(lambda: client.call(find, 6), lambda answer: answer.coordinators[0].error_code)
        error = patiently(
            lambda: client.call(OffsetCommitRequest(GROUP, topics=[row]), 8),
            lambda answer: first_row(answer).error_code,
        )
        assert first_row(error).error_code == ErrorCode.NONE
        self.acknowledged += 1

    def verify(self, client: WireClient) -> None:
        if not self.acknowledged:
            return
        request = OffsetFetchRequest(GROUP, [OffsetFetchRequestTopic(self._topic, [0])])
        answer = patiently(lambda: client.call(request, 7), lambda answer: answer.error_code)
        found = first_row(answer).committed_offset
        assert self.acknowledged <= found <= self.acknowledged + 1, (
            f"{self.acknowledged} was committed, {found} is there"
        )
        self.acknowledged = found


class Keys(Probe):
    """A compacted topic: of each key the last value that was acknowledged is there, or the one after it."""

    def __init__(self, address: str, topic: str) -> None:
        super().__init__(address)
        self._topic = topic
        self._last: dict[bytes, int] = {}
        # How many records compaction has removed.
        self.removed = 0

    def step(self, client: WireClient) -> None:
        number = self.acknowledged + 1
        batch = batch_of([b"%d" % number + b"." * KEYED_BYTES], keys=[b"%d" % (number % KEYS)])
        answer = patiently(lambda: client.produce(self._topic, batch), lambda answer: answer.error_code)
        assert answer.error_code == ErrorCode.NONE, answer
        self.acknowledged = number
        self._last[b"%d" % (number % KEYS)] = number

    def verify(self, client: WireClient) -> None:
        end = patiently(lambda: client.list_offset(self._topic, -1), lambda answer: answer.error_code).offset
        found: dict[bytes, int] = {}
        count = offset = 0
        while offset < end:
            data = client.call(fetch_request(self._topic, offset), FETCH_VERSION).responses[0].partitions[0]
            assert data.error_code == ErrorCode.NONE, f"offset {offset} of {end} cannot be read: {data.error_code}"
            for record in records_in(data.records):
                if record.offset >= offset:
                    assert record.key is not None
                    found[record.key] = int((record.value or b"").rstrip(b"."))
                    count += 1
            assert data.records, f"no record from offset {offset} on, but the log ends at {end}"
            offset = end_of_batches(bytes(data.records))
        for key, number in self._last.items():
            assert found.get(key) in (number, self.acknowledged + 1), f"key {key!r} has {found.get(key)}, not {number}"
        self.acknowledged = max(self.acknowledged, *found.values())
        self._last = found
        self.removed = end - count


class Topics(Probe):
    """Topics that come and go."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self._expected: dict[str, bytes] = {}
        self._doubtful: str | None = None
        self._number = 0

    def step(self, client: WireClient) -> None:
        self._number += 1
        if len(self._expected) > 3 and self._number % 2:
            name = min(self._expected)
            self._doubtful = name
            removed = client.call(DeleteTopicsRequest((), [name], 5_000), 4).responses[0]
            assert removed.error_code == ErrorCode.NONE, removed
            del self._expected[name]
        else:
            name = f"probe-{self._number}"
            self._doubtful = name
            made = client.call(CreateTopicsRequest([CreatableTopic(name, 1, 1)], 5_000), 7).topics[0]
            assert made.error_code == ErrorCode.NONE, made
            self._expected[name] = made.topic_id
        self._doubtful = None
        self.acknowledged += 1

    def verify(self, client: WireClient) -> None:
        present = {
            topic.name: topic.topic_id
            for topic in client.call(MetadataRequest(None), 12).topics
            if topic.name.startswith("probe-")
        }
        certain = {name: topic_id for name, topic_id in self._expected.items() if name != self._doubtful}
        assert {name: present.get(name) for name in certain} == certain, "topics are gone or others"
        assert present.keys() - certain.keys() <= {self._doubtful}, "topics are back"
        self._expected, self._doubtful = present, None


def first_row(answer: Any) -> Any:
    return answer.topics[0].partitions[0]


def patiently(call: Callable[[], Any], error: Callable[[Any], int]) -> Any:
    """The answer, asked for again while the broker is not ready."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        answer = call()
        if error(answer) not in PASSING or time.monotonic() > deadline:
            return answer
        time.sleep(0.02)


def end_of_batches(data: bytes) -> int:
    """The offset behind the last batch, which may have no records left."""
    _, header = split_batches(data, len(data))[-1]
    return header.base_offset + header.last_offset_delta + 1


def values_in(client: WireClient, topic: str) -> list[bytes]:
    """The values of a partition, whose offsets have no gaps."""
    found: list[bytes] = []
    end = patiently(lambda: client.list_offset(topic, -1), lambda answer: answer.error_code).offset
    while len(found) < end:
        data = client.call(fetch_request(topic, len(found)), FETCH_VERSION).responses[0].partitions[0]
        assert data.error_code == ErrorCode.NONE, f"offset {len(found)} of {end} cannot be read: {data.error_code}"
        for record in records_in(data.records):
            if record.offset < len(found):
                continue
            assert record.offset == len(found), f"no record at offset {len(found)}"
            found.append(record.value or b"")
    return found
