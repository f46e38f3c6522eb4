"""Draws a run from its seed: what the cluster looks like, what goes wrong, and when."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Any

from sim.faults import HOUR_MS, STRIKES, Fault
from sim.shape import COMPACT, KEEP, RETAIN, Shape

QUIET_S = 2.0
# Of all seeds, the part in which access lists decide.
GUARDED_PART = 0.3
# The part in which a full disk holds acknowledgements back before all brokers are killed.
HELD_BACK_PART = 0.06
# Of the seeds with two data directories a node, the part in which one of them fails.
FAILING_DIRECTORY_PART = 0.5
# Of the seeds with workers of a share group, the part in which most of them work through a gateway.
GATEWAY_PART = 0.2
# Of the seeds with an operator, the part in which replicas move between data directories, too.
MOVED_TOO_PART = 0.4
# The part in which nothing is lost that was written.
KEEPING_PART = 0.5
STORM_TRANSACTION_TIMEOUTS_MS = (400, 700, 1_000)
# Of a partition with one replica consumers get records before they are on disk, and a power cut may take them back.
READ_BEFORE_SYNCED = frozenset(
    {
        "lost-read",
        "fetch-refused",
        "inconsistent-offsets",
        "duplicate",
        "poll-skip",
        "nonmonotonic-poll",
        "unseen",
        "lost-update",
        "expelled-early",
        "aborted-early",
    }
)
TRANSACTIONS_BEFORE_SYNCED = frozenset({"duplicate-copy", "lost-copy", "stray-copy", "torn-transaction"})
# When all replicas lose power at once, what they had not synced yet is gone, acknowledged or not. One that had
# compacted lacks what a lost record had replaced.
LOST_EVERYWHERE = READ_BEFORE_SYNCED | {
    "deleted-early",
    "different-latest",
    "lost-write",
    "producer-refused",
    "nonmonotonic-send",
    "leader-behind",
}


@dataclass(frozen=True, slots=True)
class Plan:
    """A run: reproducible from its seed, or from its parts where some faults were left out."""

    seed: int
    shape: Shape
    faults: tuple[Fault, ...]
    # How long things go wrong.
    seconds: float
    # Kinds of anomalies that its faults may lead to, and which are therefore none.
    excused: frozenset[str] = frozenset()


def keeping_everything(shape: Shape, **changes: Any) -> Shape:
    """A shape whose records are neither compacted nor deleted, and whose brokers are the controllers, with changes."""
    return replace(
        shape,
        policy=KEEP,
        retention_ms=None,
        retention_bytes=None,
        deletes_records=False,
        controllers=0,
        **changes,
    )


def draw_transactional(seed: int, nodes: int = 3, seconds: float = 10.0) -> Plan:
    """The plan of a seed with transactional clients; one node loses power at most."""
    random = Random(f"{seed} transactional plan")
    dimensions = Random(f"{seed} transactional dimensions")
    shape = draw_dimensions(dimensions, usual_shape(random, nodes))
    shape = keeping_everything(
        shape,
        guarded=_is_guarded(seed),
        producers=random.randint(0, 1),
        members=random.randint(0, 1),
        writers=random.randint(1, 3),
        copiers=random.randint(0, min(2, shape.partitions)),
        admin_pause_s=5.0,
    )
    if nodes > 1 and random.random() < 0.15:
        return _draw_coordinator_storm(random, seed, shape, seconds)
    everybody = list(range(1, nodes + 1))
    faults: list[Fault] = []
    for _ in range(random.randint(0, 5)):
        at_s = round(random.uniform(QUIET_S, seconds), 3)
        faults.append(_draw_fault(random, at_s, everybody, shape))
    for _ in range(random.randint(0, 4) if nodes > 1 else 0):
        at_s, duration_s = round(random.uniform(QUIET_S, seconds), 3), round(random.uniform(0.05, 3.0), 3)
        faults.append(Fault(at_s, "strike_coordinator", (), duration_s, random.choice((0, 0, 1, 2))))
    faults += _draw_together(dimensions, everybody, shape, seconds)
    for _ in range(dimensions.choice((0, 1, 4))):
        # Markers are under way when streams break, and go out again on others.
        at_s = round(dimensions.uniform(QUIET_S, seconds), 3)
        faults.append(Fault(at_s, "strike_coordinator", (), 0.0, STRIKES.index("reset")))
    powers = [fault for fault in faults if fault.kind == "power"]
    faults = [fault for fault in faults if fault not in powers[1:]]
    alone = powers and shape.min_insync_replicas == 1
    excused = READ_BEFORE_SYNCED | TRANSACTIONS_BEFORE_SYNCED if alone else frozenset()
    return Plan(seed, shape, tuple(sorted(faults, key=lambda fault: fault.at_s)), seconds, excused)


def draw_moving(seed: int, nodes: int = 3, seconds: float = 14.0) -> Plan:
    """The plan of a seed whose nodes have two data directories, between which replicas move; one of them may fail."""
    plan = draw(seed, nodes, seconds)
    pause_s = Random(f"{seed} moves").choice((0.3, 1.0, 3.0))
    failing = Random(f"{seed} failing directory")
    faults = list(plan.faults)
    if failing.random() < FAILING_DIRECTORY_PART:
        at_s, duration_s = round(failing.uniform(QUIET_S, seconds), 3), round(failing.uniform(0.5, 5.0), 3)
        faults.append(Fault(at_s, "fail_directory", (failing.randint(1, nodes),), duration_s, failing.randint(0, 1)))
        faults.sort(key=lambda fault: fault.at_s)
    return replace(plan, shape=replace(plan.shape, moves_pause_s=pause_s), faults=tuple(faults))


def draw_operated(seed: int, nodes: int = 3, seconds: float = 14.0) -> Plan:
    """The plan of a seed with an operator who changes settings, features, replicas and topics, and unregisters nodes.

    Nodes are only unregistered, and eligible leader replicas switched off, where nothing loses what was written, as in
    half of the seeds: an operator who does that in spite of it gives up records that only such a replica had.
    """
    operated = Random(f"{seed} operated")
    nodes += operated.randint(0, 1) if nodes > 1 else 0
    plan = (draw_moving if operated.random() < MOVED_TOO_PART else draw)(seed, nodes, seconds)
    faults = [fault for fault in plan.faults if not _loses(fault)]
    pause_s = operated.choice((0.1, 0.3, 1.0))
    keeps_all = operated.random() < KEEPING_PART
    if not keeps_all:
        faults = list(plan.faults)
    if keeps_all and nodes > 1:
        for _ in range(operated.randint(0, 2)):
            node = operated.randint(1, nodes)
            faults.append(Fault(when(operated, QUIET_S, seconds), "unregister", (node,), when(operated, 1.0, 3.0)))
        faults.sort(key=lambda fault: fault.at_s)
    shape = replace(plan.shape, operator_pause_s=pause_s, switches_eligible=keeps_all)
    # One replica compacts what its readers have not read yet, and another keeps it from then on.
    excused = plan.excused | ({"unseen"} if shape.policy == COMPACT else frozenset())
    return replace(plan, shape=shape, faults=tuple(faults), excused=excused)


def _loses(fault: Fault) -> bool:
    """Whether a fault may take what was written."""
    is_power = fault.kind.startswith("strike_") and STRIKES[fault.amount] == "power"
    return is_power or fault.kind in ("power", "fail_directory")


def draw_failing(seed: int, nodes: int = 3) -> Plan:
    """The plan of a seed where a node that lost a disk's last writes is back before the one that has everything."""
    plan = draw_moving(seed, nodes)
    random = Random(f"{seed} failing first")
    gone, whole, failing = random.sample(range(1, nodes + 1), 3)
    at_s = round(random.uniform(QUIET_S, 6.0), 3)
    faults = (
        Fault(at_s, "kill", (gone,), 3.0),
        Fault(at_s + 1.0, "fail_directory", (failing,), 2.0, 1),
        Fault(at_s + 2.5, "kill", (whole,), 4.0),
    )
    shape = keeping_everything(
        plan.shape,
        replication_factor=3,
        min_insync_replicas=2,
        moves_pause_s=0.3,
    )
    return replace(plan, shape=shape, faults=faults, excused=frozenset())


def draw_stalled(seed: int, nodes: int = 3) -> Plan:
    """The plan of a seed where a disk stalls for longer than every timeout while its node is needed for a majority.

    The node loses power before anything is synced. The third one, which comes back meanwhile, and this one then decide
    without the one that has everything.
    """
    random = Random(f"{seed} stalled plan")
    shape = keeping_everything(
        usual_shape(random, nodes), replication_factor=3, min_insync_replicas=2, members=0, admin_pause_s=0.3
    )
    away, stalled, whole = random.sample(range(1, nodes + 1), 3)
    at_s, stall_s = round(random.uniform(QUIET_S, 4.0), 3), round(random.uniform(1.0, 6.0), 3)
    end_s = at_s + stall_s
    faults = (
        Fault(at_s, "isolate", (away,), stall_s),
        Fault(round(at_s + random.uniform(0.0, 1.0), 3), "stall_disk", (stalled,), stall_s),
        Fault(end_s, "power", (stalled,), 0.3),
        Fault(end_s, "kill", (whole,), round(random.uniform(3.0, 6.0), 3)),
    )
    return Plan(seed, shape, faults, round(end_s + 6.0, 3))


def draw_shared(seed: int, nodes: int = 3, seconds: float = 10.0) -> Plan:
    """The plan of a seed with workers of a share group on one partition; clocks are right, one node loses power."""
    random = Random(f"{seed} shared plan")
    dimensions = Random(f"{seed} shared dimensions")
    shape = draw_dimensions(dimensions, usual_shape(random, nodes))
    shape = keeping_everything(
        shape,
        partitions=1,
        members=0,
        classic_members=0,
        replication_factor=min(3, nodes),
        min_insync_replicas=min(2, nodes),
        admin_pause_s=5.0,
        workers=20,
        worker_lifetime_s=random.choice((1.0, 3.0, 10.0)),
        retry_backoff_ms=random.choice((0, 0, 100, 400)),
        delayed_part=random.choice((0.0, 0.2, 0.5)),
        updates_per_snapshot=random.choice((2, 20, 500)),
    )
    everybody = list(range(1, nodes + 1))
    faults: list[Fault] = []
    for _ in range(random.randint(0, 4)):
        at_s = round(random.uniform(QUIET_S, seconds), 3)
        faults.append(_draw_fault(random, at_s, everybody, shape))
    strikes = ("strike_leader", "strike_share_coordinator", "strike_letters")
    for _ in range(random.randint(1, 6) if nodes > 1 else 0):
        at_s, duration_s = round(random.uniform(QUIET_S, seconds), 3), round(random.uniform(0.05, 2.0), 3)
        faults.append(Fault(at_s, random.choice(strikes), (), duration_s, random.choice((0, 0, 1, 2, 6))))
    powers = [fault for fault in faults if fault.kind == "power"]
    faults = [fault for fault in faults if fault not in powers[1:] and fault.kind != "clock"]
    excused = READ_BEFORE_SYNCED if powers and nodes == 1 else frozenset()
    gateway = Random(f"{seed} gateway workers")
    if nodes > 1 and gateway.random() < GATEWAY_PART:
        shape = replace(shape, workers=2, takers=15)
        for _ in range(3):
            # Leaders change while nothing else happens, faster than locks end.
            at_s = when(gateway, QUIET_S, seconds - 4.0)
            stop = Fault(at_s, "strike_leader", (), 2.0, STRIKES.index("stop"))
            faults += [stop, Fault(round(at_s + gateway.uniform(2.5, 4.0), 3), "elect")]
    return Plan(seed, shape, tuple(sorted(faults, key=lambda fault: fault.at_s)), seconds, excused)


def draw_tiered(seed: int, nodes: int = 3, seconds: float = 12.0) -> Plan:
    """The plan of a seed with old segments in object storage, which fails in ways of its own; no clock jumps."""
    random = Random(f"{seed} tiered plan")
    dimensions = Random(f"{seed} tiered dimensions")
    shape = draw_dimensions(dimensions, usual_shape(random, nodes))
    segment_bytes = random.choice((400, 900, 2_000))
    is_trimmed = random.random() < 0.3
    encryption = Random(f"{seed} encryption")
    shape = replace(
        shape,
        policy=RETAIN if is_trimmed else KEEP,
        retention_ms=None,
        retention_bytes=None,
        deletes_records=is_trimmed,
        cleaner_pause_ms=None,
        controllers=0,
        partitions=random.randint(1, 2),
        members=0,
        classic_members=0,
        replication_factor=min(3, nodes),
        min_insync_replicas=min(random.choice((1, 2, 2)), nodes),
        segment_bytes=segment_bytes,
        segment_ms=None,
        local_bytes=random.choice((segment_bytes, 3 * segment_bytes)),
        tier_compression=Random(f"{seed} compression").choice(("none", "none", "zstd")),
        tier_encrypts=encryption.random() < 0.4,
        produce_pause_s=0.05,
        admin_pause_s=5.0,
    )
    everybody = list(range(1, nodes + 1))
    faults = [
        _draw_fault(random, round(random.uniform(QUIET_S, seconds), 3), everybody, shape)
        for _ in range(random.randint(0, 4))
    ]
    for _ in range(random.randint(0, 4) if nodes > 1 else 0):
        at_s, duration_s = round(random.uniform(QUIET_S, seconds), 3), round(random.uniform(0.05, 2.0), 3)
        faults.append(Fault(at_s, "strike_leader", (), duration_s, random.randrange(3)))
    for _ in range(random.randint(1, 4)):
        at_s, duration_s = round(random.uniform(QUIET_S, seconds), 3), round(random.uniform(0.2, 3.0), 3)
        away = tuple(random.sample(everybody, random.randint(1, nodes)))
        kinds = (("store_away", away, 0), ("store_slow", (), 500), ("store_fails", (), 30), ("store_fails", (), 80))
        kind, struck, amount = random.choice(kinds)
        faults.append(Fault(at_s, kind, struck, duration_s, amount))
    for number in range(encryption.randint(0, 2) if shape.tier_encrypts else 0):
        at_s, duration_s = round(encryption.uniform(QUIET_S, seconds), 3), round(encryption.uniform(0.1, 3.0), 3)
        faults.append(Fault(at_s, "rotate_key", (), duration_s, number + 1))
    if is_trimmed:
        for _ in range(random.randint(1, 3)):
            at_s, partition = round(random.uniform(QUIET_S, seconds), 3), random.randrange(shape.partitions)
            faults.append(Fault(at_s, "trim", (partition,), 0.0, random.randint(20, 100)))
    powers = [fault for fault in faults if fault.kind == "power"]
    faults = [fault for fault in faults if fault not in powers[1:] and fault.kind != "clock"]
    excused = READ_BEFORE_SYNCED if powers and shape.min_insync_replicas == 1 else frozenset()
    if is_trimmed:
        excused |= {"producer-refused"}
    return Plan(seed, shape, tuple(sorted(faults, key=lambda fault: fault.at_s)), seconds, excused)


def when(random: Random, low_s: float, high_s: float) -> float:
    """A time between two others."""
    return round(random.uniform(low_s, high_s), 3)


def _is_guarded(seed: int) -> bool:
    return Random(f"{seed} security").random() < GUARDED_PART


def _draw_coordinator_storm(random: Random, seed: int, shape: Shape, seconds: float) -> Plan:
    """Coordinators of transactions are killed again and again, on a network on which decisions take their time.

    Transactions time out before there is another coordinator, which then aborts what was not decided.
    """
    shape = replace(
        shape, writers=3, produce_pause_s=0.05, delay_ms_max=30, transaction_timeouts_ms=STORM_TRANSACTION_TIMEOUTS_MS
    )
    faults = []
    at_s = QUIET_S
    while at_s < seconds:
        duration_s = round(random.uniform(0.2, 1.0), 3)
        kind = random.choice(("kill", "deafen"))
        faults.append(Fault(round(at_s, 3), "strike_coordinator", (), duration_s, STRIKES.index(kind)))
        at_s += random.uniform(1.5, 3.0)
    return Plan(seed, shape, tuple(faults), seconds)


def draw(seed: int, nodes: int = 3, seconds: float = 14.0) -> Plan:
    """The plan of a seed."""
    random = Random(f"{seed} plan")
    if nodes > 1 and random.random() < 0.1:
        return _draw_storm(random, seed, nodes, seconds)
    dimensions = Random(f"{seed} dimensions")
    shape = replace(draw_dimensions(dimensions, usual_shape(random, nodes)), guarded=_is_guarded(seed))
    everybody = list(range(1, nodes + 1)) + list(range(101, 101 + shape.controllers))
    blackout = nodes > 1 and random.random() < 0.1
    faults: list[Fault] = []
    for _ in range(random.randint(1, 7)):
        at_s = round(random.uniform(QUIET_S, seconds), 3)
        faults.append(_draw_fault(random, at_s, everybody, shape))
    if not blackout:
        faults += _draw_together(dimensions, everybody, shape, seconds)
        faults += _draw_held_back(Random(f"{seed} held back"), shape, seconds)
    if shape.deletes_records:
        for _ in range(dimensions.randint(1, 4)):
            at_s, partition = round(dimensions.uniform(QUIET_S, seconds), 3), dimensions.randrange(shape.partitions)
            faults.append(Fault(at_s, "trim", (partition,), 0.0, dimensions.randint(20, 100)))
    powers = [fault for fault in faults if fault.kind == "power"]
    excused: frozenset[str] = frozenset()
    if blackout:
        excused = LOST_EVERYWHERE
        at_s = round(random.uniform(QUIET_S, seconds), 3)
        faults.append(Fault(at_s, "power", tuple(everybody), round(random.uniform(0.1, 2.0), 3)))
    elif powers and nodes == 1:
        excused = READ_BEFORE_SYNCED
    elif powers:
        # One power cut a run: two at once may take what only the two had.
        faults = [fault for fault in faults if fault not in powers[1:]]
        if shape.min_insync_replicas == 1:
            # A leader that is alone acknowledges what is on its disk, and lets others read it a moment before.
            excused = READ_BEFORE_SYNCED
    if shape.policy != KEEP:
        # A batch that is sent again is not known any more once it was deleted, or compacted away, and is older than the
        # last ones noted.
        excused |= {"producer-refused"}
    return Plan(seed, shape, tuple(sorted(faults, key=lambda fault: fault.at_s)), seconds, excused)


def _draw_storm(random: Random, seed: int, nodes: int, seconds: float) -> Plan:
    """A quorum of five on a slow network that is hardly left alone long enough to elect anybody."""
    shape = replace(usual_shape(random, nodes), controllers=5, members=0, producers=1, delay_ms_max=30)
    shape = replace(shape, guarded=_is_guarded(seed))
    faults = []
    at_s = QUIET_S
    while at_s < seconds:
        duration_s = round(random.uniform(0.2, 1.5), 3)
        faults.append(Fault(round(at_s, 3), "strike_controller", (), duration_s, random.randrange(3)))
        at_s += random.uniform(0.3, 1.5)
    return Plan(seed, shape, tuple(faults), seconds)


def usual_shape(random: Random, nodes: int) -> Shape:
    replicas = min(3, nodes)
    return Shape(
        nodes=nodes,
        controllers=random.choice((3, 5)) if nodes > 1 and random.random() < 0.15 else 0,
        partitions=random.randint(1, 3),
        producers=random.randint(1, 2),
        consumers=1,
        members=random.randint(0, 2),
        replication_factor=replicas,
        min_insync_replicas=min(2, replicas),
        produce_pause_s=random.choice((0.05, 0.1, 0.2)),
        admin_pause_s=random.choice((1.0, 3.0)),
        delay_ms_max=random.choice((1, 1, 5, 30)),
    )


def draw_dimensions(random: Random, shape: Shape) -> Shape:
    """The shape with everything that makes more of the code run: replicas, segments, snapshots, compaction, groups."""
    factor, min_insync = shape.replication_factor, shape.min_insync_replicas
    if shape.nodes > 1:
        factor, min_insync = random.choice(
            ((3, 2), (3, 2), (3, 2), (3, 1), (3, 1), (3, 1), (3, 3), (2, 1), (2, 2), (1, 1))
        )
        factor, min_insync = min(factor, shape.nodes), min(min_insync, shape.nodes)
    small = random.random() < 0.7
    shape = replace(
        shape,
        replication_factor=factor,
        min_insync_replicas=min_insync,
        classic_members=random.choice((0, 0, 1, 2)),
        session_ms=random.choice((2_000, 4_000, 6_000)),
        member_lifetime_s=random.choice((None, None, 3.0, 8.0)),
        segment_bytes=random.choice((200, 400, 900, 3_000)) if small else None,
        segment_ms=random.choice((None, None, 500, 2_000)) if small else None,
        index_interval_bytes=random.choice((None, 0, 256)),
        checkpoint_ms=random.choice((None, 500, 1_000, 5_000)),
        cleaner_pause_ms=random.choice((None, 100, 500)) if small else None,
        reset_part=random.choice((0.0, 0.2, 0.5, 1.0)),
    )
    if random.random() < 0.6:
        shape = replace(
            shape,
            snapshot_bytes=random.choice((300, 1_000, 5_000)),
            snapshot_ms=random.choice((None, 0, 1_000, 3_000)),
            metadata_segment_bytes=random.choice((300, 1_000, 4_000)),
        )
    return _draw_policy(random, shape) if small else shape


def _draw_policy(random: Random, shape: Shape) -> Shape:
    """What becomes of old records."""
    policy = random.choice((KEEP, RETAIN, KEEP, COMPACT, RETAIN))
    if policy == COMPACT:
        return replace(
            shape, policy=policy, keys=random.choice((2, 8, 30)), cleaner_pause_ms=random.choice((50, 200, 1_000))
        )
    if policy == RETAIN:
        by_time, by_size, by_hand = random.choice(
            ((True, False, False), (True, False, False), (False, True, False), (False, False, True), (True, True, True))
        )
        return replace(
            shape,
            policy=policy,
            retention_ms=random.choice((1, 200, 1_000, 4_000)) if by_time else None,
            retention_bytes=random.choice((500, 2_000, 10_000)) if by_size else None,
            deletes_records=by_hand,
            # Partitions that are empty for a while are a case of their own.
            produce_pause_s=random.choice((0.1, 0.5, 1.5)),
        )
    return shape


def _draw_together(random: Random, everybody: list[int], shape: Shape, seconds: float) -> list[Fault]:
    """What single faults seldom come to: a power cut while the others are killed, clocks that jump,
    and streams that break with something under way."""
    faults = []
    if len(everybody) > 1 and random.random() < 0.2:
        one = random.choice(everybody)
        at_s = random.uniform(QUIET_S, seconds - 1.0)
        others = tuple(node for node in everybody if node != one)
        faults.append(Fault(round(at_s, 3), "power", (one,), round(random.uniform(0.1, 2.0), 3)))
        for other in random.sample(others, random.randint(1, len(others))):
            later_s = at_s + random.choice((0.05, random.uniform(-1.0, 3.0)))
            faults.append(Fault(round(later_s, 3), "kill", (other,), round(random.uniform(0.1, 2.0), 3)))
    if 1 == shape.min_insync_replicas < shape.replication_factor and random.random() < 0.35:
        faults += _draw_left_alone(random, shape, seconds)
    if random.random() < 0.2:
        amount = random.choice((-HOUR_MS, HOUR_MS, HOUR_MS, 10_000))
        at_s = round(random.uniform(QUIET_S, seconds), 3)
        faults.append(Fault(at_s, "clock", (random.choice(everybody),), round(random.uniform(0.5, 5.0), 3), amount))
    for _ in range(random.choice((0, 0, 1, 4))):
        at_s = round(random.uniform(QUIET_S, seconds), 3)
        faults.append(Fault(at_s, "reset", (random.choice(everybody),), 0.0, random.randint(2, 8)))
    return faults


def _draw_left_alone(random: Random, shape: Shape, seconds: float) -> list[Fault]:
    """A broker with a slow disk is left alone with what others had too, and then loses power."""
    one, *others = random.sample(range(1, shape.nodes + 1), shape.nodes)
    # Where brokers are the quorum, too, most of them have to stay, or no node notices that the others are gone.
    killed = others if shape.controllers else others[: (shape.nodes - 1) // 2]
    at_s = random.uniform(QUIET_S + 1.0, seconds - 2.0)
    dark_s = at_s + random.uniform(0.3, 1.5)
    return [
        Fault(round(at_s - 1.0, 3), "slow_disk", (one,), 3.0, random.choice((20, 100, 500))),
        *(Fault(round(at_s, 3), "kill", (other,), 3.0) for other in killed),
        Fault(round(dark_s, 3), "power", (one,), round(random.uniform(0.1, 1.0), 3)),
    ]


def _draw_held_back(random: Random, shape: Shape, seconds: float) -> list[Fault]:
    """A replica cannot write, so that batches are in the log and their requests time out; then all brokers die."""
    if shape.replication_factor == 1 or random.random() >= HELD_BACK_PART:
        return []
    brokers = range(1, shape.nodes + 1)
    at_s, full_s = random.uniform(QUIET_S, seconds - 5.0), random.uniform(2.0, 4.5)
    killed_s = at_s + full_s + random.uniform(-1.0, 0.5)
    return [
        Fault(round(at_s, 3), "disk_full", (random.choice(brokers),), round(full_s, 3)),
        Fault(round(killed_s, 3), "kill", tuple(brokers), round(random.uniform(0.1, 1.0), 3)),
    ]


def _draw_fault(random: Random, at_s: float, everybody: list[int], shape: Shape) -> Fault:
    one = random.choice(everybody)
    short_s, long_s = round(random.uniform(0.05, 1.0), 3), round(random.uniform(0.5, 6.0), 3)
    duration_s = random.choice((short_s, long_s))
    alone = [
        Fault(at_s, "pause", (one,), duration_s),
        Fault(at_s, "kill", (one,), duration_s),
        Fault(at_s, "kill", (one,), duration_s),
        Fault(at_s, "crash_writing", (one,), duration_s, random.randint(0, 60)),
        Fault(at_s, "power", (one,), duration_s),
        Fault(at_s, "stop", (one,), max(2.0, long_s)),
        Fault(at_s, "disk_full", (one,), long_s),
        Fault(at_s, "slow_disk", (one,), long_s, random.choice((20, 100, 500))),
        Fault(at_s, "clock", (one,), long_s, random.choice((-HOUR_MS, HOUR_MS, -5_000, 5_000))),
        Fault(at_s, "slow_network", (), long_s, random.choice((1, 5, 20))),
        Fault(at_s, "reset", (one,), 0.0, random.randint(1, 5)),
    ]
    if len(everybody) == 1:
        return random.choice(alone)
    first, second = random.sample(everybody, 2)
    brokers = list(range(1, shape.nodes + 1))
    target = tuple(random.sample(brokers, random.randint(shape.min_insync_replicas, len(brokers))))
    together = [
        Fault(at_s, "isolate", (one,), duration_s, random.randint(0, 1)),
        Fault(at_s, "isolate", (one,), long_s, 0),
        Fault(at_s, "cut_one_way", (first, second), duration_s),
        Fault(at_s, "cut_link", (first, second), duration_s),
        Fault(at_s, "flap", (first, second), long_s, random.randint(2, 10)),
        Fault(at_s, "kill", (first, second), duration_s),
        Fault(at_s, "kill", tuple(everybody), short_s),
        Fault(at_s, "pause", (first, second), duration_s),
        Fault(at_s, "stop", tuple(everybody), 3.0 * len(everybody)),
        Fault(at_s, "isolate", (first, second), duration_s, 0),
        Fault(at_s, "reassign", target, 0.0, random.randrange(shape.partitions)),
        Fault(at_s, "elect"),
        Fault(at_s, "strike_controller", (), duration_s, random.randrange(3)),
        Fault(at_s, "strike_leader", (), duration_s, random.randrange(3)),
    ]
    return random.choice(alone + together)
