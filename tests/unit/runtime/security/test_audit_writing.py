"""How the audit trail is written: gathered for a moment, again after failures, and once more at the end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

from penstock.model.access import Operation, ResourceType
from penstock.runtime.peer import PeerLost
from penstock.runtime.security import audit
from penstock.runtime.security.audit import AuditTrail
from penstock.wire.apis import ApiKey
from support.virtual_time import WALL_START_MS, VirtualEnv, run_virtually

EVE: Any = SimpleNamespace(
    principal="User:eve",
    host="10.0.0.1",
    listener_name="CLIENTS",
    client_id="c",
    api_key=ApiKey.FETCH,
    is_forwarded=False,
)


class World:
    def __init__(self, env: VirtualEnv, **options: Any) -> None:
        self.env = env
        self.trail = AuditTrail(env, 7, 1_000, **{"is_on": True, "logs": False, **options})
        # When each write came, and its documents.
        self.writes: list[tuple[int, list[tuple[int, Any]]]] = []
        self.failures = 0

    async def write(self, documents: Sequence[tuple[int, bytes]]) -> None:
        self.writes.append((self.env.passed_ms(), [(at, json.loads(one)) for at, one in documents]))
        if self.failures:
            self.failures -= 1
            raise PeerLost("gone")

    def deny(self, name: str) -> None:
        self.trail.denied(EVE, Operation.READ, ResourceType.TOPIC, name)


def play(story: Callable[[World], Awaitable[None]], **options: Any) -> None:
    async def run(env: VirtualEnv) -> None:
        await story(World(env, **options))

    run_virtually(run)


def test_events_are_written_together_with_the_time_at_which_they_happened() -> None:
    async def story(world: World) -> None:
        world.deny("before the start")
        await asyncio.sleep(2)
        world.trail.start(world.write)
        world.trail.start(world.write)
        world.deny("orders")
        assert world.trail.waiting == 2
        await asyncio.sleep(5)
        ((_, documents),) = world.writes
        assert [at for at, _ in documents] == [WALL_START_MS, WALL_START_MS + 2_000]
        assert (world.trail.written, world.trail.waiting, world.trail.dropped) == (2, 0, 0)
        text = json.dumps(documents[1][1])
        assert all(part in text for part in ("User:eve", "orders", "READ", "DENIED", "10.0.0.1"))

    play(story)


def test_what_cannot_be_written_is_tried_again_with_growing_pauses() -> None:
    async def story(world: World) -> None:
        world.trail.start(world.write)
        world.failures = 8
        world.deny("orders")
        await asyncio.sleep(400)
        times = [at for at, _ in world.writes]
        assert len(times) == 9
        assert world.trail.written == 1
        # Each pause is followed by the moment in which events are gathered.
        linger_ms = round(audit.LINGER_S * 1000)
        pauses = [after - before - linger_ms for before, after in pairwise(times)]
        expected = [min(audit.RETRY_MIN_S * 2**number, audit.RETRY_MAX_S) * 1000 for number in range(8)]
        assert all(abs(pause - wanted) <= 1 for pause, wanted in zip(pauses, expected, strict=True))
        world.writes.clear()
        world.failures = 1
        world.deny("others")
        await asyncio.sleep(100)
        first, second = (at for at, _ in world.writes)
        assert abs(second - first - linger_ms - audit.RETRY_MIN_S * 1000) <= 1

    play(story)


def test_what_is_left_is_written_at_the_end() -> None:
    async def story(world: World) -> None:
        await world.trail.stop()
        world.trail.start(world.write)
        world.deny("orders")
        await world.trail.stop()
        assert len(world.writes) == 1
        await asyncio.sleep(10)
        assert len(world.writes) == 1

    play(story)


def test_nothing_is_collected_while_it_is_off_and_of_requests_that_were_forwarded() -> None:
    async def story(world: World) -> None:
        world.trail.start(world.write)
        world.deny("orders")
        world.trail.handshake_failed("CLIENTS", "10.0.0.1", "no certificate")
        assert world.trail.waiting == 0

    async def forwarded(world: World) -> None:
        world.trail.denied(
            SimpleNamespace(**{**vars(EVE), "is_forwarded": True}), Operation.READ, ResourceType.TOPIC, "orders"
        )
        assert world.trail.waiting == 0
        world.trail.handshake_failed("CLIENTS", "10.0.0.1", "no certificate")
        assert world.trail.waiting == 1

    play(story, is_on=False)
    play(forwarded)
