"""The running registry: a state that follows the topic, and writes that wait until they are accepted."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from confluent_kafka import KafkaException

from penstock.core.backoff import Backoff
from penstock.gateway.kafka.broker_requests import BrokerWire
from penstock.gateway.kafka.delivery import QueueFull
from penstock.gateway.kafka.topic_follower import ensure_topic
from penstock.gateway.registry import errors
from penstock.gateway.registry.analysis import Analysis, AnalysisRequest, analyze
from penstock.gateway.registry.analysis_cache import AnalysisCache, AnalysisMissing
from penstock.gateway.registry.decisions import Decision
from penstock.gateway.registry.log import TOPIC, SchemaLog
from penstock.gateway.registry.ordering import OrderedRecord
from penstock.gateway.registry.records import RegistryRecord, decode_record, is_readable
from penstock.gateway.registry.state import RegistryState
from penstock.gateway.work.pool import WorkerPool, WorkFailed

log = logging.getLogger(__name__)

WRITE_TIMEOUT_S = 15.0
# Writers that conflict wait a random part of this backoff, which doubles each time, so that one of them succeeds.
CONFLICT_BACKOFF_S, CONFLICT_BACKOFF_S_MAX = 0.004, 0.5
START_TIMEOUT_S = 60.0
REPAIR_DELAY_S = (3.0, 8.0)
TOPIC_CONFIG = {
    "cleanup.policy": "compact",
    # A record that does not count is repaired within seconds after its writer or another gateway read it. Compaction
    # must not run before that, not even if every gateway was down for a while.
    "min.compaction.lag.ms": str(24 * 60 * 60 * 1000),
}

# A decision needs two or three; more are needed only if the state keeps changing meanwhile.
ANALYSES_MAX = 20

Result = TypeVar("Result")
Decide = Callable[[RegistryState], Decision]


class Registry:
    """The registry that the HTTP operations use. `state` is for reading; changes go through `write`."""

    def __init__(
        self,
        client_settings: dict[str, Any],
        workers: WorkerPool,
        analyses: AnalysisCache | None = None,
        random_source: random.Random | None = None,
    ) -> None:
        self.state = RegistryState(analyses)
        self._workers = workers
        self._analyzing: dict[AnalysisRequest, asyncio.Future[Analysis]] = {}
        self._random = random_source or random.Random()
        self._log = SchemaLog(client_settings, self._apply)
        self._writing = asyncio.Lock()
        self._repair: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read the topic, which must exist, to its end."""
        async with asyncio.timeout(START_TIMEOUT_S):
            await self._log.start()
        self._repair = asyncio.create_task(self._repair_forever(), name="schemas-repair")

    async def stop(self) -> None:
        """Stop following the topic."""
        if self._repair is not None:
            self._repair.cancel()
            await asyncio.gather(self._repair, return_exceptions=True)
        await self._log.stop()

    async def write(self, decide: Decide) -> Any:
        """Execute a change; returns the decision's answer once its records count.

        If another gateway wrote in between, the decision is made again from the newer state. Schemas that it depends on
        are analyzed beforehand, so that no other writer waits for that.
        """
        return await self.with_analyses(partial(self._write_in_turn, decide))

    async def with_analyses(self, work: Callable[[], Awaitable[Result]]) -> Result:
        """Call a function that may raise AnalysisMissing; it is called again after each missing analysis."""
        for _ in range(ANALYSES_MAX):
            try:
                return await work()
            except AnalysisMissing as missing:
                request = missing.request
            try:
                self.state.analyses.learn(request, await self._analysis(request))
            except WorkFailed as failure:
                raise errors.too_laborious(failure.reason, failure.fix) from None
        raise errors.store_failed("the schemas it depends on kept changing")

    async def _analysis(self, request: AnalysisRequest) -> Analysis:
        """A worker's analysis; concurrent callers with the same request share it."""
        analyzing = self._analyzing.get(request)
        if analyzing is None:
            analyzing = self._analyzing[request] = asyncio.ensure_future(self._workers.run(analyze, request))
            analyzing.add_done_callback(lambda _: self._analyzing.pop(request, None))
        return await asyncio.shield(analyzing)

    async def _write_in_turn(self, decide: Decide) -> object:
        async with self._writing:
            try:
                async with asyncio.timeout(WRITE_TIMEOUT_S):
                    return await self._write(decide)
            except TimeoutError:
                raise errors.timed_out("Write to the Kafka store") from None
            except QueueFull:
                raise errors.store_failed("too many writes are waiting") from None
            except KafkaException as error:
                raise errors.store_failed(error.args[0].str()) from None

    async def _write(self, decide: Decide) -> object:
        backoff = Backoff(CONFLICT_BACKOFF_S, CONFLICT_BACKOFF_S_MAX)
        while True:
            decision = decide(self.state)
            if not all(map(is_readable, decision.records)):
                raise errors.not_storable()
            if not decision.records or await self._append(decision.records):
                return decision.answer
            await self._log.repair()
            await asyncio.sleep(self._random.uniform(0, backoff.failed()))

    async def _append(self, records: Sequence[RegistryRecord]) -> bool:
        return await self._log.append([(record.key_bytes(), record.value_bytes()) for record in records])

    def _apply(self, entry: OrderedRecord, counts: bool) -> None:
        record = decode_record(entry.key, entry.value)
        if counts and record is not None:
            self.state.apply(record, entry.timestamp_ms)

    async def _repair_forever(self) -> None:
        """Repair keys that a gateway left stale because it died after writing a record that does not count."""
        while True:
            before = set(self._log.stale_keys)
            await asyncio.sleep(self._random.uniform(*REPAIR_DELAY_S))
            if before & set(self._log.stale_keys):
                async with self._writing:
                    try:
                        async with asyncio.timeout(WRITE_TIMEOUT_S):
                            await self._log.repair()
                    except (TimeoutError, KafkaException, QueueFull) as error:
                        log.warning("rewriting stale keys of %s failed, retrying: %s", TOPIC, error)


async def ensure_schemas(brokers: BrokerWire) -> None:
    """Create `_schemas` unless it exists."""
    partitions = await ensure_topic(brokers, TOPIC, TOPIC_CONFIG)
    if partitions != 1:
        raise RuntimeError(f"topic {TOPIC} has {partitions} partitions, but must have exactly one")
