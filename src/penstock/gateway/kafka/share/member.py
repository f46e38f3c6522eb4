"""A member of a share group that takes records for the callers of a gateway, one for each that waits.

Those who wait are in a queue. As long as there are any, the member asks the leaders of the topic's partitions for as
many records as are wanted, each in turn. A leader with fewer than that is asked to say when it has more, over a
connection on which nothing else waits; that request takes nothing, so nothing is held for somebody who has gone.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from penstock.client.address import Address
from penstock.client.failures import NoAnswer
from penstock.core.share.acknowledgements import AckType
from penstock.gateway.kafka.broker_requests import RETRY_AFTER, BrokerWire, check
from penstock.gateway.kafka.share.membership import Membership, not_supported
from penstock.gateway.kafka.share.records import Taken, taken_records
from penstock.gateway.kafka.share.routes import PASSING, Delivery, ShareRoutes, TopicRoute
from penstock.gateway.web.problem import Problem
from penstock.model.errors import error_name
from penstock.wire.messages.metadata import MetadataRequest
from penstock.wire.messages.take_share_records import TakeShareRecordsRequest, TakeShareRecordsResponse

TAKE_BYTES_MAX = 1024 * 1024
ANSWER_TIMEOUT_MS = 5_000
# A leader answers after this time even if it has nothing; sooner while some partitions cannot be had.
NEWS_WAIT_MS = 10_000
SHORT_WAIT_MS = 500
# A partition that cannot be had now is asked for again after this time.
REST_S = 0.2
# While somebody waits, the topic's leaders are looked up this often.
RECHECK_S = 2.0
# How long a caller waits, whatever it asked for, until all leaders were asked once.
FIRST_LOOK_S = 15.0
# How long what nobody waits for is given back when the member stops; then locks end by themselves.
STOP_S = 2.0
# A leader that had records, but none when asked for them, is asked again after a pause that doubles.
MISS_PAUSE_S, MISS_PAUSE_S_MAX = 0.005, 0.1


class Waiter:
    """A caller that waits; `looked` is done when all leaders were asked for it once."""

    __slots__ = ("looked", "taken")

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.taken: asyncio.Future[Taken] = loop.create_future()
        self.looked: asyncio.Future[None] = loop.create_future()


class ShareMember:
    """`on_over` is called when the group has refused it; those who wait have heard why."""

    def __init__(
        self,
        wire: BrokerWire,
        routes: ShareRoutes,
        group: str,
        topic: str,
        record_bytes_max: int,
        on_over: Callable[[ShareMember], None],
    ) -> None:
        self.group = group
        self.topic = topic
        self.used_at = time.monotonic()
        self._wire = wire
        self._news_wire = wire.branch()
        self._routes = routes
        self._record_bytes_max = record_bytes_max
        self._on_over = on_over
        self._membership = Membership(wire, group, topic)
        self._reset = ""
        self._waiters: deque[Waiter] = deque()
        self._news = asyncio.Event()
        self._waits: dict[Address, asyncio.Task[None]] = {}
        self._ready: set[Address] = set()
        self._misses: dict[Address, int] = {}
        self._resting: dict[int, float] = {}
        self._releases: set[asyncio.Task[None]] = set()
        self._turn = 0
        self._was_served = False
        self._trouble = ""
        works = (self._membership.keep(), self._pump())
        self._tasks = [asyncio.create_task(work, name=f"share group {group}") for work in works]
        for task in self._tasks:
            task.add_done_callback(self._ended)

    @property
    def member_id(self) -> str:
        """Its id in the group."""
        return self._membership.member_id

    @property
    def is_waited_for(self) -> bool:
        """Whether any caller waits."""
        return bool(self._live())

    async def next(self, offset_reset: str, timeout_s: float) -> Taken | None:
        """The next record; None if there is none in time. Raises Problem."""
        self._reset = offset_reset
        self.used_at = time.monotonic()
        waiter = Waiter()
        self._waiters.append(waiter)
        self._news.set()
        try:
            await asyncio.wait((waiter.taken,), timeout=timeout_s)
            if not waiter.taken.done():
                both = (waiter.taken, waiter.looked)
                await asyncio.wait(both, timeout=FIRST_LOOK_S, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            if waiter.taken.done() and not waiter.taken.exception():
                self.hand_out(waiter.taken.result())
            raise
        finally:
            self.used_at = time.monotonic()
            if not waiter.taken.done():
                waiter.taken.cancel()
        if not waiter.taken.cancelled():
            return waiter.taken.result()
        if not waiter.looked.done():
            why = self._trouble or f"group {self.group} is not ready yet"
            raise Problem(50301, why, "try again", headers=RETRY_AFTER)
        return None

    def hand_out(self, taken: Taken) -> None:
        """To the caller that waits longest; back to the group if none does."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.taken.done():
                waiter.taken.set_result(taken)
                return
        self._settle(self.delivery(taken), False)

    def delivery(self, taken: Taken) -> Delivery:
        """What names this delivery of a record."""
        record = taken.record
        return Delivery(self.group, self.member_id, record.partition, record.offset, taken.attempt, taken.incarnation)

    async def stop(self) -> None:
        """Leave the group. Records that callers hold stay theirs."""
        tasks = [*self._tasks, *self._waits.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._releases:
            await asyncio.wait(self._releases, timeout=STOP_S)
            for release in self._releases:
                release.cancel()
        self._fail(Problem(50301, "the gateway has closed its member", "try again", headers=RETRY_AFTER))
        await self._wire.prune(self._news_wire)
        await self._membership.leave()

    async def _pump(self) -> None:
        await asyncio.shield(self._membership.joined)
        while True:
            self._news.clear()
            if not self._live():
                await self._news.wait()
                continue
            try:
                route = await self._routes.topic(self.topic)
                is_more = await self._look(route)
            except Problem as problem:
                self._fail(problem)
                continue
            if is_more:
                continue
            for waiter in self._waiters:
                if not waiter.looked.done():
                    waiter.looked.set_result(None)
            hurry = self._resting or len(route.leaders) < route.partition_count
            try:
                await asyncio.wait_for(self._news.wait(), REST_S if hurry else RECHECK_S)
            except TimeoutError:
                continue

    async def _look(self, route: TopicRoute) -> bool:
        """Take records from the leaders for those who wait; whether some leader may have more."""
        is_more = False
        self._turn += 1
        for address, partitions in self._rotated(route).items():
            wanted = len(self._live())
            if not wanted:
                return False
            if address in self._waits:
                continue
            count = await self._take(route, address, partitions, wanted)
            was_ready = address in self._ready
            self._ready.discard(address)
            self._misses[address] = self._misses.get(address, 0) + 1 if was_ready and not count else 0
            if count >= wanted:
                is_more = True
            else:
                work = self._await_news(route, address, partitions)
                self._waits[address] = asyncio.create_task(work, name=f"news for share group {self.group}")
        return is_more

    def _rotated(self, route: TopicRoute) -> Mapping[Address, Sequence[int]]:
        """The partitions by leader, beginning with others each time, without those that rest."""
        now = time.monotonic()
        self._resting = {partition: until for partition, until in self._resting.items() if until > now}
        found: dict[Address, list[int]] = {}
        partitions = [*route.leaders]
        first = self._turn % len(partitions) if partitions else 0
        for partition in partitions[first:] + partitions[:first]:
            if partition not in self._resting:
                found.setdefault(route.leaders[partition], []).append(partition)
        return found

    async def _take(self, route: TopicRoute, address: Address, partitions: Sequence[int], wanted: int) -> int:
        """Take records from a leader and hand them out; how many there were."""
        response = await self._ask(route, address, partitions, wanted, 0)
        count = 0
        for row in response.partitions if response is not None else ():
            if row.error_code or response is None:
                continue
            rows = await taken_records(self.topic, row, response.lock_ms, self._record_bytes_max)
            for offset, attempt in rows.gaps:
                gap = Delivery(self.group, self.member_id, row.partition_index, offset, attempt, row.incarnation)
                self._settle(gap, True)
            for taken in rows.records:
                self.hand_out(taken)
            count += len(rows.records) + len(rows.gaps)
        return count

    async def _await_news(self, route: TopicRoute, address: Address, partitions: Sequence[int]) -> None:
        """Ends when a leader may have records, or nobody knows."""
        try:
            misses = self._misses.get(address, 0)
            if misses > 1:
                await asyncio.sleep(min(MISS_PAUSE_S_MAX, MISS_PAUSE_S * 2**misses))
            response = await self._ask(route, address, partitions, 0, SHORT_WAIT_MS if self._resting else NEWS_WAIT_MS)
            if response is not None and any(not row.error_code for row in response.partitions):
                self._ready.add(address)
        except Problem as problem:
            self._fail(problem)
        finally:
            self._waits.pop(address, None)
            self._news.set()

    async def _ask(
        self, route: TopicRoute, address: Address, partitions: Sequence[int], wanted: int, wait_ms: int
    ) -> TakeShareRecordsResponse | None:
        """Ask a leader; None if it does not answer. Partitions with errors are left alone for a moment."""
        request = TakeShareRecordsRequest(
            self.group, self.member_id, route.topic_id, partitions, wanted, TAKE_BYTES_MAX, wait_ms, self._reset
        )
        try:
            response: TakeShareRecordsResponse = await self._news_wire.ask_at(
                address, request, timeout_ms=ANSWER_TIMEOUT_MS + wait_ms
            )
        except NoAnswer as error:
            self._rest(partitions, str(error))
            if not self._was_served and await self._answers(address):
                raise not_supported(f"{address} closes connections on TakeShareRecords") from None
            return None
        check(response.error_code, response.error_message, f"group {self.group}")
        self._was_served = True
        for row in response.partitions:
            if row.error_code:
                if row.error_code not in PASSING:
                    check(row.error_code, row.error_message, f"topic {self.topic}")
                self._rest([row.partition_index], row.error_message or error_name(row.error_code))
        return response

    async def _answers(self, address: Address) -> bool:
        """Whether a broker answers other requests."""
        return bool(await self._wire.ask_each([address], MetadataRequest([])))

    def _rest(self, partitions: Sequence[int], why: str) -> None:
        self._trouble = why
        self._routes.forget(self.topic)
        self._resting |= dict.fromkeys(partitions, time.monotonic() + REST_S)

    def _settle(self, delivery: Delivery, is_done: bool) -> None:
        task = asyncio.create_task(self._settle_quietly(delivery, is_done), name=f"settle for {self.group}")
        self._releases.add(task)
        task.add_done_callback(self._releases.discard)

    async def _settle_quietly(self, delivery: Delivery, is_done: bool) -> None:
        try:
            await self._routes.settle(self.topic, delivery, AckType.ACCEPT if is_done else AckType.RELEASE)
        except Problem:
            # Its lock ends, and it comes back.
            return

    def _live(self) -> list[Waiter]:
        self._waiters = deque(waiter for waiter in self._waiters if not waiter.taken.done())
        return [*self._waiters]

    def _fail(self, problem: BaseException) -> None:
        for waiter in self._live():
            waiter.taken.set_exception(problem)
            # Its caller may have gone.
            waiter.taken.exception()

    def _ended(self, task: asyncio.Task[None]) -> None:
        """The group has refused the member, or there is a bug; either way the next caller begins anew."""
        if task.cancelled() or (error := task.exception()) is None:
            return
        self._membership.joined.cancel()
        self._fail(error)
        self._on_over(self)
