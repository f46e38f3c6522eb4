"""What all kinds of Fetch share: how a partition is named, what is requested, and how results become a response."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from penstock.core.replica.fetch_session import FetchContext, Wanted
from penstock.model.ids import Uuid
from penstock.runtime.replication.leader_hints import HINTED, LeaderHints
from penstock.runtime.replication.partitions import Partitions
from penstock.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

TOPIC_IDS_SINCE = 13
# The first version with topic ids.
HINTS_SINCE = 16


class FetchKey(NamedTuple):
    """A partition as a fetch names it: by topic name before version 13, by topic id since."""

    topic: str
    topic_id: Uuid
    partition: int


class FetchedPartition(NamedTuple):
    """The result for one partition. `is_moved` is set if what is requested is only in object storage."""

    key: FetchKey
    data: PartitionData
    size_bytes: int
    is_moved: bool = False


def is_follower(request: FetchRequest) -> bool:
    """Whether a broker fetches; which of the two fields shows it depends on the version."""
    return request.replica_id >= 0 or request.replica_state.replica_id >= 0


def wanted_in(request: FetchRequest) -> Iterator[tuple[FetchKey, Wanted]]:
    """The partitions in a request, and what it requests of each."""
    for topic in request.topics:
        for row in topic.partitions:
            yield (
                FetchKey(topic.topic, topic.topic_id, row.partition),
                Wanted(
                    row.fetch_offset,
                    row.partition_max_bytes,
                    row.current_leader_epoch,
                    row.log_start_offset,
                    row.last_fetched_epoch,
                ),
            )


def forgotten_in(request: FetchRequest) -> Iterator[FetchKey]:
    """The partitions that a request removes from its session."""
    for topic in request.forgotten_topics_data:
        for partition in topic.partitions:
            yield FetchKey(topic.topic, topic.topic_id, partition)


def respond(
    fetch: FetchContext, found: Sequence[FetchedPartition], partitions: Partitions, api_version: int, listener_name: str
) -> FetchResponse:
    """The response for a client of this listener; in a session only partitions with something new."""
    builder = ResponseBuilder(fetch, partitions, api_version)
    builder.add(found)
    return builder.response(listener_name)


class ResponseBuilder:
    """A response that is made of its rows, some at a time."""

    __slots__ = ("_fetch", "_has_hints", "_hints", "_topics")

    def __init__(self, fetch: FetchContext, partitions: Partitions, api_version: int) -> None:
        self._fetch = fetch
        self._has_hints = api_version >= HINTS_SINCE
        self._hints = LeaderHints(partitions)
        self._topics: dict[tuple[str, Uuid], list[PartitionData]] = {}

    def add(self, found: Sequence[FetchedPartition]) -> None:
        """Further rows; in a session only those with something new are included."""
        topics, has_hints = self._topics, self._has_hints
        for row in self._included(found):
            data = row.data
            if data.error_code and has_hints and data.error_code in HINTED:
                leader = self._hints.leader(data.error_code, *row.key, by_id=True)
                data = data._replace(current_leader=LeaderIdAndEpoch(*leader))
            topics.setdefault((row.key.topic, row.key.topic_id), []).append(data)

    def _included(self, found: Sequence[FetchedPartition]) -> Sequence[FetchedPartition]:
        session = self._fetch.session
        if session is None:
            return found
        return [
            row
            for row in found
            if session.must_include(
                row.key, row.data.high_watermark, row.data.log_start_offset, row.size_bytes, row.data.error_code
            )
            or not self._fetch.incremental
            or row.data.preferred_read_replica >= 0
            or row.data.diverging_epoch.epoch >= 0
        ]

    def response(self, listener_name: str) -> FetchResponse:
        """The response for a client of this listener, with all rows that were added."""
        topics = self._topics.items()
        return FetchResponse(
            session_id=self._fetch.session_id,
            responses=[FetchableTopicResponse(topic, topic_id, rows) for (topic, topic_id), rows in topics],
            node_endpoints=self._hints.endpoints(listener_name, NodeEndpoint),
        )
