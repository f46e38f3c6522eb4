"""What all coordinators do with their topic: find the shard of a key, call it, and host shards on the leader."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from penstock.core.contract import Effects, Token
from penstock.core.metadata.image import PartitionState
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.coordinator.internal_topic import InternalTopic
from penstock.runtime.coordinator.shard_host import FINAL, ShardHost, ShardT, as_coordinator_error, is_final
from penstock.runtime.coordinator.shards import Coordinator
from penstock.runtime.env import Env
from penstock.runtime.replication.partition import Partition
from penstock.runtime.replication.partitions import Partitions

# The longest string of a record.
KEY_BYTES_MAX = 2**15 - 1

T = TypeVar("T")


class CoordinatedTopic(Generic[ShardT]):
    """A key is a group's name or a transactional id; `plural` is what messages call them."""

    def __init__(
        self,
        env: Env,
        topic: InternalTopic,
        coordinator: Coordinator[ShardT],
        partitions: Partitions,
        plural: str,
    ) -> None:
        self._env = env
        self._topic = topic
        self.coordinator = coordinator
        self._plural = plural

        async def confirm(partition: Partition) -> bool:
            return partitions.leadership is None or await partitions.leadership.confirm(partition)

        coordinator.confirm = confirm
        for partition in partitions:
            coordinator.take(partition)
        partitions.on_leader(coordinator.take)
        partitions.on_resigned(coordinator.leave)

    async def leader_of(self, key: str) -> PartitionState:
        """The partition that a key belongs to; creates the topic on first use."""
        return await self._topic.leader_of(key)

    def _host(self, key: str) -> ShardHost[ShardT]:
        if len(key) > KEY_BYTES_MAX or (not key.isascii() and len(key.encode(errors="replace")) > KEY_BYTES_MAX):
            # Its records cannot be written, and what a shard remembers for them would never be forgotten.
            text = f"{self._plural} have names of at most {KEY_BYTES_MAX} bytes"
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, text)
        return self.coordinator.host(self._topic.index_of(key))

    def ask(
        self, key: str, question: Callable[[ShardT, Token, int], Effects], *, gather: bool = False
    ) -> asyncio.Future[Any]:
        """Send a request to a key's shard; completes when it is answered and its changes are committed.

        With `gather` that may take a little longer, so that more is written in one batch.
        """
        host = self._host(key)
        answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        host.perform(question(host.shard, answer, self._env.now_ms()), gather=gather)
        return answer

    async def read(self, key: str, query: Callable[[ShardT], T]) -> T:
        """Look something up; the result contains nothing that could still be lost.

        Like the answers of `ask`, one that makes clients give up comes only from a broker that surely leads; another
        raises NOT_COORDINATOR.
        """
        host = self._host(key)
        try:
            result = query(host.shard)
        except ApiError as error:
            # What is not found may have been deleted by a record that could still be lost.
            await _until_settled(host)
            if error.code in FINAL:
                await host.confirm()
            raise
        await _until_settled(host)
        if is_final(result):
            await host.confirm()
        return result

    async def read_all(self, query: Callable[[ShardT], Sequence[T]]) -> list[T]:
        """Look something up in every shard here, as `read` does in one; raises while one is being loaded."""
        if self.coordinator.is_loading:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{self._plural} are being loaded")
        found = [(host, query(host.shard)) for host in self.coordinator.hosts()]
        for host, _ in found:
            await _until_settled(host)
        return [row for _, rows in found for row in rows]

    def close(self) -> None:
        """Stop coordinating: waiting requests fail with NOT_COORDINATOR, and continue on the next coordinator."""
        self.coordinator.close()

    async def _repeat(self, interval_ms: int, work: Callable[[ShardT, int], Iterable[Effects]]) -> None:
        """Run `work` on every shard at an interval; after each piece of it others get their turn."""
        while True:
            await asyncio.sleep(interval_ms / 1000)
            for host in self.coordinator.hosts():
                for effects in work(host.shard, self._env.now_ms()):
                    host.perform(effects)
                    await asyncio.sleep(0)
                    if not host.is_loaded:
                        break


async def _until_settled(host: ShardHost[Any]) -> None:
    """Wait until all decisions so far are committed; raises a coordinator's error if they may not be."""
    settled = host.settled()
    if settled is None:
        return
    try:
        await settled
    except ApiError as error:
        raise as_coordinator_error(error) from error
