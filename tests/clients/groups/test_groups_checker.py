"""The judge of group histories notices each kind of wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from group_checker import (
    Event,
    History,
    bad_generations,
    commits_that_go_back,
    read_java_log,
    read_log,
    shared_at_a_moment,
    shared_in_a_generation,
    unprocessed,
)

from penstock.wire.frame import encode_coordinator_key, encode_versioned
from penstock.wire.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from penstock.wire.records import Record

# The assignment of partition 0 of topic t, as consumers write it.
PARTITION_0 = bytes.fromhex("0000 00000001 0001 74 00000001 00000000 00000000")


def owner(name: str, start: float, end: float, generation: int, kind: str = "revoked") -> History:
    assigned = Event(start, "assigned", (0,), generation)
    return History(name, [assigned, Event(end, kind, (0,))])


def processed(*runs: tuple[int, int]) -> History:
    return History("a", [Event(0, "processed", (0,), first=first, last=last) for first, last in runs])


def test_records_that_were_not_processed() -> None:
    assert unprocessed([processed((0, 4)), processed((3, 9))], {0: 10}) == []
    assert unprocessed([processed((0, 4), (6, 9))], {0: 10}) == ["partition 0: not processed: 5..5"]
    assert unprocessed([processed((0, 4))], {0: 10}) == ["partition 0: not processed: 5..9"]
    assert unprocessed([], {0: 1}) == ["partition 0: not processed: 0..0"]


def test_two_owners_in_a_generation() -> None:
    assert shared_in_a_generation([owner("a", 0, 1, 1), owner("b", 2, 3, 2)]) == []
    assert len(shared_in_a_generation([owner("a", 0, 1, 1), owner("b", 2, 3, 1)])) == 1


def test_what_is_kept_is_owned_in_the_next_generation_too() -> None:
    keeper = History("a", [Event(0, "assigned", (0,), 1), Event(1, "generation", generation=2)])
    assert len(shared_in_a_generation([keeper, owner("b", 2, 3, 2)])) == 1


@pytest.mark.parametrize(("kind", "expected"), [("revoked", 1), ("lost", 0)])
def test_two_owners_at_a_moment(kind: str, expected: int) -> None:
    assert shared_at_a_moment([owner("a", 0, 1, 1), owner("b", 1, 2, 2)]) == []
    assert len(shared_at_a_moment([owner("a", 0, 1.5, 1, kind), owner("b", 1, 2, 2)])) == expected


def test_who_was_stopped_or_killed_owns_nothing_any_more() -> None:
    for broken in (History("a", [], stalls=[0.5]), History("a", [], killed_at=0.5)):
        broken.events += owner("a", 0, 1.5, 1).events
        assert shared_at_a_moment([broken, owner("b", 1, 2, 2)]) == []


def commit(offset: int, group: str = "g") -> Record:
    key = encode_coordinator_key(OffsetCommitKey(group, "t", 0))
    return Record(0, 0, key, encode_versioned(OffsetCommitValue(offset, -1, "", 0, -1), 3))


def test_commits_that_go_back() -> None:
    assert commits_that_go_back([commit(1), commit(1), commit(2), commit(1, "other")], "g") == []
    assert commits_that_go_back([commit(2), commit(1)], "g") == ["t-0: 2 was committed, then 1"]


def generation(number: int, *assignments: bytes) -> Record:
    members = [
        MemberMetadata(f"m{index}", None, "c", "/h", 1, 1, b"", assignment)
        for index, assignment in enumerate(assignments)
    ]
    value = GroupMetadataValue("consumer", number, "range", "m0", 0, members)
    return Record(0, 0, encode_coordinator_key(GroupMetadataKey("g")), encode_versioned(value, 3))


def test_bad_generations() -> None:
    assert bad_generations([generation(1, PARTITION_0, b""), generation(2, b"", PARTITION_0)], "g") == []
    assert bad_generations([generation(2), generation(1)], "g") == ["generation 2 was on record, then 1"]
    assert len(bad_generations([generation(1, PARTITION_0, PARTITION_0)], "g")) == 1


def test_logs_are_read_up_to_where_a_kill_cut_them(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text('{"time": 1, "event": "committed", "offsets": {"3": 7}}\n{"time": 2, "ev')
    assert read_log(log) == [Event(1, "committed", offsets={3: 7})]
    assert read_log(tmp_path / "never started") == []


def test_java_logs_are_read_with_their_generations(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        "[main] INFO x - Successfully synced group in generation Generation{generationId=4, memberId='m'}\n"
        '{"timestamp":1000,"name":"partitions_assigned","partitions":[{"topic":"t","partition":2}]}\n'
        '{"timestamp":2000,"name":"records_consumed","partitions":[{"partition":2,"minOffset":5,"maxOffset":9}]}\n'
        '{"timestamp":2001,"name":"offsets_committed","success":true,"offsets":[{"partition":2,"offset":10}]}\n'
        '{"timestamp":2002,"name":"offsets_committed","success":false,"error":"fenced","offsets":[]}\n'
    )
    assert read_java_log(log) == [
        Event(0, "generation", generation=4),
        Event(1, "assigned", (2,), 4),
        Event(2, "processed", (2,), first=5, last=9),
        Event(2.001, "committed", offsets={2: 10}),
        Event(2.002, "refused", error="fenced"),
    ]
