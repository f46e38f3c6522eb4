"""Cluster links in the metadata log: the links of this cluster, and its topics that are mirrors.

Part of the image, as `security` is. A topic that was promoted keeps its record: it has the leader epochs in which its
partitions became writable, and so where what was mirrored ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Any

from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicPartition, Uuid
from penstock.wire.messages.metadata_records import LinkRecord, MirrorTopicRecord, RemoveLinkRecord


class MirrorState(IntEnum):
    """What becomes of a mirror topic; the numbers are in the log."""

    MIRRORING = 0
    PROMOTING = 1
    STOPPED = 2


class LinkState:
    """Links by their ids, and mirror topics by theirs."""

    def __init__(self) -> None:
        self.links: dict[Uuid, LinkRecord] = {}
        self.mirrors: dict[Uuid, MirrorTopicRecord] = {}

    def named(self, name: str) -> LinkRecord | None:
        """The link of a name."""
        return next((link for link in self.links.values() if link.name == name), None)

    def mirrors_of(self, link_id: Uuid) -> list[MirrorTopicRecord]:
        """The mirror topics of a link, promoted ones included."""
        return [mirror for mirror in self.mirrors.values() if mirror.link_id == link_id]

    def is_mirroring(self, topic_id: Uuid) -> bool:
        """Whether a topic is a mirror that is not promoted yet."""
        mirror = self.mirrors.get(topic_id)
        return mirror is not None and mirror.state != MirrorState.STOPPED

    def check_not_mirroring(self, topic_id: Uuid, name: str) -> None:
        """Raises POLICY_VIOLATION, which clients do not retry, for a topic that only its link may change."""
        mirror = self.mirrors.get(topic_id)
        if mirror is not None and mirror.state != MirrorState.STOPPED:
            raise ApiError(
                ErrorCode.POLICY_VIOLATION,
                f"topic {name} is a mirror of link {mirror.link_name} and read-only: write to the link's source, or "
                f"promote it (penstock link promote {mirror.link_name} --topics {name})",
            )

    def check_writable(self, topic_id: Uuid, partition: TopicPartition, leader_epoch: int) -> None:
        """As `check_not_mirroring`. A leader that does not lead the promoted partition yet has the client try again."""
        mirror = self.mirrors.get(topic_id)
        if mirror is None:
            return
        self.check_not_mirroring(topic_id, partition.topic)
        epochs = mirror.stopped_epochs
        if partition.partition < len(epochs) and leader_epoch < epochs[partition.partition]:
            raise ApiError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition} was promoted just now; its leader epoch begins"
            )

    def stopped_epoch(self, topic_id: Uuid, partition: int) -> int | None:
        """The leader epoch in which a promoted partition became writable; None if none of it was ever mirrored."""
        mirror = self.mirrors.get(topic_id)
        if mirror is None or mirror.state != MirrorState.STOPPED or partition >= len(mirror.stopped_epochs):
            return None
        return mirror.stopped_epochs[partition]

    def forget_topic(self, topic_id: Uuid) -> None:
        """A topic was deleted."""
        self.mirrors.pop(topic_id, None)

    def snapshot(self) -> Iterator[Any]:
        """The records that rebuild this state."""
        yield from self.links.values()
        yield from self.mirrors.values()

    def differences(self, new: LinkState) -> Iterator[Any]:
        """The records that remove what a new state no longer has; mirrors go with their topics."""
        for link_id in self.links.keys() - new.links.keys():
            yield RemoveLinkRecord(link_id=link_id)

    def _link(self, record: LinkRecord) -> None:
        self.links[record.link_id] = record

    def _remove_link(self, record: RemoveLinkRecord) -> None:
        self.links.pop(record.link_id, None)

    def _mirror(self, record: MirrorTopicRecord) -> None:
        self.mirrors[record.topic_id] = record


REPLAY: dict[type, Callable[[LinkState, Any], None]] = {
    LinkRecord: LinkState._link,
    RemoveLinkRecord: LinkState._remove_link,
    MirrorTopicRecord: LinkState._mirror,
}


def configs_of(link: LinkRecord) -> dict[str, str]:
    """A link's settings."""
    return {config.name: config.value for config in link.configs}
