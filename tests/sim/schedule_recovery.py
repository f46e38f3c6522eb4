"""Draws runs in which recovering from something is interrupted or fails: truncations, loads, checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from sim.faults import Fault
from sim.schedule import LOST_EVERYWHERE, QUIET_S, Plan, keeping_everything, usual_shape, when
from sim.shape import COMPACT, Shape

Story = Callable[[Random, Shape, int], tuple[Shape, list[Fault], float]]


def draw_recovery(seed: int, nodes: int = 3) -> Plan:
    """The plan of a seed with one of the stories below, the one of its remainder by their number."""
    random = Random(f"{seed} recovery plan")
    shape = keeping_everything(
        usual_shape(random, nodes), replication_factor=3, min_insync_replicas=2, members=0, admin_pause_s=5.0
    )
    story = STORIES[seed % len(STORIES)]
    shape, faults, seconds = story(random, shape, nodes)
    excused = LOST_EVERYWHERE if shape.elects_uncleanly else frozenset()
    return Plan(seed, shape, tuple(sorted(faults, key=lambda fault: fault.at_s)), seconds, excused)


def _truncation_dies(random: Random, shape: Shape, nodes: int) -> tuple[Shape, list[Fault], float]:  # noqa: ARG001
    """A leader that was cut off is killed in the middle of truncating several segments."""
    fault = Fault(when(random, QUIET_S, 6.0), "cut_leader", (), when(random, 4.5, 6.0), random.randint(0, 3))
    shape = replace(
        shape,
        controllers=3,
        segment_bytes=random.choice((200, 400)),
        produce_pause_s=0.05,
        checkpoint_ms=random.choice((300, 1_000)),
        flush_ms=random.choice((None, 200)),
    )
    return shape, [fault], round(fault.at_s + fault.duration_s + 6.0, 3)


def _compacted_is_cut(random: Random, shape: Shape, nodes: int) -> tuple[Shape, list[Fault], float]:
    """Compacted logs are truncated below what is compacted, because a replica leads that lacks committed records."""
    everybody = random.sample(range(1, nodes + 1), nodes)
    fault = Fault(when(random, QUIET_S + 1.0, 5.0), "lead_uncleanly", tuple(everybody), when(random, 4.5, 5.5))
    shape = replace(
        shape,
        controllers=3,
        partitions=1,
        policy=COMPACT,
        keys=200,
        tombstone_part=0.3,
        elects_uncleanly=True,
        min_insync_replicas=1,
        segment_bytes=random.choice((200, 400)),
        produce_pause_s=0.05,
        cleaner_pause_ms=random.choice((200, 500)),
    )
    back_s = round(fault.at_s + fault.duration_s, 3)
    # What was deleted meanwhile stays deleted, as far as producers are concerned.
    return shape, [fault, Fault(round(back_s + 1.5, 3), "quiet", (), 5.0)], round(back_s + 5.0, 3)


def _load_fails(random: Random, shape: Shape, nodes: int) -> tuple[Shape, list[Fault], float]:  # noqa: ARG001
    """A new coordinator of groups finds no descriptor when it reads its partition."""
    fault = Fault(when(random, 6.0, 9.0), "starve_coordinator", (), when(random, 2.0, 4.0), random.randint(1, 3))
    shape = replace(shape, members=2, segment_bytes=random.choice((200, 400)))
    return shape, [fault], round(fault.at_s + 5.0, 3)


def _checkpoint_fails(random: Random, shape: Shape, nodes: int) -> tuple[Shape, list[Fault], float]:
    """Only checkpoints meet the error of a directory, whose node is then back before the one with all records."""
    gone, whole, failing = random.sample(range(1, nodes + 1), 3)
    at_s = when(random, QUIET_S + 1.0, 7.0)
    faults = [
        Fault(at_s, "kill", (gone,), 3.0),
        Fault(round(at_s + 0.9, 3), "quiet", (), 3.0),
        Fault(round(at_s + 1.0, 3), "fail_directory", (failing,), 2.0, 1),
        Fault(round(at_s + 2.5, 3), "kill", (whole,), 4.0),
    ]
    shape = replace(
        shape,
        partitions=random.randint(2, 3),
        produce_pause_s=0.05,
        checkpoint_ms=random.choice((300, 500)),
        moves_pause_s=20.0,
    )
    return shape, faults, round(at_s + 10.0, 3)


def _batches_repeat(random: Random, shape: Shape, nodes: int) -> tuple[Shape, list[Fault], float]:
    """Batches arrive a second time when the log has many, and their producer has sent others since."""
    fault = Fault(when(random, 6.0, 9.0), "kill", (random.randint(1, nodes),), 0.5)
    shape = replace(shape, partitions=1, producers=2, produce_pause_s=0.03, repeated_part=0.02)
    return shape, [fault], 12.0


STORIES: tuple[Story, ...] = (_truncation_dies, _compacted_is_cut, _load_fails, _checkpoint_fails, _batches_repeat)
