"""The settings of a share group: its own where it has any, the broker's otherwise."""

from __future__ import annotations

from typing import NamedTuple

from penstock.config.node import NodeSettings
from penstock.config.offset_reset import OffsetReset, parse_offset_reset
from penstock.core.group.contract import Bounded
from penstock.core.metadata.image import Image, ResourceType
from penstock.core.share.contract import ShareSettings

# The default of penstock.share.retry.backoff.max.ms.
BACKOFF_MAX_MS = 60_000


class ShareGroupSettings(NamedTuple):
    """What a group's partitions run with."""

    partition: ShareSettings
    # None where the group does not say.
    offset_reset: OffsetReset | None
    committed_only: bool
    # Where dead letters go, if the group wants them, and whether they have the records' contents.
    dead_letter_topic: str = ""
    copies_dead_letters: bool = False
    # Whether members get no more records than they want, and so parts of batches.
    is_strict: bool = False


def settings_of(image: Image, node: NodeSettings, group: str) -> ShareGroupSettings:
    """The settings of a group as they are now, within the broker's bounds."""
    own = image.overrides(ResourceType.GROUP, group)
    topic = own.get("errors.deadletterqueue.topic.name", "")
    partition = ShareSettings(
        Bounded(
            node.group_share_delivery_count_limit,
            node.group_share_min_delivery_count_limit,
            node.group_share_max_delivery_count_limit,
        ).of(own.get("share.delivery.count.limit")),
        Bounded(
            node.group_share_record_lock_duration_ms,
            node.group_share_min_record_lock_duration_ms,
            node.group_share_max_record_lock_duration_ms,
        ).of(own.get("share.record.lock.duration.ms")),
        Bounded(
            node.group_share_partition_max_record_locks,
            node.group_share_min_partition_max_record_locks,
            node.group_share_max_partition_max_record_locks,
        ).of(own.get("share.partition.max.record.locks")),
        own.get("share.renew.acknowledge.enable", "true") == "true",
        bool(topic),
        int(own.get("penstock.share.retry.backoff.ms", 0)),
        int(own.get("penstock.share.retry.backoff.max.ms", BACKOFF_MAX_MS)),
        node.penstock_share_delay_index_max_records,
    )
    reset = own.get("share.auto.offset.reset")
    return ShareGroupSettings(
        partition,
        parse_offset_reset(reset) if reset is not None else None,
        own.get("share.isolation.level") == "read_committed",
        topic,
        own.get("errors.deadletterqueue.copy.record.enable") == "true",
        own.get("penstock.share.acquire.mode") == "record_limit",
    )
