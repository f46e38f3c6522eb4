"""Dead letters (KIP-1191): records that a share group gave up, as they stand in its topic for them.

A dead letter has the key, the value and the headers of its record if the group wants a copy, and behind them headers
that say where the record is, who gave it up and why. Each is a batch of its own, with the producer id and the sequence
that were stored for it, so that a partition which has it already knows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from penstock.core.share.contract import DeadLetter
from penstock.core.share.runs import NO_PRODUCER_ID, Reason, RecordState, StateBatch
from penstock.wire.records import Record, build_batch

PREFIX = "__dlq.errors."
TOPIC = PREFIX + "topic"
PARTITION = PREFIX + "partition"
OFFSET = PREFIX + "offset"
GROUP = PREFIX + "group"
DELIVERY_COUNT = PREFIX + "delivery.count"
MESSAGE = PREFIX + "message"
# These two are not Kafka's.
MEMBER = PREFIX + "member"
TIMESTAMP = PREFIX + "timestamp"

# In Kafka's words.
MESSAGES = {
    Reason.REJECTED: "Offset rejected by client.",
    Reason.OUT_OF_TRIES: "Offset delivery count exceeded the threshold.",
}
GONE = "The record itself was no longer in the log."
TOO_LARGE = "The record itself is too large for this topic."

Headers = Sequence[tuple[str, bytes | None]]


class Origin(NamedTuple):
    """Where a dead letter's record is, and which group gave it up."""

    topic: str
    partition: int
    group: str


class Account(NamedTuple):
    """What the headers of a dead letter say; a `delivery_count` or `timestamp` of -1 is unknown."""

    topic: str
    partition: int
    offset: int
    group: str
    delivery_count: int
    message: str
    member: str
    timestamp: int


def is_unidentified(batch: StateBatch) -> bool:
    """Whether a dead letter is stored for the first time, and needs an identity."""
    return batch.state == RecordState.ARCHIVING and batch.producer_id == NO_PRODUCER_ID


def identified(batches: Iterable[StateBatch], producer_id: int, sequence: int) -> tuple[tuple[StateBatch, ...], int]:
    """Batches in which every dead letter has an identity, and the sequence after the last one."""
    found = []
    for batch in batches:
        if is_unidentified(batch):
            found.append(batch._replace(producer_id=producer_id, sequence=sequence))
            sequence += batch.last - batch.first + 1
        else:
            found.append(batch)
    assert not any(is_unidentified(batch) for batch in found), "every dead letter has an identity"
    return tuple(found), sequence


def build_letter(
    letter: DeadLetter, origin: Origin, record: Record | None, now_ms: int, *, copies: bool, note: str = ""
) -> bytes:
    """The batch of one dead letter. `record` is None if it is gone; `note` is added to the reason."""
    message = MESSAGES[letter.reason]
    assert letter.producer_id != NO_PRODUCER_ID, "a dead letter is written under an identity"
    if copies and record is None and not note:
        note = GONE
    account: list[tuple[str, bytes | None]] = [
        (TOPIC, origin.topic.encode()),
        (PARTITION, b"%d" % origin.partition),
        (OFFSET, b"%d" % letter.offset),
        (GROUP, origin.group.encode()),
        (DELIVERY_COUNT, b"%d" % letter.delivery_count),
        (MESSAGE, f"{message} {note}".rstrip().encode()),
        (MEMBER, letter.member.encode()),
    ]
    if record is not None:
        account.append((TIMESTAMP, b"%d" % record.timestamp))
    if copies and record is not None:
        dead = Record(0, now_ms, record.key, record.value, (*record.headers, *account))
    else:
        dead = Record(0, now_ms, None, None, tuple(account))
    return build_batch([dead], producer_id=letter.producer_id, producer_epoch=0, base_sequence=letter.sequence)


def read_account(headers: Headers) -> Account | None:
    """What a dead letter's headers say; None for a record that is none."""
    found = {name: value or b"" for name, value in headers if name.startswith(PREFIX)}
    try:
        return Account(
            found[TOPIC].decode(),
            int(found[PARTITION]),
            int(found[OFFSET]),
            found.get(GROUP, b"").decode(),
            int(found.get(DELIVERY_COUNT, b"-1")),
            found.get(MESSAGE, b"").decode(),
            found.get(MEMBER, b"").decode(),
            int(found.get(TIMESTAMP, b"-1")),
        )
    except (KeyError, ValueError):
        return None


def original_headers(headers: Headers) -> list[tuple[str, bytes | None]]:
    """The headers without those of the dead letter. A record that died twice keeps those of its first death."""
    names = [name for name, _ in headers]
    if TOPIC not in names:
        return [*headers]
    begin = len(names) - 1 - names[::-1].index(TOPIC)
    return [*headers[:begin], *(row for row in headers[begin:] if not row[0].startswith(PREFIX))]
