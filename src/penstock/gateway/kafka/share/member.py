"""A member of a share group that acquires records for the callers of a gateway, one for each waiting caller.

Waiting callers are queued. While there are any, the member requests as many records as there are callers from the
leaders of the topic's partitions, one leader after the other. A leader that returned fewer gets a request that waits
until it has more, on a connection of its own. That request acquires nothing, so no record is locked for a caller that
has disconnected.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from penstock.client.address import Address
from penstock.client.failures import NoAnswer
from penstock.core.backoff import pause_after
from penstock.core.share.acknowledgements import AckType
from penstock.gateway.kafka.broker_requests import RETRY_AFTER, BrokerWire, check
from penstock.gateway.kafka.share.membership import Membership, not_supported
from penstock.gateway.kafka.share.records import Taken, taken_records
from penstock.gateway.kafka.share.routes import PASSING, RoutedDelivery, ShareRoutes, TopicRoute
from penstock.gateway.web.problem import Problem
from penstock.model.errors import error_name
from penstock.wire.messages.metadata import MetadataRequest
from penstock.wire.messages.take_share_records import TakeShareRecordsRequest, TakeShareRecordsResponse

TAKE_BYTES_MAX = 1024 * 1024
ANSWER_TIMEOUT_MS = 5_000
# A leader responds after this time even if it has no records; sooner while some partitions are unavailable.
AVAILABILITY_WAIT_MS = 10_000
SHORT_AVAILABILITY_WAIT_MS = 500
# A partition that is unavailable is requested again after this time.
PARTITION_BACKOFF_S = 0.2
# While a caller waits, the topic's leaders are looked up this often.
RECHECK_S = 2.0
# A caller waits up to this long, whatever its timeout, until all leaders were polled once.
FIRST_POLL_WAIT_S = 15.0
# How long to wait for releases of undelivered records when the member stops; after that their locks expire.
RELEASE_TIMEOUT_S = 2.0
# A leader that reported records but returned none is polled again after a backoff that doubles.
EMPTY_FETCH_BACKOFF_S, EMPTY_FETCH_BACKOFF_S_MAX = 0.005, 0.1


class Waiter:
    """A waiting caller; `polled` is done when all leaders were polled for it once."""

    __slots__ = ("polled", "taken")

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.taken: asyncio.Future[Taken] = loop.create_future()
        self.polled: asyncio.Future[None] = loop.create_future()


class ShareMember:
    """One member. `on_refused` is called after the group has refused it and the waiting callers got the reason."""

    def __init__(
        self,
        wire: BrokerWire,
        routes: ShareRoutes,
        group: str,
        topic: str,
        record_bytes_max: int,
        on_refused: Callable[[ShareMember], None],
    ) -> None:
        self.group = group
        self.topic = topic
        self.used_at = time.monotonic()
        self._wire = wire
        self._fetch_wire = wire.branch()
        self._routes = routes
        self._record_bytes_max = record_bytes_max
        self._on_refused = on_refused
        self._membership = Membership(wire, group, topic)
        self._reset = ""
        self._waiters: deque[Waiter] = deque()
        self._has_changed = asyncio.Event()
        self._waits: dict[Address, asyncio.Task[None]] = {}
        self._ready: set[Address] = set()
        self._empty_fetches: dict[Address, int] = {}
        self._backing_off: dict[int, float] = {}
        self._releases: set[asyncio.Task[None]] = set()
        self._rotation = 0
        self._was_served = False
        self._last_error = ""
        works = (self._membership.keep(), self._pump())
        self._tasks = [asyncio.create_task(work, name=f"share group {group}") for work in works]
        for task in self._tasks:
            task.add_done_callback(self._on_task_done)

    @property
    def member_id(self) -> str:
        """The member's id in the group."""
        return self._membership.member_id

    @property
    def is_waited_for(self) -> bool:
        """Whether any caller waits."""
        return bool(self._open_waiters())

    async def next(self, offset_reset: str, timeout_s: float) -> Taken | None:
        """The next record; None if there is none in time. Raises Problem."""
        self._reset = offset_reset
        self.used_at = time.monotonic()
        waiter = Waiter()
        self._waiters.append(waiter)
        self._has_changed.set()
        try:
            await asyncio.wait((waiter.taken,), timeout=timeout_s)
            if not waiter.taken.done():
                both = (waiter.taken, waiter.polled)
                await asyncio.wait(both, timeout=FIRST_POLL_WAIT_S, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            if waiter.taken.done() and not waiter.taken.exception():
                self.deliver(waiter.taken.result())
            raise
        finally:
            self.used_at = time.monotonic()
            if not waiter.taken.done():
                waiter.taken.cancel()
        if not waiter.taken.cancelled():
            return waiter.taken.result()
        if not waiter.polled.done():
            why = self._last_error or f"group {self.group} is not ready yet"
            raise Problem(50301, why, "try again", headers=RETRY_AFTER)
        return None

    def deliver(self, taken: Taken) -> None:
        """Give a record to the caller that has waited longest; release it if none waits."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.taken.done():
                waiter.taken.set_result(taken)
                return
        self._settle(self.delivery(taken), False)

    def delivery(self, taken: Taken) -> RoutedDelivery:
        """The key of this delivery of a record."""
        record = taken.record
        return RoutedDelivery(
            self.group, self.member_id, record.partition, record.offset, taken.attempt, taken.incarnation
        )

    async def stop(self) -> None:
        """Leave the group. Records that were delivered to callers remain locked for them."""
        tasks = [*self._tasks, *self._waits.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._releases:
            await asyncio.wait(self._releases, timeout=RELEASE_TIMEOUT_S)
            for release in self._releases:
                release.cancel()
        self._fail(Problem(50301, "the gateway has closed its member", "try again", headers=RETRY_AFTER))
        await self._wire.prune(self._fetch_wire)
        await self._membership.leave()

    async def _pump(self) -> None:
        await asyncio.shield(self._membership.joined)
        while True:
            self._has_changed.clear()
            if not self._open_waiters():
                await self._has_changed.wait()
                continue
            try:
                route = await self._routes.topic(self.topic)
                is_more = await self._poll_leaders(route)
            except Problem as problem:
                self._fail(problem)
                continue
            if is_more:
                continue
            for waiter in self._waiters:
                if not waiter.polled.done():
                    waiter.polled.set_result(None)
            is_incomplete = self._backing_off or len(route.leaders) < route.partition_count
            try:
                await asyncio.wait_for(self._has_changed.wait(), PARTITION_BACKOFF_S if is_incomplete else RECHECK_S)
            except TimeoutError:
                continue

    async def _poll_leaders(self, route: TopicRoute) -> bool:
        """Acquire records from the leaders for waiting callers; returns whether a leader may have more."""
        is_more = False
        self._rotation += 1
        for address, partitions in self._rotated(route).items():
            wanted = len(self._open_waiters())
            if not wanted:
                return False
            if address in self._waits:
                continue
            count = await self._take(route, address, partitions, wanted)
            was_ready = address in self._ready
            self._ready.discard(address)
            self._empty_fetches[address] = self._empty_fetches.get(address, 0) + 1 if was_ready and not count else 0
            if count >= wanted:
                is_more = True
            else:
                work = self._await_records(route, address, partitions)
                self._waits[address] = asyncio.create_task(work, name=f"wait of share group {self.group}")
        return is_more

    def _rotated(self, route: TopicRoute) -> Mapping[Address, Sequence[int]]:
        """The partitions by leader, in rotating order, without those that back off."""
        now = time.monotonic()
        self._backing_off = {partition: until for partition, until in self._backing_off.items() if until > now}
        found: dict[Address, list[int]] = {}
        partitions = [*route.leaders]
        first = self._rotation % len(partitions) if partitions else 0
        for partition in partitions[first:] + partitions[:first]:
            if partition not in self._backing_off:
                found.setdefault(route.leaders[partition], []).append(partition)
        return found

    async def _take(self, route: TopicRoute, address: Address, partitions: Sequence[int], wanted: int) -> int:
        """Acquire records from a leader and deliver them; returns how many there were."""
        response = await self._fetch(route, address, partitions, wanted, 0)
        count = 0
        for row in response.partitions if response is not None else ():
            if row.error_code or response is None:
                continue
            rows = await taken_records(self.topic, row, response.lock_ms, self._record_bytes_max)
            for offset, attempt in rows.gaps:
                gap = RoutedDelivery(self.group, self.member_id, row.partition_index, offset, attempt, row.incarnation)
                self._settle(gap, True)
            for taken in rows.records:
                self.deliver(taken)
            count += len(rows.records) + len(rows.gaps)
        return count

    async def _await_records(self, route: TopicRoute, address: Address, partitions: Sequence[int]) -> None:
        """Return when a leader may have records, or does not respond."""
        try:
            empty_fetches = self._empty_fetches.get(address, 0)
            if empty_fetches > 1:
                await asyncio.sleep(pause_after(empty_fetches + 1, EMPTY_FETCH_BACKOFF_S, EMPTY_FETCH_BACKOFF_S_MAX))
            response = await self._fetch(
                route, address, partitions, 0, SHORT_AVAILABILITY_WAIT_MS if self._backing_off else AVAILABILITY_WAIT_MS
            )
            if response is not None and any(not row.error_code for row in response.partitions):
                self._ready.add(address)
        except Problem as problem:
            self._fail(problem)
        finally:
            self._waits.pop(address, None)
            self._has_changed.set()

    async def _fetch(
        self, route: TopicRoute, address: Address, partitions: Sequence[int], wanted: int, wait_ms: int
    ) -> TakeShareRecordsResponse | None:
        """Send a leader a request; None if it does not respond. Partitions with errors back off."""
        request = TakeShareRecordsRequest(
            self.group, self.member_id, route.topic_id, partitions, wanted, TAKE_BYTES_MAX, wait_ms, self._reset
        )
        try:
            response: TakeShareRecordsResponse = await self._fetch_wire.ask_at(
                address, request, timeout_ms=ANSWER_TIMEOUT_MS + wait_ms
            )
        except NoAnswer as error:
            self._back_off(partitions, str(error))
            if not self._was_served and await self._answers(address):
                raise not_supported(f"{address} closes connections on TakeShareRecords") from None
            return None
        check(response.error_code, response.error_message, f"group {self.group}")
        self._was_served = True
        for row in response.partitions:
            if row.error_code:
                if row.error_code not in PASSING:
                    check(row.error_code, row.error_message, f"topic {self.topic}")
                self._back_off([row.partition_index], row.error_message or error_name(row.error_code))
        return response

    async def _answers(self, address: Address) -> bool:
        """Whether a broker answers other requests."""
        return bool(await self._wire.ask_each([address], MetadataRequest([])))

    def _back_off(self, partitions: Sequence[int], why: str) -> None:
        self._last_error = why
        self._routes.forget(self.topic)
        self._backing_off |= dict.fromkeys(partitions, time.monotonic() + PARTITION_BACKOFF_S)

    def _settle(self, delivery: RoutedDelivery, is_done: bool) -> None:
        task = asyncio.create_task(self._settle_quietly(delivery, is_done), name=f"settle for {self.group}")
        self._releases.add(task)
        task.add_done_callback(self._releases.discard)

    async def _settle_quietly(self, delivery: RoutedDelivery, is_done: bool) -> None:
        try:
            await self._routes.settle(self.topic, delivery, AckType.ACCEPT if is_done else AckType.RELEASE)
        except Problem:
            # Its lock expires, and the record is delivered again.
            return

    def _open_waiters(self) -> list[Waiter]:
        self._waiters = deque(waiter for waiter in self._waiters if not waiter.taken.done())
        return [*self._waiters]

    def _fail(self, problem: BaseException) -> None:
        for waiter in self._open_waiters():
            waiter.taken.set_exception(problem)
            # Marked as retrieved: its caller may have disconnected.
            waiter.taken.exception()

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        """Handle a refusal by the group or a bug; either way the next caller gets a new member."""
        if task.cancelled() or (error := task.exception()) is None:
            return
        self._membership.joined.cancel()
        self._fail(error)
        self._on_refused(self)
