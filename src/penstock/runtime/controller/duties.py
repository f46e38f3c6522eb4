"""What the active controller does on its own: it watches sessions, fences brokers, elects and balances leaders.

It starts when this node becomes the active controller and stops when it no longer is. Nothing here is durable: sessions
start again with every active controller, and whatever an earlier one left unfinished is visible in the image.

The departure of one broker can change every partition of a big cluster. Such work is split into decisions of a bounded
size, the partitions that lose their leader first, so that other decisions are made in between and no request waits
long. The record that fences the broker comes last: until it is written the work continues, on whichever controller is
active.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

from penstock.core.metadata import brokers, elections, features
from penstock.core.metadata.delegation_tokens import expired_tokens
from penstock.core.metadata.election_rules import ElectionRules
from penstock.core.metadata.elections import PartitionKey, leader_and_isr_updates, partitions_of_topic_naming
from penstock.core.metadata.heartbeats import Heartbeats
from penstock.core.metadata.image import Image, Topic
from penstock.core.metadata.result import Result
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import Uuid
from penstock.runtime.env import Env
from penstock.runtime.keep_running import keep_running

# One decision has at most about this many records; it takes some ten milliseconds.
RECORDS_PER_DECISION = 2_000
# Looking at this many partitions takes a few milliseconds; then other work gets its turn.
PARTITIONS_PER_TURN = 20_000
# A timer that is this late means that this process was suspended, and could not receive any heartbeats meanwhile.
STANDSTILL_MS = 250
# The pause before work is repeated that the metadata log did not take, as on a full disk.
RETRY_MS = 500

Response = TypeVar("Response")

logger = logging.getLogger("penstock.controller")


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """Timings of the active controller; the defaults are Penstock's."""

    session_timeout_ms: int = 4_000
    lost_connection_grace_ms: int = 300
    # How long brokers have to report to a controller that has just become active.
    first_session_ms: int = 1_500
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_check_interval_ms: int = 300_000
    unclean_leader_election_interval_ms: int = 300_000
    token_expiry_check_interval_ms: int = 3_600_000
    # What the cluster was formatted with; written to a new log.
    first_records: tuple[object, ...] = ()


class DecisionQueue(Protocol):
    """What the duties need from the metadata log."""

    @property
    def image(self) -> Image:
        """The committed state."""

    def decide(self, decision: Callable[[Image], Result[Response]]) -> asyncio.Future[Response]:
        """Commit what `decision` computes from the image, then return its response."""

    def begin(self, decision: Callable[[Image], Result[Response]]) -> asyncio.Future[Response]:
        """The same, before everything else that this active controller decides."""


class Duties:
    """One term as the active controller."""

    def __init__(
        self,
        env: Env,
        quorum: DecisionQueue,
        settings: ControllerSettings,
        rules: Callable[[], ElectionRules],
        next_offset: Callable[[], int],
    ) -> None:
        self._env = env
        self._quorum = quorum
        self._settings = settings
        self._rules = rules
        self._next_offset = next_offset
        self._stopped = False
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0
        self._sweep_again = False
        # Set once the cluster's first records are committed: before that its feature levels are unknown.
        self.begun = asyncio.Event()
        self.heartbeats = Heartbeats(quorum.image, settings.session_timeout_ms, settings.lost_connection_grace_ms)

    def start(self) -> None:
        """Give every broker a new session and begin."""
        now_ms = self._env.monotonic_ms()
        for broker in self._quorum.image.brokers.values():
            self.heartbeats.inherit(broker.broker_id, now_ms, self._settings.first_session_ms)
        self.watch()
        self._spawn(self._begin, "controller begins")
        settings = self._settings
        if settings.auto_leader_rebalance_enable:
            self._spawn(
                partial(self._every, settings.leader_imbalance_check_interval_ms, self.balance), "leader balance"
            )
        interval_ms = settings.unclean_leader_election_interval_ms
        self._spawn(partial(self._every, interval_ms, self.elect_unclean), "unclean elections")
        interval_ms = settings.token_expiry_check_interval_ms
        self._spawn(partial(self._every, interval_ms, self.forget_expired_tokens), "expired tokens")

    def stop(self) -> None:
        """This node is no longer the active controller."""
        self.begun.set()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._stopped = True
        for task in list(self._tasks.values()):
            task.cancel()
        self._tasks.clear()

    def watch(self) -> None:
        """Check the sessions when the next one can expire."""
        if self._stopped:
            return
        loop, now_ms = asyncio.get_running_loop(), self._env.monotonic_ms()
        due = loop.time() + max(0, self.heartbeats.next_check_ms(now_ms) - now_ms) / 1000
        if self._timer is not None:
            if self._timer_due <= due:
                return
            self._timer.cancel()
        self._timer_due = due
        self._timer = loop.call_at(due, self._check_sessions)

    def connection_lost(self, broker_id: int) -> None:
        """The connection of a broker's heartbeats broke."""
        self.heartbeats.connection_lost(broker_id, self._env.monotonic_ms())
        self.watch()

    def _check_sessions(self) -> None:
        self._timer = None
        late_ms = int((asyncio.get_running_loop().time() - self._timer_due) * 1000)
        if late_ms > STANDSTILL_MS:
            logger.warning("this controller was suspended for %d ms; sessions are extended by that", late_ms)
            self.heartbeats.extend(late_ms + self._settings.lost_connection_grace_ms)
        for broker_id in self.heartbeats.stale_brokers(self._env.monotonic_ms()):
            logger.warning("fencing broker %d: its session has expired", broker_id)
            self.fence(broker_id)
        self.watch()

    def fence(self, broker_id: int) -> None:
        """Start fencing a broker."""
        broker = self._quorum.image.brokers.get(broker_id)
        if broker is None:
            self.heartbeats.forget(broker_id)
        elif not broker.fenced and (name := f"fence broker {broker_id}") not in self._tasks:
            self.heartbeats.fencing(broker_id, True)
            self._spawn(partial(self._fence, broker_id, broker.epoch), name)

    async def _fence(self, broker_id: int, epoch: int) -> None:
        def decision(image: Image, found: Sequence[PartitionKey]) -> Result[bool]:
            broker = image.brokers.get(broker_id)
            if broker is None or broker.epoch != epoch or broker.fenced:
                return Result((), False)
            return Result(brokers.fence(image, broker_id, self._rules(), found, self.heartbeats.going()), True)

        try:
            await self.depart(broker_id, False, decision)
        except ApiError:
            # Whatever blocks the log may pass; until then there is no point in retrying quickly.
            await asyncio.sleep(RETRY_MS / 1000)
            self._end_fencing(broker_id)
            raise
        self._end_fencing(broker_id)

    def _end_fencing(self, broker_id: int) -> None:
        self.heartbeats.fencing(broker_id, False)
        self.watch()

    async def depart(
        self,
        broker_id: int,
        unclean: bool,
        decision: Callable[[Image, Sequence[PartitionKey]], Result[Response]],
        intact: Collection[Uuid] = (),
    ) -> Response:
        """Remove a broker from ISRs in pieces while there are many, then let `decision` do the rest."""
        found: list[PartitionKey] = []
        while self._named(broker_id, unclean) > RECORDS_PER_DECISION:
            found = await self._search(broker_id, unclean)
            for start in range(0, max(0, len(found) - RECORDS_PER_DECISION), RECORDS_PER_DECISION):
                some = found[start : start + RECORDS_PER_DECISION]
                await self._decide_departures(broker_id, some, unclean, intact)
            found = found[-RECORDS_PER_DECISION:]
            if intact:
                # It stays named wherever it stays eligible.
                break
        if self._named(broker_id, unclean) and not found:
            found = await self._search(broker_id, unclean)
        return await self._quorum.decide(lambda image: decision(image, found))

    def _named(self, broker_id: int, unclean: bool) -> int:
        return elections.named_count(self._quorum.image, broker_id, unclean=unclean)

    async def _search(self, broker_id: int, unclean: bool) -> list[PartitionKey]:
        """Every partition that changes when a broker goes, those that it leads first."""
        led: list[PartitionKey] = []
        followed: list[PartitionKey] = []
        image = self._quorum.image
        async for topics in self._slices():
            for topic in topics:
                for index in partitions_of_topic_naming(image, topic, broker_id, unclean=unclean):
                    leads = topic.partitions[index].leader == broker_id
                    (led if leads else followed).append((topic.topic_id, index))
        return led + followed

    async def _slices(self) -> AsyncIterator[list[Topic]]:
        """All topics, a bounded number of partitions at a time, yielding to other work in between."""
        topics: list[Topic] = []
        size = 0
        for topic in list(self._quorum.image.topics.values()):
            topics.append(topic)
            size += len(topic.partitions)
            if size >= PARTITIONS_PER_TURN:
                yield topics
                topics, size = [], 0
                await asyncio.sleep(0)
        yield topics

    def _decide_departures(
        self, broker_id: int, partitions: Sequence[PartitionKey], unclean: bool, intact: Collection[Uuid] = ()
    ) -> Awaitable[int]:
        def decision(image: Image) -> Result[int]:
            going = self.heartbeats.going()
            records = brokers.departures(
                image, broker_id, partitions, self._rules(), unclean=unclean, intact=intact, avoid=going
            )
            return Result(records, self._next_offset() + len(records) - 1)

        return self._quorum.decide(decision)

    def evacuate(self, broker_id: int) -> None:
        """Move the leaderships and ISR memberships of a broker in controlled shutdown."""
        name = f"evacuate broker {broker_id}"
        if name not in self._tasks and self._named(broker_id, False):
            self._spawn(partial(self._evacuate, broker_id), name)

    async def _evacuate(self, broker_id: int) -> None:
        found = await self._search(broker_id, False)
        for start in range(0, len(found), RECORDS_PER_DECISION):
            chunk = found[start : start + RECORDS_PER_DECISION]
            offset = await self._decide_departures(broker_id, chunk, False)
            if self.heartbeats.shutting_down(broker_id):
                self.heartbeats.begin_controlled_shutdown(broker_id, offset)

    def sweep(self) -> None:
        """Elect leaders for all partitions without one."""
        self._sweep_again = True
        if "sweep" not in self._tasks:
            self._spawn(self._sweep, "sweep")

    async def _sweep(self) -> None:
        while self._sweep_again:
            self._sweep_again = False
            leaderless = list(self._quorum.image.leaderless)
            for start in range(0, len(leaderless), RECORDS_PER_DECISION):
                some = leaderless[start : start + RECORDS_PER_DECISION]
                await self._persistently(partial(self._decide, partial(self._leaders_for, some)))

    def _leaders_for(self, partitions: Sequence[PartitionKey], image: Image) -> Iterable[object]:
        return leader_and_isr_updates(image, partitions, self._rules())

    async def _begin(self) -> None:
        minimum = self._rules().min_insync_replicas
        first = self._settings.first_records

        async def begin() -> None:
            await self._quorum.begin(lambda image: Result(features.first_records(image, minimum, first), None))

        await self._persistently(begin)
        self.begun.set()
        self.sweep()

    async def forget_expired_tokens(self) -> None:
        """Remove expired delegation tokens."""
        if self._quorum.image.security.tokens:
            await self._decide(lambda image: expired_tokens(image, self._env.now_ms()))

    async def balance(self) -> None:
        """Move leadership back to preferred replicas."""
        if not self._quorum.image.not_preferred_count:
            return
        async for topics in self._slices():
            moved = elections.ELECTIONS_PER_ROUND_MAX
            while moved >= elections.ELECTIONS_PER_ROUND_MAX:
                moved = await self._decide(partial(self._preferred_leaders, topics))

    def _preferred_leaders(self, topics: Sequence[Topic], image: Image) -> Iterable[object]:
        present = [topic for topic in topics if topic.topic_id in image.topics_by_id]
        return elections.balance_leaders(image, present, self._rules())

    async def elect_unclean(self) -> None:
        """Elect leaders for topics that allow unclean elections."""
        while self._quorum.image.leaderless:
            elected = await self._decide(lambda image: elections.elect_unclean_leaders(image, self._rules()))
            if elected < elections.ELECTIONS_PER_ROUND_MAX:
                return

    async def _decide(self, records: Callable[[Image], Iterable[object]]) -> int:
        def decision(image: Image) -> Result[int]:
            made = list(records(image))
            return Result(made, len(made))

        return await self._quorum.decide(decision)

    async def _persistently(self, work: Callable[[], Awaitable[object]]) -> None:
        """Repeat a decision until the metadata log takes it, or this node is no longer the active controller."""
        has_failed = False
        while True:
            try:
                await work()
            except ApiError as error:
                if error.code is ErrorCode.NOT_CONTROLLER:
                    raise
                if not has_failed:
                    logger.error("a duty of the controller failed and is repeated: %s", error.message)
                has_failed = True
                await asyncio.sleep(RETRY_MS / 1000)
            else:
                return

    async def _every(self, interval_ms: int, work: Callable[[], Coroutine[object, object, None]]) -> None:
        while True:
            await asyncio.sleep(interval_ms / 1000)
            await self._quietly(work())

    async def _quietly(self, work: Coroutine[Any, object, None]) -> None:
        """Run work that the next active controller would also do: losing leadership ends it silently."""
        try:
            await work
        except ApiError as error:
            if error.code is not ErrorCode.NOT_CONTROLLER:
                logger.error("a duty of the controller failed: %s", error.message)

    def _spawn(self, work: Callable[[], Coroutine[object, object, None]], name: str) -> None:
        async def run() -> None:
            await self._quietly(work())
            if self._tasks.get(name) is asyncio.current_task():
                del self._tasks[name]

        self._tasks[name] = keep_running(self._env, run, name)
