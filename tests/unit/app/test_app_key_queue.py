"""Order within keys while records wait for their next try."""

from __future__ import annotations

import random

from confluent_kafka import Message

from penstock.app.processing.key_queue import Job, KeyQueue
from penstock.app.processing.progress import PartitionProgress
from penstock.client.application.records import Record


def job(key: str | None, offset: int, partition: int = 0) -> Job:
    record: Record[bytes] = Record(Message("t", partition, offset, None, b""))
    return Job(record, ("t", partition), offset, key, PartitionProgress())


def offsets(jobs: list[Job]) -> list[int]:
    return [each.offset for each in jobs]


def test_delayed_record_holds_back_only_records_with_its_key() -> None:
    queue = KeyQueue()
    for offset, key in enumerate("abcab"):
        queue.add(job(key, offset))
    (first,) = queue.take(1, now=0)
    queue.delay(first, due=10)
    assert offsets(queue.take(9, now=0)) == [1, 2, 4]
    queue.add(job("a", 5))
    assert queue.take(9, now=9) == []
    assert queue.due == 10
    assert offsets(queue.take(9, now=10)) == [0]
    assert queue.take(9, now=11) == []
    queue.release(first)
    assert offsets(queue.take(9, now=11)) == [3, 5]


def test_unprocessed_records_keep_their_order() -> None:
    queue = KeyQueue()
    for offset in range(4):
        queue.add(job("a", offset))
    first, second, third = queue.take(3, now=0)
    queue.delay(first, due=5)
    queue.give_back([second, third], now=0)
    assert queue.take(9, now=0) == []
    queue.take(1, now=5)
    queue.release(first)
    assert offsets(queue.take(9, now=5)) == [1, 2, 3]


def test_records_without_a_key_are_not_held_back() -> None:
    queue = KeyQueue()
    queue.add(job(None, 0))
    queue.add(job(None, 1))
    (first,) = queue.take(1, now=0)
    queue.delay(first, due=10)
    assert offsets(queue.take(9, now=0)) == [1]


def test_drop_removes_records_of_revoked_partitions() -> None:
    queue = KeyQueue()
    for offset in range(3):
        queue.add(job("a", offset, partition=0))
        queue.add(job("b", offset, partition=1))
    for each in queue.take(2, now=0):
        queue.delay(each, due=1)
    queue.drop(lambda each: each.partition == ("t", 0))
    queue.add(job("a", 7))
    taken = queue.take(9, now=1)
    assert [(each.partition[1], each.offset) for each in taken] == [(1, 0), (0, 7)]


def test_order_within_a_key_is_kept_under_random_operations() -> None:
    for seed in range(300):
        chance = random.Random(seed)
        queue, done, now, added = KeyQueue(), [], 0.0, 0
        while len(done) < 60:
            now += 1
            for _ in range(chance.randrange(4)):
                if added < 60:
                    queue.add(job(chance.choice("abc"), added))
                    added += 1
            jobs = queue.take(chance.randrange(1, 6), now)
            stop = chance.randrange(len(jobs) + 1)
            blocked, left = set(), []
            for index, each in enumerate(jobs):
                if index >= stop or each.key in blocked:
                    left.append(each)
                elif each.attempt < 3 and chance.random() < 0.3:
                    each.attempt += 1
                    queue.delay(each, now + chance.randrange(5))
                    blocked.add(each.key)
                else:
                    queue.release(each)
                    done.append((each.key, each.offset))
            queue.give_back(left, now)
        for key in "abc":
            found = [offset for each, offset in done if each == key]
            assert found == sorted(found), seed
