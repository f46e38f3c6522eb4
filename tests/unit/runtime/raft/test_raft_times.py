"""How long a node waits for another controller, and how soon it asks again: controller.quorum.* in milliseconds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from raft_world import VirtualLoop

from penstock.core.raft.events import Effects, Event, FetchNext, QuorumTimes
from penstock.core.raft.messages import FetchRequest, LogEnd, VoteRequest
from penstock.runtime.peer import PeerLost
from penstock.runtime.raft.follower import Follower
from penstock.runtime.raft.transport import AddressBook, Transport
from penstock.runtime.raft.wire import RaftSender

FETCH = FetchRequest(1, 1, LogEnd(0, 0))
VOTE = VoteRequest(1, 1, LogEnd(0, 0), pre_vote=False)


class SilentEnv:
    """A world in which no peer answers."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.network = self

    async def connect(self, host: str, port: int, make_protocol: Callable[[], Any]) -> Any:  # noqa: ARG002
        await asyncio.sleep(3600)

    def monotonic_ms(self) -> int:
        return int(self._loop.time() * 1_000)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        return self._loop.create_task(work, name=name)


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop()
    yield loop
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


@pytest.mark.parametrize(
    ("times", "vote_ms", "fetch_ms"),
    [
        (QuorumTimes(election_ms=1_000, fetch_ms=2_000, request_ms=300), 300, 300),
        (QuorumTimes(election_ms=1_000, fetch_ms=4_000, request_ms=3_000), 1_000, 3_000),
        (QuorumTimes(election_ms=1_000, fetch_ms=2_000, request_ms=9_000), 1_000, 2_000),
    ],
)
def test_a_request_is_given_up_after_its_time(
    loop: VirtualLoop, times: QuorumTimes, vote_ms: int, fetch_ms: int
) -> None:
    given_up: dict[str, int] = {}

    async def ask() -> None:
        env = SilentEnv(loop)
        started_ms = env.monotonic_ms()

        def unanswered(*_: Any) -> None:
            given_up["vote"] = env.monotonic_ms() - started_ms

        sender = RaftSender(1, bytes(16), None, ())
        book = AddressBook({2: ("host", 2)}, "CONTROLLER")
        transport = Transport(env, book, lambda: sender, times, unanswered, unanswered)  # type: ignore[arg-type]
        transport.send(2, VOTE)
        with pytest.raises(PeerLost):
            await transport.fetch(2, FETCH, 0)
        given_up["fetch"] = env.monotonic_ms() - started_ms
        transport.close()

    loop.run_until_complete(ask())
    assert given_up == {"vote": pytest.approx(vote_ms, abs=5), "fetch": pytest.approx(fetch_ms, abs=5)}


@pytest.mark.parametrize(("retry_ms", "fetches"), [(20, 51), (250, 5)])
def test_a_lost_fetch_is_sent_again_after_the_retry_backoff(loop: VirtualLoop, retry_ms: int, fetches: int) -> None:
    sent = 0

    def fetch(*_: Any) -> asyncio.Future[Any]:
        nonlocal sent
        sent += 1
        answer = loop.create_future()
        answer.set_exception(PeerLost("no peer is there"))
        return answer

    def read_reply(answer: asyncio.Future[Any], _: Any) -> None:
        answer.result()

    def step(event: Event) -> asyncio.Future[Effects]:
        if isinstance(event, FetchNext):
            follower.fetch(2, FETCH)
        handled: asyncio.Future[Effects] = loop.create_future()
        handled.set_result(Effects())
        return handled

    quorum = SimpleNamespace(high_watermark=0)
    transport = SimpleNamespace(fetch=fetch, read_reply=read_reply)
    unused: Any = None
    follower = Follower(
        SilentEnv(loop),  # type: ignore[arg-type]
        quorum,  # type: ignore[arg-type]
        unused,
        unused,
        transport,  # type: ignore[arg-type]
        QuorumTimes(retry_ms=retry_ms),
        unused,
        unused,
        step,
        unused,
        unused,
        unused,
    )

    async def follow() -> None:
        follower.again()
        await asyncio.sleep(1.01)
        follower.close()

    loop.run_until_complete(follow())
    assert sent == pytest.approx(fetches, abs=1)
