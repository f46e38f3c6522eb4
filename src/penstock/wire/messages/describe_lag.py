"""Messages of the DescribeLag API.

Generated from definitions/describe_lag.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class DescribeLagRequest(NamedTuple):
    """Version 0, flexible from 0."""

    groups: Sequence[str] | None = ()

    def response_class(self) -> type[DescribeLagResponse]:
        return DescribeLagResponse


class LagPartition(NamedTuple):
    topic: str = ""
    partition: int = 0
    committed_offset: int = 0
    end_offset: int = 0
    lag: int = 0
    lag_ms: int = -1
    status: str = ""
    committed_ms: int = -1
    member_id: str = ""
    client_id: str = ""
    client_host: str = ""


class LagGroup(NamedTuple):
    group_id: str = ""
    error_code: int = 0
    state: str = ""
    lag: int = 0
    lag_ms: int = -1
    partitions: Sequence[LagPartition] = ()


class DescribeLagResponse(NamedTuple):
    """Version 0, flexible from 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    groups: Sequence[LagGroup] = ()
