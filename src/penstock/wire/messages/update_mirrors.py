"""Messages of the UpdateMirrors API.

Generated from definitions/update_mirrors.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.ids import ZERO_UUID


class SourceTopicConfig(NamedTuple):
    name: str = ""
    value: str = ""


class SourceTopic(NamedTuple):
    name: str = ""
    source_topic_id: bytes = ZERO_UUID
    partitions: int = 0
    configs: Sequence[SourceTopicConfig] = ()


class PromotionClaim(NamedTuple):
    topic_id: bytes = ZERO_UUID
    partition: int = 0
    promotion_id: int = 0
    leader_epoch: int = 0
    end_offset: int = 0


class UpdateMirrorsRequest(NamedTuple):
    """Version 0, flexible from 0."""

    broker_id: int = 0
    broker_epoch: int = 0
    link_id: bytes = ZERO_UUID
    highest_producer_id: int = -1
    topics: Sequence[SourceTopic] = ()
    claims: Sequence[PromotionClaim] = ()

    def response_class(self) -> type[UpdateMirrorsResponse]:
        return UpdateMirrorsResponse


class UpdatedMirrorTopic(NamedTuple):
    name: str = ""
    error_code: int = 0
    error_message: str | None = ""


class UpdateMirrorsResponse(NamedTuple):
    """Version 0, flexible from 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    topics: Sequence[UpdatedMirrorTopic] = ()
