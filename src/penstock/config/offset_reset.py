"""`share.auto.offset.reset`: where a share group starts that has read nothing of a partition yet."""

from __future__ import annotations

import re
from typing import NamedTuple

OFFSET_RESET = "share.auto.offset.reset"
EARLIEST = "earliest"
LATEST = "latest"
BY_DURATION = "by_duration"

_DURATION = re.compile(
    r"P(?=.)(?:(\d+)D)?(?:T(?=.)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:[.,]\d{1,9})?)S)?)?", re.IGNORECASE | re.ASCII
)
_PARTS_MS = (86_400_000, 3_600_000, 60_000, 1_000)


class OffsetReset(NamedTuple):
    """`kind` is one of the names above, `duration_ms` how far back BY_DURATION goes."""

    kind: str
    duration_ms: int = 0


def parse_offset_reset(text: str) -> OffsetReset:
    """Read the setting; raises ValueError for anything else."""
    kind, _, duration = text.strip().partition(":")
    if kind.lower() in (EARLIEST, LATEST) and not duration:
        return OffsetReset(kind.lower())
    found = _DURATION.fullmatch(duration) if kind.lower() == BY_DURATION else None
    if found is None:
        raise ValueError(
            f"{text!r} is not earliest, latest or by_duration:<ISO 8601 duration>, such as by_duration:PT1H"
        )
    parts = (float((part or "0").replace(",", ".")) for part in found.groups())
    return OffsetReset(BY_DURATION, int(sum(part * size_ms for part, size_ms in zip(parts, _PARTS_MS, strict=True))))
