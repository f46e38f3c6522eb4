"""Whether this broker still leads a partition, for answers that do harm if another one has replaced it unheard.

What is appended needs no such check: in-sync replicas confirm it. What a leader or coordinator answers from memory
does. Two ways to check:

- `is_sure` looks at what arrived lately: the controller answered that this broker knows everything, or all brokers that
  could be elected in its place still follow it. One that leads does not. A broker that is cut off notices within a
  second, which is cheap enough to check for every fetch.
- `confirm` checks anew: each of those brokers fetches the partition with a request that it sent after the call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from penstock.runtime.env import Env
from penstock.runtime.replication.partition import Partition

# Idle followers fetch at least twice in this time.
HEARD_MS = 1_000
# A follower that does not come by then is stopped, cut off, or follows another.
CONFIRM_MS = 1_000


class FollowerSession(Protocol):
    """A follower's fetch session that has the partition: how many fetches came, and when the last one did."""

    @property
    def replica(self) -> int: ...

    @property
    def fetch_count(self) -> int: ...

    @property
    def fetched_ms(self) -> int: ...

    @property
    def is_parked(self) -> bool: ...


class Followers(Protocol):
    """What serves them."""

    def watches(self, partition: Partition) -> Sequence[FollowerSession]: ...

    def invite(self, partition: Partition) -> None: ...

    async def next_fetch(self, timeout_ms: int) -> None: ...


class Leadership:
    """Answers for this broker. `is_current` returns whether the controller answered lately."""

    def __init__(self, env: Env, is_current: Callable[[], bool], followers: Followers) -> None:
        self._env = env
        self._is_current = is_current
        self._followers = followers
        # Questions under way.
        self._asked: dict[Partition, asyncio.Future[bool]] = {}

    def is_sure(self, partition: Partition) -> bool:
        """Whether no other broker can have led this partition for more than a second."""
        leading = partition.leading
        if leading is None or self._is_current():
            return leading is not None
        since_ms = self._env.monotonic_ms() - HEARD_MS
        heard = {watch.replica for watch in self._followers.watches(partition) if watch.fetched_ms >= since_ms}
        return leading.rivals <= heard

    async def confirm(self, partition: Partition) -> bool:
        """Whether this broker leads at some time after the call; False if that cannot be found out soon."""
        earlier = self._asked.get(partition)
        if earlier is not None:
            await asyncio.wait((earlier,))
        # One question serves all who came before it.
        asked = self._asked.get(partition)
        if asked is None:
            asked = self._asked[partition] = asyncio.get_running_loop().create_future()
            self._env.spawn(self._ask(partition, asked), f"confirm that {partition.name} is led here")
        return await asyncio.shield(asked)

    async def _ask(self, partition: Partition, asked: asyncio.Future[bool]) -> None:
        try:
            asked.set_result(await self._is_confirmed(partition))
        finally:
            del self._asked[partition]
            if not asked.done():
                asked.set_result(False)

    async def _is_confirmed(self, partition: Partition) -> bool:
        epoch, deadline_ms = partition.leader_epoch, self._env.monotonic_ms() + CONFIRM_MS
        # A fetch that comes next may be under way; one that waits for records is answered, and what follows it is new.
        known = self._followers.watches(partition)
        enough = {watch: watch.fetch_count + (1 if watch.is_parked else 2) for watch in known}
        while partition.leading is not None and partition.leader_epoch == epoch:
            watches = self._followers.watches(partition)
            for watch in watches:
                # The request that brought it may have been sent before the question.
                enough.setdefault(watch, watch.fetch_count + 1)
            if partition.leading.rivals <= {watch.replica for watch in watches if watch.fetch_count >= enough[watch]}:
                return True
            left_ms = deadline_ms - self._env.monotonic_ms()
            if left_ms <= 0:
                break
            self._followers.invite(partition)
            await self._followers.next_fetch(left_ms)
        return False
