"""What a heartbeat's answer may say about the group besides the member's tasks."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class StatusCode(IntEnum):
    """The codes in a StreamsGroupHeartbeat response."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


class Status(NamedTuple):
    """One status, in the form of the response's rows."""

    code: StatusCode
    detail: str
