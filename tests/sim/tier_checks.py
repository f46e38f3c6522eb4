"""What must hold about object storage.

tier-damage    a segment that the metadata takes for finished lacks an object, has another one than in its manifest,
               or cannot be opened with the key that it names
tier-differs   a segment in the store has other records than readers get at its offsets
"""

from __future__ import annotations

from collections.abc import Iterator

from crc32c import crc32c

from penstock.core.tier.metadata_records import METADATA_TOPIC, RemotePartitions, decode_record
from penstock.core.tier.plans import segments_to_copy
from penstock.core.tier.segments import RemoteSegment
from penstock.node import Node
from penstock.storage.tier.layout import LOG, Manifest, ManifestError, PartitionLocation
from penstock.storage.tier.object_store import StoreError
from penstock.storage.tier.sealing import Seals, open_bytes
from penstock.wire.records import read_records, split_batches
from sim.disk import KEYS_PATH, SimFilesystem
from sim.invariants import OFFSET_MAX, batches_of, partitions_of
from sim.machine import CLUSTER_ID
from sim.world import World
from support.history import Anomaly

BATCH_BYTES_MAX = 1 << 20


def is_settled(world: World) -> bool:
    """Everything that can be copied is copied, and no disk has more than it should."""
    return world.keep_running() and all(
        machine.node is not None and _has_settled(machine.node, world.shape.local_bytes or 0)
        for machine in world.machines.values()
    )


def _has_settled(node: Node, local_bytes: int) -> bool:
    broker = node._broker
    if broker is None or broker._tier is None:
        return True
    for partition in partitions_of(node):
        if not partition.settings.remote_storage_enable:
            continue
        log, copied = partition.log, broker._tier.copied_offset(partition)
        facts = log.segment_facts()
        if partition.is_leader and segments_to_copy(facts, copied, partition.last_stable_offset, log.start_offset):
            return False
        if log.size_bytes > local_bytes + 2 * max(one.size_bytes for one in facts):
            return False
    return True


def compare_tier(world: World) -> Iterator[Anomaly]:
    """Once everything has settled the store has what the metadata describes, and that is what readers get."""
    for (topic_id, index), remote in _metadata(world).items():
        place = PartitionLocation(CLUSTER_ID, remote.topic, topic_id, index)
        for segment in remote.segments():
            if segment.is_readable:
                yield from _check(world, place, segment)


def _metadata(world: World) -> RemotePartitions:
    """The contents of the longest copy of the metadata."""
    name = f"{METADATA_TOPIC}-0"
    logs = [batches_of(machine, name, OFFSET_MAX) for machine in world.machines.values()]
    found = RemotePartitions()
    for _, batch in sorted(max(logs, key=lambda log: max(log, default=-1)).items()):
        for record in read_records(batch, BATCH_BYTES_MAX):
            if record.value is not None:
                found.replay(decode_record(record.value))
    return found


def _seals(world: World) -> Seals:
    """All nodes have the same keys, whichever is the last."""
    if not world.shape.tier_encrypts:
        return Seals()
    machine = next(iter(world.machines.values()))
    return Seals(keys_file=str(KEYS_PATH), filesystem=SimFilesystem(machine.disk, machine.now_ms))


def _check(world: World, place: PartitionLocation, segment: RemoteSegment) -> Iterator[Anomaly]:
    start, segment_id = segment.start_offset, segment.segment_id
    stem, objects = place.stem(start, segment_id), world.store.objects
    try:
        manifest = Manifest.from_bytes(objects[place.manifest(start, segment_id)][0])
    except (KeyError, ManifestError) as error:
        yield Anomaly("tier-damage", f"{stem} has no manifest: {error!r}")
        return
    for kind, described in manifest.objects.items():
        content = objects.get(place.object(start, segment_id, kind), (None, 0))[0]
        if content is None or (len(content), crc32c(content)) != described:
            yield Anomaly("tier-damage", f"{stem}.{kind} is {'missing' if content is None else 'not what it was'}")
            return
    name = f"{place.topic}-{place.partition}"
    final = dict(world.history.finals.get(name, ()))
    log = objects[place.object(start, segment_id, LOG)][0]
    if manifest.seal is not None:
        try:
            log = open_bytes(_seals(world).opener(manifest.seal, segment_id), manifest.seal, LOG, log)
        except StoreError as error:
            yield Anomaly("tier-damage", f"{stem} cannot be opened: {error}")
            return
    for position, header in split_batches(log, BATCH_BYTES_MAX):
        if header.is_control:
            continue
        for record in read_records(log, BATCH_BYTES_MAX, position):
            if record.offset in final and final[record.offset] != (record.value or b"").decode():
                yield Anomaly("tier-differs", f"{stem} has something else at {record.offset} than {name}")
                return
