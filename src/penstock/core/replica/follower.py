"""A follower's view of its partition: whom it follows, how far committed records reach, where its history parts."""

from __future__ import annotations

from struct import Struct

from penstock.model.ids import NO_LEADER
from penstock.wire.record_types import Buffer
from penstock.wire.records import HEADER_SIZE, LENGTH_OVERHEAD, BatchHeader, CorruptBatch, check_crc, read_header

_LENGTH = Struct(">i")
_LENGTH_AT = 8

UNDEFINED = -1


class FollowerState:
    """One leader epoch as a follower sees it. `leader_id` is -1 while there is no leader."""

    __slots__ = ("high_watermark", "leader_epoch", "leader_id")

    is_sole_replica = False

    def __init__(self, leader_id: int, leader_epoch: int, high_watermark: int) -> None:
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.high_watermark = high_watermark

    @property
    def has_leader(self) -> bool:
        """Whether there is anybody to fetch from."""
        return self.leader_id != NO_LEADER

    def told(self, leader_high_watermark: int, log_end_offset: int) -> bool:
        """The leader told its high watermark; returns whether ours moved.

        A new leader may know less than an old one told, and what is committed stays so: ours never moves back.
        """
        reached = min(leader_high_watermark, log_end_offset)
        if reached <= self.high_watermark:
            return False
        self.high_watermark = reached
        return True


def truncation_offset(
    leader_epoch: int, leader_end_offset: int, local_epoch: int, local_end_offset: int, log_end_offset: int
) -> int:
    """Where to cut a log whose history parts from the leader's.

    The leader says that `leader_epoch` is its largest one that is not after ours, and where it ends there. Ours is
    `local_epoch`, our largest one that is not after the leader's, and where it ends here; -1 when we know none. A cut
    may leave an epoch that the leader does not have: then its answer to the next fetch cuts further.
    """
    if local_epoch == UNDEFINED or local_end_offset == UNDEFINED:
        return min(leader_end_offset, log_end_offset)
    if local_epoch != leader_epoch:
        return min(local_end_offset, log_end_offset)
    return min(leader_end_offset, local_end_offset, log_end_offset)


def beginning_of_batch(data: Buffer, offset: int) -> int:
    """Where the first batch of a leader's answer begins if `offset` lies within it, else `offset`."""
    if len(data) < HEADER_SIZE:
        return offset
    header = read_header(data, 0)
    return header.base_offset if header.base_offset < offset < header.next_offset else offset


def whole_batches(data: Buffer, end_offset: int) -> tuple[list[BatchHeader], int, int]:
    """The batches of a leader's answer that go on where a log ends, and where in `data` they begin and end.

    A batch that is cut short at the end is left for the next time, one that the log has already is passed over. Raises
    CorruptBatch when one is damaged or does not fit behind the one before it.
    """
    headers: list[BatchHeader] = []
    position = first = 0
    expected = end_offset
    while len(data) - position >= LENGTH_OVERHEAD:
        size = _LENGTH.unpack_from(data, position + _LENGTH_AT)[0] + LENGTH_OVERHEAD
        if size > len(data) - position:
            break
        header = read_header(data, position)
        check_crc(data, position, header)
        position += size
        if not headers and header.next_offset <= expected:
            first = position
            continue
        if header.base_offset < expected or header.last_offset_delta < 0:
            raise CorruptBatch(f"a batch at offset {header.base_offset} cannot follow a log that ends at {expected}")
        headers.append(header)
        expected = header.next_offset
    return headers, first, position
