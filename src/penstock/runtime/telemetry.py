"""Metrics that clients push: subscriptions follow the metadata log, payloads are read off the loop (KIP-714)."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence

from penstock.config.client_metrics import Subscription, parse_subscription
from penstock.config.node import NodeSettings
from penstock.config.properties import ConfigError
from penstock.core.metadata.image import Image, ResourceType
from penstock.core.telemetry.clients import (
    COMPRESSION_TYPES,
    ClientDescription,
    TelemetryClient,
    TelemetryClients,
)
from penstock.core.telemetry.otlp import BadMetrics, Push, read_metrics
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import ZERO_UUID, Uuid
from penstock.runtime.env import Env
from penstock.runtime.fair_turns import FairTurns
from penstock.wire.compression import decompress
from penstock.wire.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsResponse
from penstock.wire.messages.metadata_records import ConfigRecord
from penstock.wire.messages.push_telemetry import PushTelemetryRequest
from penstock.wire.record_types import CorruptBatch, DecompressionTooLarge

# A payload unfolds to at most this many times telemetry.max.bytes.
RATIO_MAX = 8
# Payloads that are being read, which the users that wait take in turn; a client of a user that has more waiting is
# throttled and sends again, and so is any client while all users together have too many.
READING_MAX = 2
WAITING_OF_USER_MAX = 2
WAITING_MAX = 32

logger = logging.getLogger("penstock.telemetry")


class Telemetry:
    """Answers clients that have metrics, and knows what they pushed."""

    def __init__(self, env: Env, image: Image, settings: NodeSettings) -> None:
        self._env = env
        self._image = image
        self._bytes_max = settings.telemetry_max_bytes
        self.clients = TelemetryClients(settings.penstock_telemetry_clients_max, settings.penstock_telemetry_series_max)
        # Pushes by their outcome.
        self.outcomes: Counter[str] = Counter()
        self._turns: FairTurns[str] = FairTurns(READING_MAX)
        self.is_wanted = False
        self._look()

    def follow(self, records: Sequence[object]) -> None:
        """Apply committed changes of subscriptions."""
        if any(isinstance(one, ConfigRecord) and one.resource_type == ResourceType.CLIENT_METRICS for one in records):
            self._look()

    def _look(self) -> None:
        found: dict[str, Subscription] = {}
        for (kind, name), settings in self._image.configs.items():
            if kind == ResourceType.CLIENT_METRICS:
                try:
                    found[name] = parse_subscription(settings)
                except ConfigError as error:
                    # Another implementation's controller may have accepted it.
                    logger.error("the client metrics subscription %s is ignored: %s", name, error.message)
        self.clients.subscribe_to(found)
        self.is_wanted = bool(found)

    def known(self) -> list[TelemetryClient]:
        """The clients that sent a request lately."""
        self.clients.forget_silent(self._env.monotonic_ms())
        return list(self.clients)

    def silence_ms(self, client: TelemetryClient) -> int:
        """How long ago a client sent a request."""
        return self._env.monotonic_ms() - client.last_heard_ms

    def subscribe(self, instance_id: Uuid, description: ClientDescription) -> GetTelemetrySubscriptionsResponse:
        """What a client is to push; one without an id gets one. Raises ApiError."""
        while instance_id == ZERO_UUID:
            instance_id = self._env.random.randbytes(16)
        plan = self.clients.ask(instance_id, description, self._env.monotonic_ms())
        return GetTelemetrySubscriptionsResponse(
            client_instance_id=instance_id,
            subscription_id=plan.subscription_id,
            accepted_compression_types=COMPRESSION_TYPES,
            push_interval_ms=plan.interval_ms,
            telemetry_max_bytes=self._bytes_max,
            delta_temporality=False,
            requested_metrics=plan.metrics,
        )

    async def push(
        self, request: PushTelemetryRequest, description: ClientDescription, charge: Callable[[float], object]
    ) -> None:
        """Take what a client pushes, and charge it the seconds that reading it takes; raises ApiError."""
        try:
            await self._push(request, description, charge)
        except ApiError as error:
            self.outcomes[error.code.name] += 1
            raise
        self.outcomes[ErrorCode.NONE.name] += 1

    async def _push(
        self, request: PushTelemetryRequest, description: ClientDescription, charge: Callable[[float], object]
    ) -> None:
        client = self.clients.check_push(
            request.client_instance_id,
            description,
            request.subscription_id,
            request.compression_type,
            len(request.metrics),
            self._bytes_max,
            self._env.monotonic_ms(),
            is_terminating=request.terminating,
        )
        if not request.metrics:
            return
        owner = description.owner
        if self._turns.waiting_of(owner) >= WAITING_OF_USER_MAX or self._turns.waiting >= WAITING_MAX:
            raise client.fail(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "pushes while many others do")
        async with self._turns.turn(owner):
            read = await self._read_measured(request, client, charge)
        self.clients.take(client, read)

    async def _read_measured(
        self, request: PushTelemetryRequest, client: TelemetryClient, charge: Callable[[float], object]
    ) -> Push:
        work_s = 0.0

        def read_measured() -> Push:
            nonlocal work_s
            began_s = time.thread_time()
            try:
                return self._read(request)
            finally:
                work_s = time.thread_time() - began_s

        try:
            return await self._env.run_blocking(read_measured)
        except (CorruptBatch, BadMetrics) as error:
            raise client.fail(ErrorCode.INVALID_RECORD, f"pushes what cannot be read: {error}") from error
        except DecompressionTooLarge as error:
            raise client.fail(ErrorCode.TELEMETRY_TOO_LARGE, "pushes what unfolds to too much") from error
        finally:
            charge(work_s)

    def _read(self, request: PushTelemetryRequest) -> Push:
        return read_metrics(decompress(request.compression_type, request.metrics, RATIO_MAX * self._bytes_max))
