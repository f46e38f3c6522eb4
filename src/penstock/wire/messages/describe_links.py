"""Messages of the DescribeLinks API.

Generated from definitions/describe_links.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.ids import ZERO_UUID


class DescribeLinksRequest(NamedTuple):
    """Version 0, flexible from 0."""

    names: Sequence[str] | None = ()

    def response_class(self) -> type[DescribeLinksResponse]:
        return DescribeLinksResponse


class DescribedLinkConfig(NamedTuple):
    name: str = ""
    value: str | None = ""


class DescribedMirrorPartition(NamedTuple):
    partition: int = 0
    state: str = ""
    reason: str = ""
    lag: int = 0
    source_end: int = 0
    mirrored_offset: int = 0
    open_transactions: int = 0


class DescribedMirrorTopic(NamedTuple):
    topic: str = ""
    state: int = 0
    partitions: Sequence[DescribedMirrorPartition] = ()


class DescribedLink(NamedTuple):
    name: str = ""
    link_id: bytes = ZERO_UUID
    source_cluster_id: str = ""
    origins: Sequence[str] = ()
    topics: Sequence[str] = ()
    exclude: Sequence[str] = ()
    is_paused: bool = False
    problem: str = ""
    configs: Sequence[DescribedLinkConfig] = ()
    mirrors: Sequence[DescribedMirrorTopic] = ()


class DescribeLinksResponse(NamedTuple):
    """Version 0, flexible from 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    cluster_id: str = ""
    links: Sequence[DescribedLink] = ()
