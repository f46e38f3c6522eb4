"""Whether a broker still leads: by what it heard of late, and by asking those who could have replaced it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.runtime.replication import leadership
from penstock.runtime.replication.leadership import HEARD_MS, Leadership


@dataclass(eq=False)
class Session:
    """A follower's session."""

    replica: int
    fetch_count: int = 5
    fetched_ms: int = 0
    is_parked: bool = True


@dataclass(eq=False)
class Led:
    """The partition."""

    leading: Any
    leader_epoch: int = 7
    name: str = "t-0"


class World:
    """A broker that leads a partition with followers 2 and 3, which do `on_invite` when they are first answered."""

    def __init__(self, *sessions: Session, rivals: tuple[int, ...] = (2, 3), is_current: bool = False) -> None:
        self.now_ms = 10_000
        self.questions = 0
        self.tasks: set[asyncio.Future[None]] = set()
        self.sessions = [*sessions]
        self.on_invite: Callable[[], None] = lambda: None
        self.partition: Any = Led(SimpleNamespace(rivals=frozenset(rivals)))
        self.leadership = Leadership(self, lambda: is_current, self)  # type: ignore[arg-type]

    def monotonic_ms(self) -> int:
        return self.now_ms

    def watches(self, _: Any) -> list[Session]:
        return self.sessions

    def invite(self, _: Any) -> None:
        first, self.on_invite = self.on_invite, lambda: None
        first()

    async def next_fetch(self, timeout_ms: int) -> None:
        self.now_ms += timeout_ms // 4 + 1
        await asyncio.sleep(0)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:  # noqa: ARG002
        self.questions += 1
        self.tasks.add(asyncio.ensure_future(work))

    def confirmed(self) -> bool:
        return asyncio.run(self.leadership.confirm(self.partition))


def test_who_hears_the_controller_or_all_followers_is_sure() -> None:
    fresh = 10_000 - HEARD_MS
    assert World(is_current=True).leadership.is_sure(World().partition)
    both = World(Session(2, fetched_ms=fresh), Session(3, fetched_ms=fresh))
    assert both.leadership.is_sure(both.partition)
    silent = World(Session(2, fetched_ms=fresh), Session(3, fetched_ms=fresh - 1))
    assert not silent.leadership.is_sure(silent.partition)
    gone = World(Session(2, fetched_ms=fresh))
    assert not gone.leadership.is_sure(gone.partition)
    alone = World(rivals=())
    assert alone.leadership.is_sure(alone.partition)


def test_who_leads_no_more_is_never_sure() -> None:
    world = World(is_current=True)
    world.partition.leading = None
    assert not world.leadership.is_sure(world.partition)
    assert not world.confirmed()


@pytest.mark.parametrize(("is_parked", "needed"), [(True, 1), (False, 2)])
def test_a_fetch_that_was_under_way_confirms_nothing(is_parked: bool, needed: int) -> None:
    for came in (needed - 1, needed):
        sessions = Session(2, is_parked=is_parked), Session(3)
        world = World(*sessions)

        def fetch(sessions: tuple[Session, ...] = sessions, came: int = came) -> None:
            sessions[0].fetch_count += came
            sessions[1].fetch_count += 1

        world.on_invite = fetch
        assert world.confirmed() == (came == needed)


def test_a_session_that_begins_meanwhile_must_fetch_once_more() -> None:
    world = World(Session(2), rivals=(2,))
    new = Session(2, fetch_count=1)
    world.on_invite = lambda: world.sessions.__setitem__(slice(None), [new])
    assert not world.confirmed()
    assert world.now_ms >= 10_000 + leadership.CONFIRM_MS

    class Later(World):
        async def next_fetch(self, timeout_ms: int) -> None:
            await super().next_fetch(timeout_ms)
            new.fetch_count += 1

    later = Later(new, rivals=(2,))
    assert later.confirmed()


def test_a_new_leader_epoch_ends_the_question() -> None:
    world = World(Session(2), Session(3))

    def elected() -> None:
        world.partition.leader_epoch += 1

    world.on_invite = elected
    assert not world.confirmed()
    assert world.now_ms < 10_000 + leadership.CONFIRM_MS


def test_a_leader_without_electable_rivals_is_confirmed() -> None:
    assert World(rivals=()).confirmed()


def test_one_question_serves_all_who_came_before_it() -> None:
    async def ask() -> list[bool]:
        first = asyncio.ensure_future(world.leadership.confirm(world.partition))
        await asyncio.sleep(0)
        later = [asyncio.ensure_future(world.leadership.confirm(world.partition)) for _ in range(20)]
        return await asyncio.gather(first, *later)

    class Slow(World):
        async def next_fetch(self, timeout_ms: int) -> None:  # noqa: ARG002
            await asyncio.sleep(0.01)
            session.fetch_count += 1

    session = Session(2)
    world = Slow(session, rivals=(2,))
    assert asyncio.run(ask()) == [True] * 21
    # The first one's began before the others asked.
    assert world.questions == 2


def test_a_question_that_is_cancelled_is_answered_with_no() -> None:
    class Closing(World):
        async def next_fetch(self, timeout_ms: int) -> None:  # noqa: ARG002
            raise asyncio.CancelledError

    assert not Closing(Session(2)).confirmed()
