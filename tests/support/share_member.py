"""A member of a share group on one connection: takes records, acknowledges them, and remembers nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from penstock.core.share.state import ShareKey
from penstock.wire.messages import initialize_share_group_state as beginning
from penstock.wire.messages import share_acknowledge as acknowledging
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.messages.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest
from penstock.wire.records import Record
from support.wire_client import WireClient, records_in

DEADLINE_S = 60.0
SHARE = 2
GROUP_RESOURCE = 32
SET = 0
BYTES_MAX = 64 * 1024 * 1024


class Taken(NamedTuple):
    """A record that a member got."""

    record: Record
    delivery_count: int


def until(is_so: Callable[[], object], deadline_s: float = DEADLINE_S) -> None:
    deadline = time.monotonic() + deadline_s
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def leader_of(client: WireClient, topic: str, partition: int = 0) -> tuple[int, bytes]:
    found = client.call(MetadataRequest([MetadataRequestTopic(name=topic)]), 12).topics[0]
    rows = [row for row in found.partitions if row.partition_index == partition]
    return (rows[0].leader_id if rows else -1), found.topic_id


def begin(client: WireClient, group: str, topic_id: bytes, partition: int = 0, start: int = 0) -> None:
    """Begin the state of a share-partition, as the group's coordinator would."""
    key = ShareKey(group, topic_id, partition).coordinator_key
    row = beginning.PartitionData(partition, 0, start)
    request = beginning.InitializeShareGroupStateRequest(group, [beginning.InitializeStateData(topic_id, [row])])

    def is_done() -> bool:
        found = client.call(FindCoordinatorRequest(key_type=SHARE, coordinator_keys=[key]), 6).coordinators[0]
        if found.error_code:
            return False
        with WireClient(f"{found.host}:{found.port}") as coordinator:
            return bool(coordinator.call(request, 0).results[0].partitions[0].error_code == 0)

    until(is_done)


def set_group(client: WireClient, group: str, settings: Mapping[str, str]) -> None:
    """Change the settings of a group."""
    rows = [AlterableConfig(name, SET, value) for name, value in settings.items()]
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(GROUP_RESOURCE, group, rows)])
    (answer,) = client.call(request, 1).responses
    assert answer.error_code == 0, answer.error_message


class ShareMember:
    """Fetches one partition from `client`'s broker, which leads it."""

    def __init__(self, client: WireClient, group: str, member: str, topic_id: bytes, partition: int = 0) -> None:
        self.client = client
        self.group = group
        self.member = member
        self._topic_id = topic_id
        self._partition = partition
        self._epoch = 0

    def take(self, records_max: int = 500, wait_ms: int = 500, batch_size: int = 500) -> list[Taken]:
        """The next records; none if there are none in time."""
        topics = [FetchTopic(self._topic_id, [FetchPartition(self._partition)])] if self._epoch == 0 else []
        request = ShareFetchRequest(
            self.group, self.member, self._epoch, wait_ms, 1, BYTES_MAX, records_max, batch_size, topics=topics
        )
        response = self.client.call(request, 2)
        assert response.error_code == 0, response.error_message
        self._epoch += 1
        taken = []
        for topic in response.responses:
            for row in topic.partitions:
                assert row.error_code == 0, row.error_message
                counts = {
                    offset: one.delivery_count
                    for one in row.acquired_records
                    for offset in range(one.first_offset, one.last_offset + 1)
                }
                taken += [
                    Taken(record, counts[record.offset])
                    for record in records_in(row.records)
                    if record.offset in counts
                ]
        return taken

    def say(self, kind: int, offsets: Iterable[int]) -> int:
        """Say what became of some records; the error code."""
        said = [acknowledging.AcknowledgementBatch(offset, offset, [kind]) for offset in sorted(offsets)]
        rows = [acknowledging.AcknowledgePartition(self._partition, said)]
        topic = acknowledging.AcknowledgeTopic(self._topic_id, rows)
        request = acknowledging.ShareAcknowledgeRequest(self.group, self.member, self._epoch, topics=[topic])
        response = self.client.call(request, 2)
        assert response.error_code == 0, response.error_message
        self._epoch += 1
        code: int = response.responses[0].partitions[0].error_code
        return code
