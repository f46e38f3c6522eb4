"""A controller that is no longer active watches nothing and changes nothing."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from unittest.mock import Mock, patch

from controller_world import QUICK, ControllerWorld, play

from penstock.runtime.controller.duties import Duties


def duties_of(world: ControllerWorld) -> Duties:
    duties = world.controller._duties
    assert duties is not None
    return duties


def test_the_session_of_the_broker_that_is_due_first_is_watched() -> None:
    async def scene(world: ControllerWorld) -> None:
        now_ms = world.env.monotonic_ms()
        with patch.object(world.env, "monotonic_ms", lambda: now_ms):
            await world.start(1)
            duties = duties_of(world)
            first = duties._timer
            assert first is not None
            await world.start(2)
            # That of the first broker ends as early.
            assert duties._timer is first
        duties.connection_lost(2)
        assert duties._timer is not first
        assert first.cancelled()
        remaining_s = duties._timer_due - asyncio.get_running_loop().time()
        assert remaining_s < 1
        await world.until(lambda: world.image.brokers[2].fenced)

    play(scene, settings=replace(QUICK, session_timeout_ms=60_000))


def test_nothing_is_watched_after_the_leadership_was_lost() -> None:
    async def scene(world: ControllerWorld) -> None:
        await world.start(1, 2)
        duties = duties_of(world)
        for broker_id in (1, 2):
            await world.beat(broker_id)
        assert duties._tasks
        world.controller.on_leadership(False)
        assert duties._timer is None
        assert duties._tasks == {}
        assert duties.begun.is_set()
        duties.connection_lost(1)
        duties.watch()
        assert duties._timer is None
        await asyncio.sleep(2 * QUICK.session_timeout_ms / 1000)
        assert not any(broker.fenced for broker in world.image.brokers.values())

    play(scene)


def test_a_broker_that_is_fenced_has_no_session_to_watch() -> None:
    async def scene(world: ControllerWorld) -> None:
        await world.start(1)
        duties = duties_of(world)
        with patch.object(duties, "fence", Mock(wraps=duties.fence)) as fence:
            await world.until(lambda: world.image.brokers[1].fenced)
            await world.until(lambda: not duties.heartbeats.going())
        fence.assert_called_once_with(1)
        assert duties.heartbeats.stale_brokers(duties._env.monotonic_ms()) == []

    play(scene)
