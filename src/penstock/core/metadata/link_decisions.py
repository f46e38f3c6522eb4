"""Decisions about cluster links and their mirror topics.

A mirror topic is created together with its record, so it is never writable before. When it is promoted, every partition
starts a new leader epoch: a leader that has not heard of it cannot commit anything any more, and where that epoch
begins is where what was mirrored ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple
from zlib import crc32

from penstock.core.metadata.image import Image
from penstock.core.metadata.links import MirrorState
from penstock.core.metadata.result import Result
from penstock.core.metadata.tenants import TenantRoom
from penstock.core.metadata.topic_names import OWN_TOPICS, folded
from penstock.core.metadata.topics import (
    PARTITIONS_PER_REQUEST_MAX,
    Admit,
    NewTopic,
    PlaceReplicas,
    check_new_topic,
    new_partition_records,
    topic_records,
)
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import METADATA_TOPIC_ID, ZERO_UUID, Uuid
from penstock.wire.messages.metadata_records import (
    LinkConfig,
    LinkRecord,
    MirrorTopicRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveLinkRecord,
)

LINKS_MAX = 100
# Where a cluster with links allocates its producer ids: far from those of other clusters, which come with the records.
_REGION_BITS = 40
_REGIONS = 1 << 20


class SourceTopic(NamedTuple):
    """A topic of the source, as it was just described."""

    name: str
    topic_id: Uuid
    partitions: int
    configs: Mapping[str, str]


class MirrorOutcome(NamedTuple):
    """What became of one topic of the source."""

    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


def find_link(image: Image, name: str) -> LinkRecord:
    """The link of a name; raises RESOURCE_NOT_FOUND."""
    link = image.links.named(name)
    if link is None:
        raise ApiError(ErrorCode.RESOURCE_NOT_FOUND, f"there is no link {name}: `penstock link list` shows all")
    return link


def create_link(
    image: Image, link: LinkRecord, own_cluster_id: str, source_topics: Sequence[str]
) -> Result[Sequence[str]]:
    """Record a new link; `source_topics` are those of the source that it would mirror now."""
    if image.links.named(link.name) is not None:
        raise ApiError(ErrorCode.DUPLICATE_RESOURCE, f"there is a link {link.name} already: alter or delete it")
    if len(image.links.links) >= LINKS_MAX:
        raise ApiError(ErrorCode.POLICY_VIOLATION, f"a cluster has at most {LINKS_MAX} links")
    if link.source_cluster_id == own_cluster_id:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"the source is this cluster itself ({own_cluster_id}): name the other one's brokers with --source",
        )
    if own_cluster_id in link.origins:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"the source mirrors topics of this cluster ({own_cluster_id}), so this would be a cycle: delete that link "
            "first",
        )
    present = sorted(name for name in source_topics if name in image.topics)
    if present:
        shown = ", ".join(present[:5]) + (f" and {len(present) - 5} more" if len(present) > 5 else "")
        raise ApiError(
            ErrorCode.TOPIC_ALREADY_EXISTS,
            f"this cluster has {shown} already, and a mirror starts without data: delete them here, or --exclude them",
        )
    before = image.next_producer_id
    region = (crc32(own_cluster_id.encode()) % _REGIONS + 1) << _REGION_BITS
    records: list[object] = [link._replace(kept_producer_id=before)]
    if region > before:
        records.append(ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=region))
    return Result(records, source_topics)


def alter_link(
    image: Image,
    name: str,
    topics: Sequence[str] | None,
    exclude: Sequence[str] | None,
    configs: Callable[[LinkRecord], Mapping[str, str]],
    source_cluster_id: str,
) -> Result[Sequence[str]]:
    """Change patterns and settings; `configs` computes the new ones. Another source must be the same cluster."""
    link = find_link(image, name)
    if source_cluster_id and source_cluster_id != link.source_cluster_id:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"link {name} mirrors cluster {link.source_cluster_id}, and this is {source_cluster_id}: make another one",
        )
    new = configs(link)
    record = link._replace(
        topics=link.topics if topics is None else topics,
        exclude=link.exclude if exclude is None else exclude,
        configs=config_rows(new),
    )
    return Result([record], ())


def config_rows(configs: Mapping[str, str]) -> list[LinkConfig]:
    """Settings as a record has them."""
    return [LinkConfig(name, value) for name, value in sorted(configs.items())]


def pause_link(image: Image, name: str, *, is_paused: bool) -> Result[Sequence[str]]:
    """Stop fetching for a while, or continue."""
    return Result([find_link(image, name)._replace(is_paused=is_paused)], ())


def delete_link(image: Image, name: str) -> Result[Sequence[str]]:
    """Remove a link that mirrors nothing any more."""
    link = find_link(image, name)
    active = sorted(
        _name(image, one) for one in image.links.mirrors_of(link.link_id) if one.state != MirrorState.STOPPED
    )
    if active:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"link {name} mirrors {len(active)} topics ({', '.join(active[:3])}…): promote or fail over them first, "
            "or delete the topics",
        )
    return Result([RemoveLinkRecord(link_id=link.link_id)], ())


def chosen_mirrors(image: Image, name: str, topics: Sequence[str] | None) -> list[MirrorTopicRecord]:
    """The mirror topics of a link that are not promoted yet: all, or those named. Raises ApiError for other names."""
    link = find_link(image, name)
    active = {
        _name(image, one): one for one in image.links.mirrors_of(link.link_id) if one.state != MirrorState.STOPPED
    }
    wanted = sorted(active) if topics is None else list(dict.fromkeys(topics))
    for topic in wanted:
        if topic not in active:
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic} is no mirror of link {name}, or is promoted already"
            )
    return [active[topic] for topic in wanted]


def begin_promotion(image: Image, name: str, topics: Sequence[str] | None, promotion_id: int) -> Result[Sequence[str]]:
    """Have leaders confirm that nothing is missing; `promotion_id` is larger than all before."""
    chosen = chosen_mirrors(image, name, topics)
    records = [one._replace(state=MirrorState.PROMOTING, promotion_id=promotion_id) for one in chosen]
    return Result(records, [_name(image, one) for one in chosen])


def cancel_promotion(image: Image, name: str, topics: Sequence[str] | None) -> Result[list[MirrorTopicRecord]]:
    """Mirror on; returns what was being promoted. Topics that are promoted already stay so.

    Raises ApiError if none of the named topics was ever a mirror of this link.
    """
    link = find_link(image, name)
    wanted = None if topics is None else frozenset(topics)
    named = [one for one in image.links.mirrors_of(link.link_id) if wanted is None or _name(image, one) in wanted]
    if wanted and not named:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"none of these topics is a mirror of link {name}")
    chosen = [one for one in named if one.state == MirrorState.PROMOTING]
    return Result([one._replace(state=MirrorState.MIRRORING, promotion_id=0) for one in chosen], chosen)


def stop_mirror(image: Image, topic_id: Uuid) -> list[object]:
    """The records that make a mirror topic writable: in a new leader epoch of each partition."""
    mirror = image.links.mirrors[topic_id]
    partitions = image.topics_by_id[topic_id].partitions
    stopped = mirror._replace(
        state=MirrorState.STOPPED, stopped_epochs=[one.leader_epoch + 1 for one in partitions], promotion_id=0
    )
    changes = [
        PartitionChangeRecord(partition_id=index, topic_id=topic_id, leader=one.leader)
        for index, one in enumerate(partitions)
    ]
    return [stopped, *changes]


def is_next_producer_id(image: Image, producer_id: int) -> bool:
    """Whether an id that came with mirrored records is one that this cluster would still give out.

    Ids of another region never are. To continue behind one would move this cluster into that region, where the cluster
    that it belongs to gives out the same ids.
    """
    after = producer_id + 1
    return image.next_producer_id < after and after >> _REGION_BITS == image.next_producer_id >> _REGION_BITS


def raise_producer_ids(image: Image, highest: int) -> list[object]:
    """Allocate no id again that came with mirrored records."""
    if not is_next_producer_id(image, highest):
        return []
    return [ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=highest + 1)]


def update_mirrors(
    image: Image,
    link_id: Uuid,
    found: Sequence[SourceTopic],
    replication_factor: int,
    partitions_max: int,
    place: PlaceReplicas,
    check_configs: Callable[[Mapping[str, str]], None],
    admit: Admit,
    check_growth: Callable[[str, int], None],
    new_id: Callable[[], Uuid],
    first_epoch: int,
) -> Result[list[MirrorOutcome]]:
    """Create mirrors of the source's topics that are missing here, and partitions that were added there.

    The link mirrors at most `partitions_max` partitions. Topics that would exceed that are refused, as are those that
    `admit` or, for a topic that grows, `check_growth` refuses; it gets the name and the new number of partitions.

    Partitions begin in leader epoch `first_epoch`, which is higher than any that an earlier topic of the same id had:
    a replica that missed its deletion keeps nothing of it.
    """
    link = image.links.links.get(link_id)
    if link is None:
        raise ApiError(ErrorCode.RESOURCE_NOT_FOUND, "the link was deleted")
    records: list[object] = []
    outcomes = []
    added: dict[str, str] = {}
    taken: set[Uuid] = set()
    room = TenantRoom(image)
    mirrored = sum(
        len(image.topics_by_id[one.topic_id].partitions)
        for one in image.links.mirrors_of(link_id)
        if one.state != MirrorState.STOPPED
    )

    def check_total(count: int) -> None:
        if mirrored + count > partitions_max:
            raise ApiError(
                ErrorCode.POLICY_VIOLATION,
                f"link {link.name} mirrors {mirrored} partitions and may mirror {partitions_max} "
                f"(link.partitions.max), so {count} more cannot be created: exclude topics, or raise the limit",
            )

    for topic in found:
        try:
            if topic.name in added.values():
                continue
            if topic.partitions > PARTITIONS_PER_REQUEST_MAX - len(records):
                raise ApiError(ErrorCode.POLICY_VIOLATION, "it has more partitions than one change may create")
            present = image.topics.get(topic.name)
            if present is not None:
                count = _growth(image, link, present.topic_id, topic)
                if count:
                    check_growth(topic.name, topic.partitions)
                    check_total(count)
                    records += _grow(image, present.topic_id, topic.name, count, place, room, first_epoch)
                    mirrored += count
                outcomes.append(MirrorOutcome(topic.name))
                continue
            if topic.name in OWN_TOPICS:
                raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic.name} is kept by this cluster itself")
            check_total(topic.partitions)
            configs = check_new_topic(image, added, NewTopic(topic.name, configs=topic.configs))
            check_configs(configs)
            replicas = place(topic.partitions, replication_factor)
            admit(topic.name, len(replicas), len(replicas[0]), configs)
            topic_id = topic.topic_id
            if topic_id in (ZERO_UUID, METADATA_TOPIC_ID) or topic_id in image.topics_by_id or topic_id in taken:
                topic_id = new_id()
            created = topic_records(
                topic.name, topic_id, _partitions(image, topic_id, 0, replicas, first_epoch), configs
            )
            room.take(topic.name, topic.partitions, is_new=True)
        except ApiError as error:
            outcomes.append(MirrorOutcome(topic.name, error.code, error.message))
            continue
        records += [*created, _mirror_of(link, topic_id, topic.topic_id)]
        outcomes.append(MirrorOutcome(topic.name))
        mirrored += topic.partitions
        added[folded(topic.name) or topic.name] = topic.name
        taken.add(topic_id)
    return Result(records, outcomes)


def _partitions(
    image: Image, topic_id: Uuid, first: int, replicas: Sequence[tuple[int, ...]], first_epoch: int
) -> list[PartitionRecord]:
    records = new_partition_records(image, topic_id, first, replicas)
    return [record._replace(leader_epoch=first_epoch) for record in records]


def _mirror_of(link: LinkRecord, topic_id: Uuid, source_topic_id: Uuid) -> MirrorTopicRecord:
    return MirrorTopicRecord(
        topic_id=topic_id,
        link_id=link.link_id,
        link_name=link.name,
        source_topic_id=source_topic_id,
        state=MirrorState.MIRRORING,
        kept_producer_id=link.kept_producer_id,
    )


def _growth(image: Image, link: LinkRecord, topic_id: Uuid, topic: SourceTopic) -> int:
    """How many partitions the source has that are missing here; raises ApiError if they are not to be mirrored."""
    mirror = image.links.mirrors.get(topic_id)
    if mirror is None or mirror.link_id != link.link_id:
        raise ApiError(
            ErrorCode.TOPIC_ALREADY_EXISTS,
            f"this cluster has a topic {topic.name} that link {link.name} does not mirror: delete or exclude it",
        )
    partitions = image.topics_by_id[topic_id].partitions
    count = topic.partitions - len(partitions)
    if mirror.state == MirrorState.STOPPED:
        if count > 0 and mirror.source_topic_id == topic.topic_id:
            raise ApiError(
                ErrorCode.POLICY_VIOLATION,
                f"it was promoted, and the source has {topic.partitions} partitions where {len(partitions)} are here: "
                "what is in the others there is not here; exclude the topic if that is as it should be",
            )
        return 0
    if mirror.source_topic_id != topic.topic_id:
        raise ApiError(
            ErrorCode.INCONSISTENT_TOPIC_ID,
            f"topic {topic.name} was deleted at the source and created anew: fail over to keep what is here, or delete "
            "it here to mirror the new one",
        )
    return max(0, count)


def _grow(
    image: Image, topic_id: Uuid, name: str, count: int, place: PlaceReplicas, room: TenantRoom, first_epoch: int
) -> list[PartitionRecord]:
    partitions = image.topics_by_id[topic_id].partitions
    room.take(name, count, is_new=False)
    replicas = place(count, len(partitions[0].replicas))
    return _partitions(image, topic_id, len(partitions), replicas, first_epoch)


def _name(image: Image, mirror: MirrorTopicRecord) -> str:
    return image.topics_by_id[mirror.topic_id].name
