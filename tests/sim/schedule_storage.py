"""Draws runs in which single operations on a disk fail, files are damaged, and followers come back with nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from sim.faults import Fault
from sim.schedule import QUIET_S, Plan, keeping_everything, usual_shape, when
from sim.shape import Shape

# Of two rounds of stories, where that of the bit flips has another in its place: whole nodes instead of starts.
ROT_AT = 10
YEAR_MS = 365 * 24 * 3_600_000
Story = Callable[[Random, int], tuple[dict[str, object], list[Fault], float]]


def draw_storage(seed: int, nodes: int = 3) -> Plan:
    """The plan of a seed with one of the stories below; nothing that was acknowledged may be gone in any of them."""
    random = Random(f"{seed} storage plan")
    shape = keeping_everything(
        usual_shape(random, nodes), replication_factor=3, min_insync_replicas=2, members=0, admin_pause_s=1.0
    )
    shape = replace(
        shape,
        checkpoint_ms=random.choice((300, 500, 1_000)),
        segment_bytes=random.choice((None, 400, 900, 3_000)),
        record_age_ms=random.choice((0, 0, 3 * YEAR_MS)),
        producer_expiration_ms=random.choice((None, 90_000, 300_000)),
    )
    story = _rot if seed % (2 * len(STORIES)) == ROT_AT else STORIES[seed % len(STORIES)]
    changes, faults, seconds = story(random, nodes)
    changed: Shape = replace(shape, **changes)  # type: ignore[arg-type]
    return Plan(seed, changed, tuple(sorted(faults, key=lambda fault: fault.at_s)), seconds)


def _block_fails(random: Random, nodes: int) -> tuple[dict[str, object], list[Fault], float]:
    """One operation of a disk fails, whose node is then back before the one that has everything."""
    gone, whole, failing = random.sample(range(1, nodes + 1), 3)
    at_s = when(random, QUIET_S, 6.0)
    faults = [
        Fault(at_s, "kill", (gone,), 4.0),
        Fault(round(at_s + 1.0, 3), "disk_errors", (failing,), 2.5, random.choice((0, 1, 3, 10, 30))),
        Fault(round(at_s + 3.0, 3), "kill", (whole,), 4.0),
    ]
    return {"moves_pause_s": random.choice((0.3, 1.0, 5.0))}, faults, round(at_s + 10.0, 3)


def _no_room(random: Random, nodes: int) -> tuple[dict[str, object], list[Fault], float]:
    """A few operations find no space or no descriptor, some of them while a node starts or its log rolls."""
    faults = []
    for _ in range(random.randint(3, 6)):
        kind, at_s = random.choice(("no_space", "no_descriptors")), when(random, QUIET_S, 10.0)
        node = random.randint(1, nodes)
        faults.append(Fault(at_s, kind, (node,), 3.0, random.choice((0, 1, 3, 10, 30))))
        if random.random() < 0.5:
            faults.append(Fault(round(at_s - 0.4, 3), "kill", (random.randint(1, nodes),), 0.5))
    return {}, faults, 14.0


def _bit_flips(random: Random, nodes: int) -> tuple[dict[str, object], list[Fault], float]:
    """A replica does not open twice, and the others are away meanwhile."""
    damaged, *others = random.sample(range(1, nodes + 1), nodes)
    at_s, repaired_s = when(random, 4.0, 6.0), when(random, 9.0, 12.0)
    faults = [Fault(at_s, "damage_replica", (damaged,), repaired_s)]
    faults.append(Fault(round(at_s - 0.05, 3), "kill", tuple(others), round(repaired_s / 3 + 2.5, 3)))
    # Segments are seldom full, so that what recovery reads is damaged; and the quorum stays.
    changes: dict[str, object] = {"segment_bytes": random.choice((None, 3_000)), "flush_ms": 200, "controllers": 3}
    return changes, faults, round(at_s + repaired_s + 4.0, 3)


def _rot(random: Random, nodes: int) -> tuple[dict[str, object], list[Fault], float]:
    """Bits flip in closed segments of one node, which goes on; others come and go meanwhile."""
    damaged, *others = random.sample(range(1, nodes + 1), nodes)
    at_s = when(random, 4.0, 7.0)
    faults = [Fault(at_s, "rot", (damaged,), 0.0, random.randint(1, 3))]
    for _ in range(random.randint(0, 3)):
        kind, near_s = random.choice(("kill", "stop", "reset", "kill")), when(random, at_s - 1.0, at_s + 5.0)
        node = random.choice((damaged, *others))
        faults.append(Fault(near_s, kind, (node,), when(random, 0.5, 3.0), 1_000 if kind == "reset" else 0))
    if random.random() < 0.3:
        faults.append(Fault(when(random, at_s, at_s + 3.0), "kill", tuple(others), when(random, 0.5, 4.0)))
    changes: dict[str, object] = {
        "segment_bytes": random.choice((400, 900)),
        "scrub_bytes_per_second": random.choice((2_000, 20_000, 1_000_000)),
        "replication_factor": random.choice((2, 3, 3)),
        "min_insync_replicas": random.choice((1, 2)),
    }
    return changes, faults, round(at_s + 10.0, 3)


def _file_is_cut(random: Random, nodes: int) -> tuple[dict[str, object], list[Fault], float]:
    """The newest metadata snapshot or a checkpoint is cut short."""
    cut, other = random.sample(range(1, nodes + 1), 2)
    at_s, repaired_s = when(random, 4.0, 7.0), when(random, 2.0, 5.0)
    faults = [
        Fault(at_s, "cut_file", (cut,), repaired_s, random.randint(0, 1)),
        Fault(round(at_s + when(random, 0.5, 6.0), 3), "kill", (other,), 1.0),
    ]
    changes: dict[str, object] = {
        "snapshot_bytes": random.choice((300, 1_000)),
        "snapshot_ms": 1_000,
        "metadata_segment_bytes": random.choice((300, 1_000)),
    }
    return changes, faults, round(at_s + 9.0, 3)


def _empty_disk(random: Random, nodes: int) -> tuple[dict[str, object], list[Fault], float]:
    """A proposal to add a follower gets lost, and is made again when the follower has an empty disk."""
    lost_s = when(random, 7.0, 9.0)
    at_s, is_heard = when(random, QUIET_S, 4.0), random.randint(0, 1)
    fault = Fault(at_s, "reregister", tuple(range(1, nodes + 1)), lost_s, is_heard)
    changes: dict[str, object] = {
        "controllers": 3,
        "partitions": 1,
        "replication_factor": 2,
        "min_insync_replicas": 1,
    }
    if is_heard:
        # What a follower gets at once is all that it lacks.
        changes["segment_bytes"] = None
    return changes, [fault], round(fault.at_s + lost_s + 10.0, 3)


def _reconnects(random: Random, nodes: int) -> tuple[dict[str, object], list[Fault], float]:
    """Followers lose their connections by the hundred."""
    fault = Fault(when(random, QUIET_S, 4.0), "reconnect", (random.randint(1, nodes),), 3.0, 20)
    return {"delay_ms_max": 1}, [fault], 8.0


def _histories(random: Random, nodes: int) -> tuple[dict[str, object], list[Fault], float]:
    """Records that are years old are sent again to nodes that have started since."""
    faults = []
    for _ in range(random.randint(2, 4)):
        at_s, kind = when(random, QUIET_S, 11.0), random.choice(("disk_full", "reset", "kill", "kill", "stop"))
        node = random.randint(1, nodes)
        duration_s = {"disk_full": 4.0, "stop": 2.0}.get(kind, 0.5)
        faults.append(Fault(at_s, kind, (node,), duration_s, 1_000 if kind == "reset" else 0))
    at_s = when(random, 5.0, 9.0)
    faults += [
        Fault(round(at_s - 3.0, 3), "disk_full", (random.randint(1, nodes),), 3.5),
        Fault(at_s, "kill", tuple(range(1, nodes + 1)), 0.5),
    ]
    changes: dict[str, object] = {
        "record_age_ms": 3 * YEAR_MS,
        "producer_expiration_ms": random.choice((90_000, 300_000, None)),
    }
    return changes, faults, 14.0


def _stall(random: Random, nodes: int) -> tuple[dict[str, object], list[Fault], float]:
    """A disk syncs nothing while checkpoints are due and logs are truncated; the event loop must not wait for it."""
    stalled, other = random.sample(range(1, nodes + 1), 2)
    at_s, stall_s = when(random, QUIET_S, 4.0), when(random, 1.0, 6.0)
    faults = [
        Fault(at_s, "stall_disk", (stalled,), stall_s),
        Fault(round(at_s + random.uniform(0.0, stall_s), 3), "kill", (other,), 0.5),
    ]
    return {"flush_ms": 200}, faults, round(at_s + stall_s + 5.0, 3)


STORIES: tuple[Story, ...] = (
    _block_fails,
    _no_room,
    _bit_flips,
    _file_is_cut,
    _empty_disk,
    _reconnects,
    _histories,
    _stall,
)
