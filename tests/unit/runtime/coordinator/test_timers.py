"""Deadlines of groups: each fires at its time, whatever else is set, moved or cancelled meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from itertools import pairwise

import pytest

from penstock.runtime.coordinator.timers import FIRED_PER_TURN, Timers

LATE_MS_MAX = 150


def now_ms() -> int:
    return int(time.time() * 1000)


async def fired_after(
    deadlines: dict[str, int], on_fire: Callable[[Timers[str], str, int], None], until_ms: int = 300
) -> dict[str, int]:
    """When each key fired, in milliseconds since the start; deadlines are given the same way."""
    start = now_ms()
    found: dict[str, int] = {}

    def fire(key: str) -> None:
        found[key] = now_ms() - start
        on_fire(timers, key, start)

    timers: Timers[str] = Timers(now_ms, fire)
    for key, after_ms in deadlines.items():
        timers.set(key, start + after_ms)
    await asyncio.sleep(until_ms / 1000)
    timers.clear()
    return found


def test_a_far_deadline_set_while_one_fires_delays_no_other() -> None:
    def set_far(timers: Timers[str], key: str, start: int) -> None:
        if key == "first":
            timers.set("far", start + 60_000)

    found = asyncio.run(fired_after({"first": 20, "second": 100}, set_far))
    assert list(found) == ["first", "second"]
    assert 100 <= found["second"] < 100 + LATE_MS_MAX


def test_a_moved_deadline_delays_no_other() -> None:
    async def run() -> dict[str, int]:
        start = now_ms()
        found: dict[str, int] = {}
        timers: Timers[str] = Timers(now_ms, lambda key: found.update({key: now_ms() - start}))
        timers.set("moved", start + 20)
        timers.set("second", start + 100)
        timers.set("moved", start + 60_000)
        await asyncio.sleep(0.3)
        timers.clear()
        return found

    found = asyncio.run(run())
    assert list(found) == ["second"]
    assert found["second"] < 100 + LATE_MS_MAX


def test_all_fire_in_order_and_none_early() -> None:
    deadlines = {f"{number}": number * 10 for number in (3, 1, 4, 15, 9, 2, 6)}
    found = asyncio.run(fired_after(deadlines, lambda *_: None))
    assert list(found) == sorted(deadlines, key=deadlines.__getitem__)
    assert all(found[key] >= deadlines[key] for key in deadlines)
    assert all(earlier <= later for earlier, later in pairwise(found.values()))


def test_what_is_cancelled_does_not_fire() -> None:
    def cancel(timers: Timers[str], key: str, _start: int) -> None:
        if key == "first":
            timers.set("second", None)

    assert list(asyncio.run(fired_after({"first": 10, "second": 50}, cancel, 150))) == ["first"]


@pytest.mark.parametrize("sooner_ms", [30, 200])
def test_a_deadline_that_is_set_again_counts(sooner_ms: int) -> None:
    async def run() -> list[int]:
        start = now_ms()
        found: list[int] = []
        timers: Timers[str] = Timers(now_ms, lambda _: found.append(now_ms() - start))
        timers.set("key", start + 100)
        timers.set("key", start + sooner_ms)
        await asyncio.sleep(0.4)
        timers.clear()
        return found

    (after_ms,) = asyncio.run(run())
    assert sooner_ms <= after_ms < sooner_ms + LATE_MS_MAX


def test_a_failure_stops_no_other_deadline() -> None:
    async def run() -> list[str]:
        failures: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(str(context["exception"])))
        start = now_ms()
        found: list[str] = []

        def fire(key: str) -> None:
            if key == "bad":
                raise ValueError(key)
            found.append(key)

        timers: Timers[str] = Timers(now_ms, fire)
        timers.set("bad", start + 10)
        timers.set("good", start + 40)
        await asyncio.sleep(0.2)
        timers.clear()
        assert failures == ["bad"]
        return found

    assert asyncio.run(run()) == ["good"]


def test_of_many_deadlines_that_are_due_together_some_fire_in_each_turn() -> None:
    async def story() -> list[int]:
        fired: list[int] = []
        turns: list[int] = []
        timers: Timers[int] = Timers(now_ms, fired.append)
        due_ms = now_ms() + 10
        for key in range(3 * FIRED_PER_TURN + 1):
            timers.set(key, due_ms)
        while len(fired) < 3 * FIRED_PER_TURN + 1:
            before = len(fired)
            await asyncio.sleep(0)
            turns += [len(fired) - before] if len(fired) > before else []
        assert fired == [*range(3 * FIRED_PER_TURN + 1)]
        return turns

    assert asyncio.run(asyncio.wait_for(story(), 5)) == [FIRED_PER_TURN] * 3 + [1]
