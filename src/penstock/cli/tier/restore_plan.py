"""What `penstock tier restore` can bring back, found from a bucket alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock.cli.failures import CommandFailure
from penstock.core.tier.restore import holes, readable_partition
from penstock.core.tier.segments import EpochStart, RemoteSegment
from penstock.model.ids import Uuid, format_uuid
from penstock.storage.tier.inventory import Inventory, StoredSegment, take_inventory
from penstock.storage.tier.layout import ManifestError, PartitionLocation, TopicDocument
from penstock.storage.tier.object_store import ObjectStore
from penstock.storage.tier.recovery import find_end, recoverable
from penstock.storage.tier.sealing import Seals

REMOTE_STORAGE_ENABLE = "remote.storage.enable"
# Ids that were given out after the last snapshot must not be given out again either.
PRODUCER_ID_MARGIN = 10_000


@dataclass(slots=True)
class PartitionPlan:
    """One partition: its whole segments, where it ends, and the epoch it continues in."""

    place: PartitionLocation
    segments: Sequence[RemoteSegment] = ()
    restored_offset: int = 0
    leader_epoch: int = 0
    producer_id_max: int = -1
    unfinished: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def start_offset(self) -> int:
        """The first offset that comes back."""
        return min((segment.first_offset for segment in self.segments), default=0)


@dataclass(slots=True)
class TopicPlan:
    """One topic, and what is wrong with it; `notes` are no reason to stop."""

    document: TopicDocument
    partitions: list[PartitionPlan]
    problems: list[str]
    notes: list[str]

    @property
    def all_problems(self) -> list[str]:
        """Everything that is missing or damaged."""
        return self.problems + [problem for one in self.partitions for problem in one.problems]


async def find_cluster(store: ObjectStore, wanted: str | None) -> tuple[str, Inventory]:
    """The lost cluster's id and objects; raises CommandFailure unless it is clear which one is meant."""
    inventory = await take_inventory(store, wanted or "")
    present = sorted({one.place.cluster_id for one in inventory.segments.values()})
    if not present:
        raise CommandFailure("there is nothing to restore", f"the store has no segments of {wanted or 'any cluster'}")
    if len(present) > 1:
        raise CommandFailure("which cluster?", f"the store has {', '.join(present)}", "name it with --from-cluster")
    return present[0], inventory


async def plan_topics(
    store: ObjectStore,
    seals: Seals,
    cluster_id: str,
    inventory: Inventory,
    wanted: Collection[str],
    settings: Mapping[str, str],
) -> list[TopicPlan]:
    """What can be restored of these topics, or of all, with other settings; raises CommandFailure if one is missing."""
    by_topic: dict[tuple[str, Uuid], dict[int, list[StoredSegment]]] = {}
    for one in inventory.in_order():
        partitions = by_topic.setdefault((one.place.topic, one.place.topic_id), {})
        partitions.setdefault(one.place.partition, []).append(one)
    missing = sorted(set(wanted) - {name for name, _ in by_topic})
    if missing:
        raise CommandFailure(f"the store has nothing of {', '.join(missing)}", "see `penstock tier list`")
    plans: dict[str, TopicPlan] = {}
    for (name, topic_id), partitions in sorted(by_topic.items()):
        if wanted and name not in wanted:
            continue
        plan = await _plan_topic(store, seals, PartitionLocation(cluster_id, name, topic_id, 0), inventory, partitions)
        other = plans.get(name)
        if other is not None:
            plan, left = sorted((plan, other), key=_newest_ms, reverse=True)
            plan.notes.append(
                f"another topic of this name, {format_uuid(left.document.topic_id)}, is older and is left out"
            )
        plan.document = replace(plan.document, configs={**plan.document.configs, **settings})
        plans[name] = plan
    return list(plans.values())


def _newest_ms(plan: TopicPlan) -> int:
    return max((one.event_timestamp_ms for part in plan.partitions for one in part.segments), default=0)


async def _plan_topic(
    store: ObjectStore,
    seals: Seals,
    place: PartitionLocation,
    inventory: Inventory,
    stored: Mapping[int, Sequence[StoredSegment]],
) -> TopicPlan:
    problems: list[str] = []
    document = TopicDocument(
        place.cluster_id, place.topic, place.topic_id, max(stored) + 1, -1, {REMOTE_STORAGE_ENABLE: "true"}
    )
    listed = inventory.topics.get(place.topic_id)
    try:
        if listed is None:
            problems.append(f"{place.topic_directory}/topic.json is missing: its settings are not known")
        else:
            document = TopicDocument.from_bytes(await store.get(listed.path))
    except ManifestError as error:
        problems.append(f"{place.topic_directory}/topic.json: {error}")
    count = max(document.partitions, max(stored) + 1)
    partitions = [
        await plan_partition(store, seals, place._replace(partition=number), stored.get(number, ()))
        for number in range(count)
    ]
    notes = [
        f"{place.topic}-{one.place.partition} was never copied: it starts empty"
        for one in partitions
        if not one.segments and not one.problems
    ]
    unfinished = sum(one.unfinished for one in partitions)
    if unfinished:
        notes.append(
            f"{place.topic}: {unfinished} copies were never finished; `penstock tier verify --clean` removes them"
        )
    return TopicPlan(document, partitions, problems, notes)


async def plan_partition(
    store: ObjectStore, seals: Seals, place: PartitionLocation, stored: Sequence[StoredSegment]
) -> PartitionPlan:
    """What can be restored of one partition; raises StoreError."""
    found = await recoverable(store, stored)
    plan = PartitionPlan(place, found.segments, unfinished=len(found.unfinished))
    plan.problems += [f"{problem.path} {problem.what}" for problem in found.problems]
    if not found.segments:
        return plan
    end = await find_end(store, place, found.segments, seals)
    plan.problems += [f"{problem.path} {problem.what}" for problem in end.problems]
    plan.restored_offset = end.offset
    plan.leader_epoch = max(entry.epoch for segment in found.segments for entry in segment.epochs) + 1
    plan.producer_id_max = max((entry.producer_id for entry in end.history.producers), default=-1)
    lineage = [EpochStart(*entry) for entry in end.history.epochs]
    missing = holes(readable_partition(found.segments), lineage, plan.restored_offset)
    plan.problems += [
        f"{place.topic}-{place.partition}: offsets {hole.first} to {hole.last} are in no segment" for hole in missing
    ]
    return plan


def next_producer_id(plans: Sequence[TopicPlan]) -> int:
    """The first id for producers that no producer in the tier has; 0 if there is none."""
    highest = max((part.producer_id_max for plan in plans for part in plan.partitions), default=-1)
    return highest + 1 + PRODUCER_ID_MARGIN if highest >= 0 else 0


def describe_plans(plans: Sequence[TopicPlan], missing: Collection[TopicPlan]) -> list[dict[str, object]]:
    """One row for each topic."""
    return [
        {
            "topic": plan.document.topic,
            "topic_id": format_uuid(plan.document.topic_id),
            "partitions": len(plan.partitions),
            "segments": sum(len(part.segments) for part in plan.partitions),
            "bytes": sum(segment.size_bytes for part in plan.partitions for segment in part.segments),
            "records": sum(part.restored_offset - part.start_offset for part in plan.partitions),
            "state": "missing" if plan in missing else "present",
            "problems": plan.all_problems,
            "notes": plan.notes,
            "offsets": [[part.start_offset, part.restored_offset] for part in plan.partitions],
        }
        for plan in plans
    ]
