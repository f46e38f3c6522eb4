"""Messages of the DeleteTopics API.

Generated from definitions/delete_topics.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.ids import ZERO_UUID


class DeleteTopicState(NamedTuple):
    name: str | None = None
    topic_id: bytes = ZERO_UUID


class DeleteTopicsRequest(NamedTuple):
    """Versions 1-6, flexible from 4."""

    topics: Sequence[DeleteTopicState] = ()
    topic_names: Sequence[str] = ()
    timeout_ms: int = 0

    def response_class(self) -> type[DeleteTopicsResponse]:
        return DeleteTopicsResponse


class DeletableTopicResult(NamedTuple):
    name: str | None = ""
    topic_id: bytes = ZERO_UUID
    error_code: int = 0
    error_message: str | None = None


class DeleteTopicsResponse(NamedTuple):
    """Versions 1-6, flexible from 4."""

    throttle_time_ms: int = 0
    responses: Sequence[DeletableTopicResult] = ()
