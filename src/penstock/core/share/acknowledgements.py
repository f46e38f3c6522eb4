"""What a member reports about the records that it holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from itertools import groupby
from typing import NamedTuple

from penstock.model.errors import ApiError, ErrorCode


class AckType(IntEnum):
    """What becomes of a record; the numbers are those of ShareAcknowledge."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


_TYPES = frozenset(int(kind) for kind in AckType)


class Piece(NamedTuple):
    """Neighbouring offsets of which the same is said."""

    first: int
    last: int
    kind: AckType


class Acknowledgement(NamedTuple):
    """Offsets with one type for all of them, or one for each."""

    first: int
    last: int
    types: Sequence[int]

    def pieces(self, start: int) -> Iterator[Piece]:
        """The pieces from `start` on."""
        assert self.first <= self.last, "it was checked before"
        assert len(self.types) in (1, self.last - self.first + 1), "one type for all, or one for each"
        if len(self.types) == 1:
            if self.last >= start:
                yield Piece(max(self.first, start), self.last, AckType(self.types[0]))
            return
        offset = self.first
        for kind, same in groupby(self.types):
            size = sum(1 for _ in same)
            if offset + size > start:
                yield Piece(max(offset, start), offset + size - 1, AckType(kind))
            offset += size


def check_acknowledgements(acknowledgements: Sequence[Acknowledgement], *, may_renew: bool) -> None:
    """Raises INVALID_REQUEST for batches out of order, that overlap, or whose types are not valid."""
    expected = 0
    for one in acknowledgements:
        if not expected <= one.first <= one.last:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"batches of acknowledgements must be in order and not overlap: {one.first} to {one.last}",
            )
        if len(one.types) not in (1, one.last - one.first + 1):
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"offsets {one.first} to {one.last} need one type of acknowledgement or one each, not {len(one.types)}",
            )
        for kind in set(one.types):
            if kind not in _TYPES or (kind == AckType.RENEW and not may_renew):
                raise ApiError(ErrorCode.INVALID_REQUEST, f"{kind} is no type of acknowledgement")
        expected = one.last + 1
