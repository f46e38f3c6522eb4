"""Which records count when two gateways write at the same time, and that nothing of it is lost."""

from __future__ import annotations

import itertools
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.gateway.registry.ordering import AppendOrder, OrderedRecord


def test_first_of_two_writes_from_the_same_state_is_accepted() -> None:
    order = AppendOrder()
    assert order.admit(OrderedRecord(0, b"k", b"first", base=-1, write="a"))
    assert not order.admit(OrderedRecord(1, b"k", b"second", base=-1, write="b"))
    assert order.value(b"k") == b"first"
    assert order.stale_keys == [b"k"]
    assert order.admit(OrderedRecord(2, b"k", b"first", base=1, write="c"))
    assert order.stale_keys == []


def test_records_of_one_write_are_accepted_until_another_write_intervenes() -> None:
    order = AppendOrder()
    assert order.admit(OrderedRecord(5, b"x", b"1", base=3, write="a"))
    assert order.admit(OrderedRecord(6, b"y", b"1", base=3, write="a"))
    assert order.admit(OrderedRecord(7, b"z", b"1"))
    assert not order.admit(OrderedRecord(8, b"w", b"1", base=3, write="a"))


def test_records_of_other_registries_are_always_accepted() -> None:
    order = AppendOrder()
    assert order.admit(OrderedRecord(0, b"k", b"1"))
    assert order.admit(OrderedRecord(1, b"k", b"2"))
    assert not order.admit(OrderedRecord(2, None, b"x"))


class Writer:
    """A gateway that has read the log up to some point and may be slow."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.order = AppendOrder()
        self.read = 0

    def catch_up(self, log: list[OrderedRecord]) -> None:
        for entry in log[self.read :]:
            self.order.admit(entry)
        self.read = len(log)


@given(st.integers(0, 2**32))
@settings(max_examples=200, deadline=None)
def test_all_gateways_agree_and_compaction_keeps_accepted_records(seed: int) -> None:
    choose = random.Random(seed)
    log: list[OrderedRecord] = []
    writers = [Writer(f"g{number}") for number in range(3)]
    names = itertools.count()
    offset = 0
    for _ in range(30):
        writer = choose.choice(writers)
        if choose.random() < 0.5:
            writer.catch_up(log)
        offset += choose.choice((1, 1, 2))
        key = choose.choice((b"a", b"b"))
        number = next(names)
        log.append(
            OrderedRecord(offset, key, b"%d" % number, base=writer.order.last_offset, write=f"{writer.name}-{number}")
        )
    for number in range(1000):
        for writer in writers:
            writer.catch_up(log)
        stale = writers[0].order.stale_keys
        if not stale:
            break
        offset += 1
        key = stale[0]
        log.append(
            OrderedRecord(
                offset, key, writers[0].order.value(key), base=writers[0].order.last_offset, write=f"mend-{number}"
            )
        )
    for writer in writers:
        writer.catch_up(log)
    values = {key: writers[0].order.value(key) for key in (b"a", b"b")}
    assert all(writer.order.value(key) == value for writer in writers for key, value in values.items())
    last = {entry.key: entry for entry in log}
    compacted = [entry for entry in log if last[entry.key] is entry]
    late = Writer("late")
    late.catch_up(compacted)
    assert {key: late.order.value(key) for key in values} == values
