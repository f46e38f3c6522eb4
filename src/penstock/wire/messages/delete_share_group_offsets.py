"""Messages of the DeleteShareGroupOffsets API.

Generated from definitions/delete_share_group_offsets.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.ids import ZERO_UUID


class DeleteShareGroupOffsetsRequestTopic(NamedTuple):
    topic_name: str = ""


class DeleteShareGroupOffsetsRequest(NamedTuple):
    """Version 0, flexible from 0."""

    group_id: str = ""
    topics: Sequence[DeleteShareGroupOffsetsRequestTopic] = ()

    def response_class(self) -> type[DeleteShareGroupOffsetsResponse]:
        return DeleteShareGroupOffsetsResponse


class DeleteShareGroupOffsetsResponseTopic(NamedTuple):
    topic_name: str = ""
    topic_id: bytes = ZERO_UUID
    error_code: int = 0
    error_message: str | None = None


class DeleteShareGroupOffsetsResponse(NamedTuple):
    """Version 0, flexible from 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    responses: Sequence[DeleteShareGroupOffsetsResponseTopic] = ()
