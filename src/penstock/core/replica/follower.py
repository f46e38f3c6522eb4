"""A follower's state of its partition: its leader, its high watermark, and where its log diverges."""

from __future__ import annotations

from struct import Struct

from penstock.wire.record_types import Buffer
from penstock.wire.records import HEADER_SIZE, LENGTH_OVERHEAD, BatchHeader, CorruptBatch, check_crc, read_header

_LENGTH = Struct(">i")
_LENGTH_AT = 8

UNDEFINED = -1
# A segment's indexes have offsets relative to its first one, in four bytes.
APPENDED_OFFSETS_MAX = 2**31 - 1


class FollowerState:
    """One leader epoch as a follower sees it. `leader_id` is -1 while there is no leader."""

    __slots__ = ("high_watermark", "leader_epoch", "leader_id")

    is_sole_replica = False

    def __init__(self, leader_id: int, leader_epoch: int, high_watermark: int) -> None:
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.high_watermark = high_watermark

    def update_high_watermark(self, leader_high_watermark: int, log_end_offset: int) -> bool:
        """Follow the leader's high watermark; returns whether ours moved.

        A new leader may have a lower one than its predecessor, but what is committed stays so: ours never moves back.
        """
        reached = min(leader_high_watermark, log_end_offset)
        if reached <= self.high_watermark:
            return False
        assert self.high_watermark < reached <= log_end_offset, "a follower commits no more than it has"
        self.high_watermark = reached
        return True


def truncation_offset(
    leader_epoch: int, leader_end_offset: int, local_epoch: int, local_end_offset: int, log_end_offset: int
) -> int:
    """Where to truncate a log that diverges from the leader's.

    `leader_epoch` is the leader's largest epoch that is not after ours, and its end offset there. `local_epoch` is our
    largest epoch that is not after the leader's, and its end offset here; -1 when we have none. The truncated log may
    still end in an epoch that the leader does not have: then its answer to the next fetch truncates further.
    """
    if local_epoch == UNDEFINED or local_end_offset == UNDEFINED:
        return min(leader_end_offset, log_end_offset)
    if local_epoch != leader_epoch:
        return min(local_end_offset, log_end_offset)
    return min(leader_end_offset, local_end_offset, log_end_offset)


def beginning_of_batch(data: Buffer, offset: int) -> int:
    """Where the first batch of a leader's response begins if it contains `offset`, otherwise `offset`."""
    if len(data) < HEADER_SIZE:
        return offset
    header = read_header(data, 0)
    return header.base_offset if header.base_offset < offset < header.next_offset else offset


def whole_batches(data: Buffer, end_offset: int) -> tuple[list[BatchHeader], int, int]:
    """The batches of a leader's response that continue a log, and where in `data` they begin and end.

    A batch that is cut short at the end is left for the next fetch, as is one so far from the first that one segment
    cannot have both; one that the log already has is skipped. Raises CorruptBatch when one is damaged or does not
    continue the one before it.
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
        if headers and header.next_offset - 1 - headers[0].base_offset > APPENDED_OFFSETS_MAX:
            break
        position += size
        if not headers and header.next_offset <= expected:
            first = position
            continue
        if header.base_offset < expected or header.last_offset_delta < 0:
            raise CorruptBatch(f"a batch at offset {header.base_offset} cannot follow a log that ends at {expected}")
        headers.append(header)
        expected = header.next_offset
    return headers, first, position
