"""The scripts: what leads up to an operation, the operation, and what may be promised after each of its steps."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

from enumerate.broker import FIRST, SECOND, SMALL, TOPIC, Broker, LeaderLog
from enumerate.disk import inode_at
from enumerate.process import BEGIN_MS
from enumerate.promises import ABORT, COMMIT, KILL, POWER, Row
from penstock.config.topic import CLEANUP_COMPACT, TopicSettings
from penstock.core.replica import directory_move
from penstock.core.replica.throttle import Throttle
from penstock.model.ids import TopicPartition
from penstock.storage.files import CorruptLogError
from sim.disk import SimDisk

Script = Callable[[Broker], Awaitable[object]]

COMPACTED = replace(
    SMALL, cleanup_policy=frozenset((CLEANUP_COMPACT,)), delete_retention_ms=1_000, min_cleanable_dirty_ratio=0.01
)
TIERED = replace(SMALL, remote_storage_enable=True, remote_log_storage_system_enable=True, local_retention_bytes=1)
BOTH = (FIRST, SECOND)
PRODUCER, OTHER = 7, 8
# How often something is tried that a broker repeats until it succeeds.
TRIES = 3
LATER_TRIES = 100

SCENARIOS: dict[str, Scenario] = {}


@dataclass(frozen=True)
class Scenario:
    """`before` is not disturbed; then, perhaps, the process ends; then `action` is, with every operation numbered."""

    name: str
    before: Script
    action: Script
    topic: TopicSettings = SMALL
    directories: tuple[Path, ...] = (FIRST,)
    partitions: int = 1
    # How the process ends before the action, which then begins with a start: kill, power, clean, or not at all.
    ends: str = ""
    # The scenario within which it ends, and the part of that one's changes that it has made by then.
    within: str = ""
    part: float = 1.0
    # What happens to the disk meanwhile.
    damage: Callable[[SimDisk], None] = field(default=lambda _: None)
    # Whether the broker copies old segments to a store.
    stores: bool = False
    # Whether the process has ended of its own after the action.
    is_over: bool = False


async def nothing(_: Broker) -> None:
    """Nothing happens."""


def scenario(name: str, before: Script = nothing, **options: object) -> Callable[[Script], Script]:
    """Declare a scenario by its action."""

    def declare(action: Script) -> Script:
        SCENARIOS[name] = Scenario(name, before, action, **options)  # type: ignore[arg-type]
        return action

    return declare


async def some_records(broker: Broker) -> None:
    """Three segments, most of it durable, with a recovery point."""
    await broker.produce(5, producer=(PRODUCER, 0, 0))
    await broker.produce(4)
    await broker.housekeeping.checkpoint_all()
    await broker.produce(2, acks=False)


async def everywhere(broker: Broker) -> None:
    """The same in all partitions."""
    for number in sorted(broker.ledgers):
        await broker.produce(9, number=number)
    await broker.housekeeping.checkpoint_all()
    for number in sorted(broker.ledgers):
        await broker.produce(3, acks=False, number=number)


async def following(broker: Broker, *, tiered: bool = False) -> None:
    """A follower that has 22 records of a leader, from two epochs and two producers, all checkpointed."""
    leader = LeaderLog(broker.ledgers[0], 1)
    leader.is_tiered = tiered
    leader.put(Row(0, 1, b"k0", b"first", PRODUCER, 0, 0))
    leader.append(10)
    broker.follow(leader)
    await broker.fetched()
    leader.epoch = 3
    leader.put(Row(11, 3, b"k1", b"again", PRODUCER, 0, 1))
    leader.put(Row(12, 3, b"k2", b"other", OTHER, 4, 0))
    leader.append(9)
    await broker.fetched()
    await broker.sync()
    await broker.housekeeping.checkpoint_all()


async def following_tiered(broker: Broker) -> None:
    """The same of a tiered topic; object storage has the first three segments."""
    await following(broker, tiered=True)


def leader_of(broker: Broker) -> LeaderLog:
    leader = broker.machine.leader
    assert leader is not None
    return leader


# Appending.


@scenario("create", ends="new")
async def create(broker: Broker) -> None:
    await broker.produce(2)


@scenario("append", some_records)
async def append(broker: Broker) -> None:
    await broker.produce(2, acks=False)
    await broker.produce(1)


@scenario("roll", some_records)
async def roll(broker: Broker) -> None:
    await broker.produce(5, acks=False, producer=(PRODUCER, 0, 5))
    await broker.produce(5, producer=(OTHER, 0, 0))


@scenario("transactions", some_records)
async def transactions(broker: Broker) -> None:
    """Two that overlap, one of them aborted in a later segment, and one that stays open."""
    await broker.produce(2, producer=(PRODUCER, 1, 0), transactional=True, acks=False)
    await broker.produce(2, producer=(OTHER, 0, 0), transactional=True)
    await broker.end_transaction(PRODUCER, 1, ABORT)
    await broker.produce(2)
    await broker.end_transaction(OTHER, 0, COMMIT)
    await broker.produce(1, producer=(PRODUCER, 2, 0), transactional=True)


@scenario("follow", following)
async def follow(broker: Broker) -> None:
    leader_of(broker).append(6)
    await broker.fetched()
    await broker.sync()


# Truncation.


async def truncated_to(broker: Broker, offset: int) -> None:
    broker.follow(leader_of(broker).next_leader(offset, 5))
    leader_of(broker).append(3)
    await broker.fetched()
    await broker.sync()


@scenario("truncate-tail", following)
async def truncate_tail(broker: Broker) -> None:
    await truncated_to(broker, 21)


@scenario("truncate", following)
async def truncate(broker: Broker) -> None:
    await truncated_to(broker, 13)


@scenario("truncate-twice", following)
async def truncate_twice(broker: Broker) -> None:
    await truncated_to(broker, 18)
    broker.follow(leader_of(broker).next_leader(5, 7))
    leader_of(broker).append(3)
    await broker.fetched()


async def truncating_transactions(broker: Broker) -> None:
    await following(broker)
    leader = leader_of(broker)
    leader.put(Row(22, 3, b"a", b"in", OTHER, 4, 1, True))
    leader.put(Row(23, 3, b"a", b"in", PRODUCER, 0, 2, True))
    leader.put(Row(24, 3, None, None, OTHER, 4, -1, marker=ABORT))
    leader.append(6)
    leader.put(Row(31, 3, None, None, PRODUCER, 0, -1, marker=ABORT))
    leader.append(3)
    await broker.fetched()
    await broker.sync()
    await broker.housekeeping.checkpoint_all()


@scenario("truncate-transactions", truncating_transactions)
async def truncate_transactions(broker: Broker) -> None:
    """The second transaction is open again, and the first is still aborted."""
    await truncated_to(broker, 30)


@scenario("begin-anew", following)
async def begin_anew(broker: Broker) -> None:
    """The leader's log begins after the end of this one."""
    leader = leader_of(broker).next_leader(22, 5)
    leader.append(20)
    leader.start = leader.local_start = 30
    broker.follow(leader)
    await broker.fetched()
    await broker.sync()


@scenario("replace-damaged", following)
async def replace_damaged(broker: Broker) -> None:
    """The directory of a damaged follower is kept under another name, and everything comes from the leader again."""
    ledger, leader, partition = broker.ledgers[0], leader_of(broker), broker.partition()
    ledger.kept = dict.fromkeys(ledger.kept, 0)
    # Its checkpoints go when the new one gets its directory.
    ledger.is_cutting = True
    leader.fetched = 0
    damage = CorruptLogError(partition.log.directory, 0, "as a read has found")

    async def begin(tries: int) -> bool:
        """As what sees to damaged replicas does, which tries again and again."""
        for _ in range(tries):
            if await broker.attempt(lambda: broker.partitions.begin_anew(partition.name, partition.topic_id, damage)):
                await broker.fetched()
                if await broker.sync():
                    ledger.is_cutting = False
                return True
            await asyncio.sleep(0.5)
        return False

    async def begin_later() -> None:
        await begin(LATER_TRIES)

    if not await begin(TRIES):
        broker.process.spawn(begin_later(), "begin anew")


# Deletion.


@scenario("delete-records", everywhere)
async def delete_records(broker: Broker) -> None:
    await broker.delete_records(6)
    await broker.produce(1)


@scenario("delete-all-records", everywhere)
async def delete_all_records(broker: Broker) -> None:
    await broker.sync()
    await broker.delete_records(12)
    await broker.produce(2)


@scenario("delete-records-of-two", everywhere, directories=BOTH, partitions=2)
async def delete_records_of_two(broker: Broker) -> None:
    await broker.delete_records(6, number=1)
    await broker.delete_records(10, number=0)


@scenario("retention", everywhere, topic=replace(SMALL, retention_bytes=600, file_delete_delay_ms=500))
async def retention(broker: Broker) -> None:
    """Old segments are renamed, and removed later."""
    await broker.produce(6)
    broker.ledgers[0].start_max = 12
    await asyncio.sleep(6.0)
    await broker.produce(1)


@scenario("follow-deletion", following)
async def follow_deletion(broker: Broker) -> None:
    """The leader's log begins later: the follower deletes as well, and removes the segments."""
    leader = leader_of(broker)
    broker.ledgers[0].start_max = leader.start = leader.local_start = 14
    await broker.fetched()
    await broker.housekeeping.retain_all()
    leader.append(1)
    await broker.fetched()


@scenario("follow-deletion-tiered", following_tiered, topic=TIERED)
async def follow_deletion_tiered(broker: Broker) -> None:
    """The same, where object storage does not have all of the segments that go."""
    broker.housekeeping._tier = SimpleNamespace(copied_offset=lambda _: 3)  # type: ignore[assignment]
    broker.ledgers[0].tiered = 4
    leader = leader_of(broker)
    broker.ledgers[0].start_max = leader.start = 14
    await broker.fetched()
    await broker.housekeeping.retain_all()
    leader.append(1)
    await broker.fetched()


@scenario("delete-topic", everywhere)
async def delete_topic(broker: Broker) -> None:
    """The topic is deleted, and another one of the same name made at once."""
    for ledger in broker.ledgers.values():
        ledger.deleting()
    broker.delete_topic()
    await asyncio.sleep(0.01)
    broker.create_topic()
    for ledger in broker.ledgers.values():
        ledger.deleted()
    if await broker.produce(2):
        for ledger in broker.ledgers.values():
            ledger.is_cutting = False


# Checkpoints.


async def durable_everywhere(broker: Broker) -> None:
    for number in sorted(broker.ledgers):
        await broker.produce(9, number=number)
    await broker.housekeeping.checkpoint_all()


@scenario("checkpoint", durable_everywhere, directories=BOTH, partitions=2)
async def checkpoint(broker: Broker) -> None:
    """The job that writes them; what was appended is not synced, as other replicas have it."""
    await broker.produce(1, acks=False, number=0)
    await broker.produce(1, acks=False, number=1)
    await asyncio.sleep(1.1)


def rot(disk: SimDisk) -> None:
    """A bit of a batch's length flips, in the middle of what was durable."""
    inode = inode_at(disk, FIRST / f"{TOPIC}-0" / "00000000000000000008.log")
    assert inode is not None
    for data in (inode.data, inode.durable):
        data[len(data) // 4 + 8] ^= 0x40


def rot_at_the_end(disk: SimDisk) -> None:
    """The same, behind what was durable."""
    inode = inode_at(disk, FIRST / f"{TOPIC}-0" / "00000000000000000008.log")
    assert inode is not None
    inode.data[3 * len(inode.data) // 4 + 8] ^= 0x40


def tear_the_end(disk: SimDisk) -> None:
    """The process was killed while it wrote the last batch, which was never acknowledged."""
    inode = inode_at(disk, FIRST / f"{TOPIC}-0" / "00000000000000000008.log")
    assert inode is not None
    del inode.data[-10:]
    inode.writes = [position for position in inode.writes if position < len(inode.data)]


async def then_damaged(broker: Broker) -> None:
    await everywhere(broker)
    await broker.sync()
    await broker.housekeeping.checkpoint_all()
    ledger = broker.ledgers[0]
    ledger.is_damaged = True
    ledger.size_min = broker.partition().log.size_bytes


async def damaged_at_the_end(broker: Broker) -> None:
    await everywhere(broker)
    ledger = broker.ledgers[0]
    ledger.is_damaged = True
    ledger.size_min = broker.partition().log.size_bytes


@scenario("damaged", then_damaged, ends=KILL, damage=rot)
@scenario("damaged-end", damaged_at_the_end, ends=KILL, damage=rot_at_the_end)
async def damaged(_: Broker) -> None:
    """A log refuses to open, and the checkpoints of its directory are written as usual."""
    await asyncio.sleep(1.2)


async def torn(broker: Broker) -> None:
    await everywhere(broker)
    ledger = broker.ledgers[0]
    ledger.kept[KILL] = min(ledger.kept[KILL], ledger.end - 1)


@scenario("start-torn", torn, ends=KILL, damage=tear_the_end)
async def start_torn(broker: Broker) -> None:
    """Recovery cuts what a killed process did not finish, and the log takes records there."""
    await asyncio.sleep(1.2)
    ledger = broker.ledgers[0]
    ledger.history = [row for row in ledger.history if row.offset < 11]
    await broker.produce(1)


# Compaction.


async def keyed(broker: Broker) -> None:
    """Four rolled segments with few keys, one of them deleted."""
    await broker.produce(10, keys=3)
    await broker.produce(1, keys=1, value=None)
    await broker.produce(6, keys=3)
    await broker.housekeeping.checkpoint_all()


async def clean(broker: Broker) -> None:
    """Everything that can be cleaned is."""

    async def work() -> None:
        while await broker.cleaner.clean_dirtiest():
            pass

    await broker.attempt(work)


@scenario("compact", keyed, topic=COMPACTED)
async def compact(broker: Broker) -> None:
    await clean(broker)
    await broker.produce(2, keys=3)


async def rolled(broker: Broker) -> None:
    """A segment that is smaller than it may be, as it has become too old, and a record in the next one."""

    async def roll() -> None:
        await broker.housekeeping._each(lambda partition: partition.log.roll(BEGIN_MS))

    await broker.produce(1, keys=2)
    await broker.attempt(roll)
    await broker.produce(1, keys=2)


async def few_keyed(broker: Broker) -> None:
    """Two rolled segments, the first of which is as large as it may be."""
    await broker.produce(4, keys=2)
    await rolled(broker)
    await broker.housekeeping.checkpoint_all()


@scenario("compact-again", few_keyed, topic=COMPACTED)
async def compact_again(broker: Broker) -> None:
    """The second cleaning makes one segment of what the first had to leave in two."""
    await clean(broker)
    await rolled(broker)
    await clean(broker)


@scenario("compact-transactions", topic=COMPACTED)
async def compact_transactions(broker: Broker) -> None:
    await broker.produce(3, producer=(PRODUCER, 1, 0), transactional=True)
    await broker.produce(2, producer=(OTHER, 0, 0), transactional=True, keys=3)
    await broker.end_transaction(PRODUCER, 1, ABORT)
    await broker.produce(4)
    await broker.end_transaction(OTHER, 0, COMMIT)
    await broker.produce(3)
    await clean(broker)
    await broker.produce(1)


async def cleaned(broker: Broker) -> None:
    """Clean up to a checkpoint, as a follower."""
    leader = LeaderLog(broker.ledgers[0], 1)
    leader.append(14)
    broker.follow(leader)
    await broker.fetched()
    await broker.sync()
    broker.partition().state.high_watermark = 14
    await clean(broker)


@scenario("truncate-cleaned", cleaned, topic=COMPACTED)
async def truncate_cleaned(broker: Broker) -> None:
    """What replaces the truncated part is not clean; a key is deleted there."""
    leader = leader_of(broker).next_leader(6, 5)
    leader.append(1, keys=1, value=None)
    leader.append(3, keys=4, at_ms=BEGIN_MS + 10)
    broker.follow(leader)
    await broker.fetched()


# Object storage.


@scenario("tier-trim", everywhere, topic=TIERED)
async def tier_trim(broker: Broker) -> None:
    """What was copied leaves the disk."""
    broker.housekeeping._tier = SimpleNamespace(copied_offset=lambda _: 7)  # type: ignore[assignment]
    broker.ledgers[0].tiered = 8
    await broker.housekeeping.retain_all()
    await broker.produce(1)


@scenario("tier-start", following_tiered, topic=TIERED)
async def tier_start(broker: Broker) -> None:
    """The leader has moved the records that come next to object storage."""
    leader = leader_of(broker).next_leader(22, 5)
    leader.is_tiered = True
    leader.put(Row(22, 5, b"k", b"moved", OTHER, 4, 1))
    leader.append(20)
    leader.local_start = 33
    broker.follow(leader)
    await broker.fetched()
    await broker.sync()


@scenario("tier-copy", topic=TIERED, stores=True)
async def tier_copy(broker: Broker) -> None:
    """Segments are copied to the store, and leave the disk."""
    await broker.produce(9, producer=(PRODUCER, 0, 0))
    await broker.copied(8)
    await broker.produce(1)


async def stored(broker: Broker) -> None:
    """Three segments in the store only."""
    await broker.produce(14)
    await broker.copied(12)


@scenario("tier-expire", stored, topic=replace(TIERED, retention_bytes=900), stores=True)
async def tier_expire(broker: Broker) -> None:
    """The oldest segments leave the store, too."""
    broker.ledgers[0].start_max = broker.ledgers[0].end + 6
    await broker.produce(6)
    await asyncio.sleep(3.0)
    await broker.produce(1)


@scenario("tier-delete-topic", stored, topic=TIERED, stores=True)
async def tier_delete_topic(broker: Broker) -> None:
    """The topic is deleted, and with it what the store has of it."""
    await delete_topic(broker)
    await asyncio.sleep(1.5)


# Directories.


async def move_to(broker: Broker, path: Path) -> None:
    name = TopicPartition(TOPIC, 0)
    await broker.attempt(lambda: broker.moves.alter(name, str(path)))
    await asyncio.sleep(0.002)
    await broker.produce(2)
    await broker.produce(1, acks=False)
    await moved(broker)


async def moved(broker: Broker) -> None:
    name = TopicPartition(TOPIC, 0)
    for _ in range(600):
        if name not in broker.moves._moves and name not in broker.moves._settling:
            break
        await asyncio.sleep(0.01)


@scenario("move", some_records, directories=BOTH)
async def move(broker: Broker) -> None:
    await move_to(broker, SECOND)
    await broker.produce(2)


async def one_deleted(broker: Broker) -> None:
    """Two keys in the first segment, one of which is deleted in the second."""
    await broker.produce(4, keys=2)
    await broker.produce(1, keys=1, value=None)
    for keys in (2, 7, 2, 5):
        await broker.produce(1, keys=keys)
    await broker.housekeeping.checkpoint_all()


@scenario("move-compacted", one_deleted, topic=COMPACTED, directories=BOTH)
async def move_compacted(broker: Broker) -> None:
    """Slowly enough for two cleanings, of which the second one would remove the tombstone before it is copied."""
    broker.moves._throttle = Throttle(lambda: 100)
    with patch.object(directory_move, "REST_BYTES_MAX", 1):
        await broker.attempt(lambda: broker.moves.alter(TopicPartition(TOPIC, 0), str(SECOND)))
        for _ in range(2):
            await asyncio.sleep(1.2)
            await clean(broker)
        await moved(broker)
    await broker.produce(1, keys=2)


# Starts and stops.


@scenario("stop", everywhere, directories=BOTH, partitions=2, is_over=True)
async def stop(broker: Broker) -> None:
    await broker.stop()


@scenario("start-clean", some_records, ends="clean")
@scenario("start-killed", some_records, ends=KILL)
@scenario("start-after-power-cut", some_records, ends=POWER)
@scenario("start-truncating-early", following, ends=KILL, within="truncate", part=0.3)
@scenario("start-truncating-late", following, ends=KILL, within="truncate", part=0.6)
@scenario("start-compacting", keyed, topic=COMPACTED, ends=KILL, within="compact", part=0.3)
@scenario("start-moved", some_records, directories=BOTH, ends=KILL, within="move", part=0.8)
async def start(broker: Broker) -> None:
    """Recovery itself."""
    broker.accept_interrupted()
    await asyncio.sleep(1.2)
    broker.accept_interrupted()
    if broker.partition().is_leader:
        await broker.produce(1)
