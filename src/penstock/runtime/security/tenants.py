"""Keeps tenants within their storage: queries what the other brokers lead, and refuses batches beyond the limit.

As long as there are no tenants no query is sent, and a produce costs one look at an empty table.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from penstock.core.metadata.tenants import LIMITS, TenantLimits, tenant_usage, tenants
from penstock.core.security.quotas import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE
from penstock.core.security.tenant_storage import Led, StorageMeter
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.brokers import Brokers
from penstock.runtime.env import Env
from penstock.runtime.keep_running import keep_running
from penstock.runtime.peer import PeerLost, PeerUnsupported
from penstock.runtime.replication.partition import Partition
from penstock.runtime.replication.partitions import Partitions
from penstock.runtime.security.client_quotas import ClientQuotas
from penstock.storage.files import StorageError
from penstock.storage.log import Log
from penstock.wire.messages.describe_tenants import DescribeTenantsRequest, DescribeTenantsResponse
from penstock.wire.messages.metadata_records import ClientQuotaRecord

# Partitions that are looked at before other work gets its turn.
PARTITIONS_PER_TURN = 128
# An own report of this age is good enough for others.
FRESH_MS = 250

logger = logging.getLogger("penstock.tenants")


class Tenants:
    """The tenants of the cluster, as this broker knows them."""

    def __init__(
        self,
        env: Env,
        brokers: Brokers,
        partitions: Partitions,
        quotas: ClientQuotas,
        interval_ms: int,
        in_tier_bytes: Callable[[Partition], int] = lambda _: 0,
    ) -> None:
        """`interval_ms` is penstock.tenant.usage.interval.ms; `in_tier_bytes` what a partition has in no file here."""
        self._env = env
        self._brokers = brokers
        self._image = partitions.image
        self._partitions = partitions
        self._quotas = quotas
        self._interval_ms = interval_ms
        self._in_tier_bytes = in_tier_bytes
        # The last report of every broker that is not fenced.
        self._reports: dict[int, Mapping[str, Led]] = {}
        self._own: Mapping[str, Led] = {}
        self._own_at_ms: int | None = None
        self._asking: asyncio.Task[None] | None = None
        self.limits: dict[str, TenantLimits] = {}
        # Looked at by every produce.
        self.meters: dict[str, StorageMeter] = {}

    def start(self) -> None:
        """Begin with the tenants of the image."""
        self._read()

    def follow(self, records: Sequence[object]) -> None:
        """Apply the metadata log."""
        if any(isinstance(record, ClientQuotaRecord) and record.key in LIMITS for record in records):
            self._read()

    def _read(self) -> None:
        self.limits = tenants(self._image)
        meters = {}
        for name, limits in self.limits.items():
            meter = meters[name] = self.meters.get(name) or StorageMeter(None)
            meter.limit_bytes = limits.storage_bytes
        self.meters = meters
        if self.limits and self._asking is None:
            self._asking = keep_running(self._env, self._ask_repeatedly, "storage of tenants")

    def check_room(self, topic: str, size_bytes: int) -> None:
        """Count a batch that is to be appended; raises POLICY_VIOLATION if its tenant has no room for it."""
        name, dot, _ = topic.partition(".")
        meter = self.meters.get(name) if dot else None
        if meter is not None and not meter.admit(size_bytes):
            raise ApiError(
                ErrorCode.POLICY_VIOLATION,
                f"tenant {name} may hold {meter.limit_bytes:,} bytes (tenant_storage_bytes) and holds "
                f"{meter.used_bytes:,}: delete records or topics, shorten their retention, or have an administrator "
                "raise the limit",
            )

    def total(self, name: str) -> Led:
        """What the whole cluster holds of a tenant, as of the last round of questions."""
        known = [report[name] for report in self._reports.values() if name in report]
        return Led(*map(sum, zip(*known, strict=True))) if known else Led()

    async def own(self) -> Mapping[str, Led]:
        """What this broker leads of each tenant."""
        now_ms = self._env.monotonic_ms()
        if self._own_at_ms is None or now_ms - self._own_at_ms >= FRESH_MS:
            self._own = {name: await self._measure(name) for name in list(self.limits)}
            self._own_at_ms = now_ms
        return self._own

    async def _measure(self, name: str) -> Led:
        count = size_bytes = looked_at = 0
        logs: list[Log] = []
        for topic in list(self._image.topics_by_prefix.get(name, {}).values()):
            for index in range(len(topic.partitions)):
                partition = self._partitions.get(topic.name, index)
                if partition is not None and partition.leading is not None:
                    count += 1
                    size_bytes += self._in_tier_bytes(partition)
                    logs.append(partition.log)
                looked_at += 1
                if looked_at % PARTITIONS_PER_TURN == 0:
                    await asyncio.sleep(0)
        size_bytes += await self._env.run_blocking(partial(_disk_bytes, logs))
        meter = self.meters.get(name)
        return Led(
            count,
            size_bytes,
            self._quotas.rate(PRODUCER_BYTE_RATE, name),
            self._quotas.rate(CONSUMER_BYTE_RATE, name),
            meter.refused_batches if meter is not None else 0,
        )

    async def _ask_repeatedly(self) -> None:
        while self.limits:
            await self._ask_everybody()
            await asyncio.sleep(self._interval_ms / 1000)
        self._reports = {}
        self._asking = None

    async def _ask_everybody(self) -> None:
        others = [
            broker.broker_id
            for broker in self._image.brokers.values()
            if not broker.fenced and broker.broker_id != self._brokers.node_id
        ]
        for meter in self.meters.values():
            meter.begin_round()
        self._own_at_ms = None
        answers = await asyncio.gather(self.own(), *map(self._ask, others))
        # A fenced broker leads nothing: its partitions have got other leaders with the same record.
        self._reports = dict(zip([self._brokers.node_id, *others], answers, strict=True))
        for name, meter in self.meters.items():
            was_full = meter.is_full
            reports = [report[name] for report in self._reports.values() if name in report]
            meter.end_round(reports, tenant_usage(self._image, name).partitions)
            if meter.is_full and not was_full:
                logger.warning(
                    "tenant %s holds %d bytes and may hold %d: its writes are refused until there is room",
                    name,
                    meter.used_bytes,
                    meter.limit_bytes,
                )

    async def _ask(self, broker_id: int) -> Mapping[str, Led]:
        """What another broker leads; what it said last if it does not answer now."""
        try:
            request, timeout_ms = DescribeTenantsRequest(None, only_local=True), max(1000, self._interval_ms)
            response: DescribeTenantsResponse = await self._brokers.ask(broker_id, request, timeout_ms=timeout_ms)
        except PeerUnsupported:
            return {}
        except (PeerLost, ApiError) as error:
            logger.info("broker %d did not say what it holds of tenants: %s", broker_id, error)
            return self._reports.get(broker_id, {})
        if response.error_code:
            logger.warning("broker %d does not say what it holds of tenants: %s", broker_id, response.error_message)
            return self._reports.get(broker_id, {})
        return {
            row.name: Led(
                row.led_partitions, row.storage_bytes, row.produce_rate, row.consume_rate, row.refused_batches
            )
            for row in response.tenants
        }


def _disk_bytes(logs: Iterable[Log]) -> int:
    """The disk space of logs; of those whose directory cannot be listed, or is just being removed, their batches'."""
    total = 0
    for log in logs:
        try:
            total += log.disk_bytes()
        except (StorageError, FileNotFoundError):
            total += log.size_bytes
    return total
