"""This broker's transaction coordinator: finds the shard of a transactional id, calls it, and completes decided
transactions.

The shard returns markers as the reply to a token that is created here, so they arrive when the decision is committed.
They are sent to the partitions once everything in the coordinator's log is committed, which matters right after
loading: a record of the former leader that no other replica has yet decides nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from functools import partial

from penstock.config.node import NodeSettings
from penstock.core.contract import Caller, ProducerIdentity, Token
from penstock.core.metadata.image import Image
from penstock.core.metadata.topics import NewTopic
from penstock.core.transaction.contract import Markers, TransactionSettings
from penstock.core.transaction.shard import BUMP_SINCE, TransactionShard
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import NO_PRODUCER_ID, TopicPartition
from penstock.runtime.controller.client import TopicCreator
from penstock.runtime.coordinator.coordinated_topic import CoordinatedTopic
from penstock.runtime.coordinator.counters import TransactionCounters
from penstock.runtime.coordinator.internal_topic import InternalTopic
from penstock.runtime.coordinator.markers import TransactionMarkers
from penstock.runtime.coordinator.shard_host import ShardHost
from penstock.runtime.coordinator.shards import Coordinator
from penstock.runtime.env import Env
from penstock.runtime.keep_running import keep_running
from penstock.runtime.replication.partitions import Partitions
from penstock.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from penstock.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

TRANSACTION_TOPIC = "__transaction_state"
TRANSACTION_VERSION = "transaction.version"

# The pause before checking again whether a log that could not be committed is.
SETTLE_PAUSE_S = 0.2
# Requests that wait for a transaction's end check this often, whether or not markers are reported.
LOOK_AGAIN_MS = 20


class Transactions(CoordinatedTopic[TransactionShard]):
    """The operations that handlers call. `take_producer_id` returns ids that were never used."""

    def __init__(
        self,
        env: Env,
        image: Image,
        topics: TopicCreator,
        partitions: Partitions,
        take_producer_id: Callable[[], Awaitable[int]],
        markers: TransactionMarkers,
        settings: NodeSettings,
    ) -> None:
        self._image = image
        self._partitions = partitions
        self._take_producer_id = take_producer_id
        self._markers = markers
        self._settings = settings
        wanted = NewTopic(
            TRANSACTION_TOPIC,
            settings.transaction_state_log_num_partitions,
            settings.transaction_state_log_replication_factor,
            configs={
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(settings.transaction_state_log_min_isr),
                "segment.bytes": str(settings.transaction_state_log_segment_bytes),
                "unclean.leader.election.enable": "false",
            },
        )
        # Completes when a transaction has got another marker, for requests that wait for its end.
        self._ending: dict[str, asyncio.Future[None]] = {}
        self._shard_settings = TransactionSettings(
            max_timeout_ms=settings.transaction_max_timeout_ms,
            transactional_id_expiration_ms=settings.transactional_id_expiration_ms,
        )
        self.counters = TransactionCounters()
        coordinator = Coordinator(env, "transaction", TRANSACTION_TOPIC, self._make_shard, self.counters.count)
        topic = InternalTopic(image, topics, wanted, "transaction.state.log.replication.factor")
        super().__init__(env, topic, coordinator, partitions, "transactions")
        interval_ms = settings.transaction_remove_expired_transaction_cleanup_interval_ms
        keep_running(env, partial(self._repeat, interval_ms, TransactionShard.expire), "transactional id expiry")

    async def init_producer_id(self, request: InitProducerIdRequest, caller: Caller) -> InitProducerIdResponse:
        """Start a producer with a transactional id; raises ApiError if the coordinator is elsewhere."""
        transactional_id = request.transactional_id or ""
        fresh = await self._fresh_producer_id(
            lambda shard: shard.init_needs_producer_id(transactional_id), transactional_id
        )
        response: InitProducerIdResponse = await self.ask(
            transactional_id,
            lambda shard, token, now_ms: shard.init_producer_id(request, caller, token, now_ms, fresh),
        )
        return response

    async def add_partitions(
        self, transactional_id: str, producer: ProducerIdentity, partitions: Collection[TopicPartition]
    ) -> ErrorCode:
        """Add partitions to a transaction of version 1; raises ApiError if the coordinator is elsewhere.

        A client that continues right after a commit finds the previous transaction waiting for its markers. It would
        retry after a pause; waiting here until they are written is quicker.
        """
        deadline_ms = self._env.monotonic_ms() + self._settings.add_partitions_to_txn_retry_backoff_max_ms
        while True:
            error: ErrorCode = await self.ask(
                transactional_id,
                lambda shard, token, now_ms: shard.add_partitions(
                    transactional_id, producer, partitions, 0, token, now_ms
                ),
            )
            left_ms = deadline_ms - self._env.monotonic_ms()
            if error is not ErrorCode.CONCURRENT_TRANSACTIONS or left_ms <= 0:
                return error
            ended = self._ending.setdefault(transactional_id, asyncio.get_running_loop().create_future())
            await asyncio.wait((ended,), timeout=min(left_ms, LOOK_AGAIN_MS) / 1000)
            self._ending.pop(transactional_id, None)

    async def end_txn(self, request: EndTxnRequest, caller: Caller) -> EndTxnResponse:
        """Commit or abort; raises ApiError if the coordinator is elsewhere."""
        transactional_id = request.transactional_id
        bumps = caller.api_version >= BUMP_SINCE
        fresh = await self._fresh_producer_id(
            lambda shard: bumps and shard.end_needs_producer_id(transactional_id), transactional_id
        )
        response: EndTxnResponse = await self.ask(
            transactional_id, lambda shard, token, now_ms: shard.end_txn(request, caller, token, now_ms, fresh)
        )
        return response

    async def _fresh_producer_id(self, is_needed: Callable[[TransactionShard], bool], transactional_id: str) -> int:
        """An id if one is needed; if it returns none, none is needed until the loop's next turn."""
        if not is_needed(self._host(transactional_id).shard):
            return NO_PRODUCER_ID
        # It may no longer be needed when it arrives; there are plenty of ids.
        return await self._take_producer_id()

    def _make_shard(self) -> TransactionShard:
        def marker_token() -> Token:
            token: asyncio.Future[Markers] = asyncio.get_running_loop().create_future()
            token.add_done_callback(lambda due: self._decided(shard, due))
            return token

        shard = TransactionShard(self._shard_settings, self._coordinator_epoch, self._cluster_version, marker_token)
        return shard

    def _coordinator_epoch(self, transactional_id: str) -> int:
        partition = self._partitions.get(TRANSACTION_TOPIC, self._topic.index_of(transactional_id))
        return -1 if partition is None else partition.leader_epoch

    def _cluster_version(self) -> int:
        return self._image.features.get(TRANSACTION_VERSION, 0)

    def _decided(self, shard: TransactionShard, due: asyncio.Future[Markers]) -> None:
        """Markers are due, unless their decision could not be appended."""
        if not due.cancelled() and due.exception() is None:
            self._send_when_settled(shard, due.result())

    def _send_when_settled(self, shard: TransactionShard, markers: Markers) -> None:
        host = self._host_of(shard, markers)
        if host is None:
            return
        settled = host.settled()
        if settled is None:
            self._send(shard, markers)
        else:
            settled.add_done_callback(lambda done: self._settled(shard, markers, done))

    def _settled(self, shard: TransactionShard, markers: Markers, done: asyncio.Future[None]) -> None:
        if done.cancelled():
            return
        if done.exception() is None:
            self._send(shard, markers)
        else:
            # Too few replicas are in sync, or this broker has lost leadership and is about to unload the shard.
            loop = asyncio.get_running_loop()
            loop.call_later(SETTLE_PAUSE_S, self._send_when_settled, shard, markers)

    def _send(self, shard: TransactionShard, markers: Markers) -> None:
        def report(partitions: list[TopicPartition]) -> None:
            host = self._host_of(shard, markers)
            if host is not None:
                host.perform(shard.markers_written(markers, partitions, self._env.now_ms()))
                ended = self._ending.pop(markers.transactional_id, None)
                if ended is not None:
                    ended.set_result(None)

        self._markers.send(markers, report, lambda: self._host_of(shard, markers) is not None)

    def _host_of(self, shard: TransactionShard, markers: Markers) -> ShardHost[TransactionShard] | None:
        """The host, while it still has the shard that made the decision."""
        try:
            host = self._host(markers.transactional_id)
        except ApiError:
            return None
        return host if host.shard is shard else None
