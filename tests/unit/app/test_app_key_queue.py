"""Order by key, while records wait for their next try."""

from __future__ import annotations

import random

from confluent_kafka import Message

from penstock.app.lines.lane import Job, Lane
from penstock.app.lines.progress import PartitionProgress
from penstock.client.application.records import Record


def job(key: str | None, offset: int, partition: int = 0) -> Job:
    record: Record[bytes] = Record(Message("t", partition, offset, None, b""))
    return Job(record, ("t", partition), offset, key, PartitionProgress())


def offsets(jobs: list[Job]) -> list[int]:
    return [each.offset for each in jobs]


def test_others_pass_a_record_that_waits_and_its_key_does_not() -> None:
    lane = Lane()
    for offset, key in enumerate("abcab"):
        lane.add(job(key, offset))
    (first,) = lane.take(1, now=0)
    lane.delay(first, due=10)
    assert offsets(lane.take(9, now=0)) == [1, 2, 4]
    lane.add(job("a", 5))
    assert lane.take(9, now=9) == []
    assert lane.due == 10
    assert offsets(lane.take(9, now=10)) == [0]
    assert lane.take(9, now=11) == []
    lane.release(first)
    assert offsets(lane.take(9, now=11)) == [3, 5]


def test_what_was_not_processed_keeps_its_place() -> None:
    lane = Lane()
    for offset in range(4):
        lane.add(job("a", offset))
    first, second, third = lane.take(3, now=0)
    lane.delay(first, due=5)
    lane.give_back([second, third], now=0)
    assert lane.take(9, now=0) == []
    lane.take(1, now=5)
    lane.release(first)
    assert offsets(lane.take(9, now=5)) == [1, 2, 3]


def test_records_without_a_key_wait_for_nobody() -> None:
    lane = Lane()
    lane.add(job(None, 0))
    lane.add(job(None, 1))
    (first,) = lane.take(1, now=0)
    lane.delay(first, due=10)
    assert offsets(lane.take(9, now=0)) == [1]


def test_partitions_that_leave_take_their_records_along() -> None:
    lane = Lane()
    for offset in range(3):
        lane.add(job("a", offset, partition=0))
        lane.add(job("b", offset, partition=1))
    for each in lane.take(2, now=0):
        lane.delay(each, due=1)
    lane.drop(lambda each: each.partition == ("t", 0))
    lane.add(job("a", 7))
    taken = lane.take(9, now=1)
    assert [(each.partition[1], each.offset) for each in taken] == [(1, 0), (0, 7)]


def test_a_key_is_never_overtaken_whatever_happens() -> None:
    for seed in range(300):
        chance = random.Random(seed)
        lane, done, now, added = Lane(), [], 0.0, 0
        while len(done) < 60:
            now += 1
            for _ in range(chance.randrange(4)):
                if added < 60:
                    lane.add(job(chance.choice("abc"), added))
                    added += 1
            jobs = lane.take(chance.randrange(1, 6), now)
            stop = chance.randrange(len(jobs) + 1)
            blocked, left = set(), []
            for place, each in enumerate(jobs):
                if place >= stop or each.key in blocked:
                    left.append(each)
                elif each.attempt < 3 and chance.random() < 0.3:
                    each.attempt += 1
                    lane.delay(each, now + chance.randrange(5))
                    blocked.add(each.key)
                else:
                    lane.release(each)
                    done.append((each.key, each.offset))
            lane.give_back(left, now)
        for key in "abc":
            found = [offset for each, offset in done if each == key]
            assert found == sorted(found), seed
