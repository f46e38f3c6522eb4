"""Reading what a client pushes is work for a thread, and charged to the client, whether or not it can be read."""

from __future__ import annotations

import asyncio
import os
import zlib
from types import SimpleNamespace

import pytest

from penstock.core.metadata.image import Image
from penstock.core.telemetry.clients import ClientDescription, TelemetryClient
from penstock.core.telemetry.otlp import Push
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import ZERO_UUID
from penstock.runtime.env import SystemEnv
from penstock.runtime.telemetry import Telemetry
from penstock.wire.messages.push_telemetry import PushTelemetryRequest

MEGABYTE = 1024 * 1024
GZIP = 1
CLIENT = ClientDescription("client", "software", "1", "127.0.0.1", 1)


def gzipped(data: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=31)
    return compressor.compress(data) + compressor.flush()


@pytest.mark.parametrize(
    ("metrics", "outcome"),
    [(b"", None), (gzipped(b""), None), (gzipped(os.urandom(MEGABYTE // 2)), ErrorCode.INVALID_RECORD)],
)
def test_a_push_costs_what_reading_it_takes(metrics: bytes, outcome: ErrorCode | None) -> None:
    charged: list[float] = []

    async def scenario() -> None:
        settings = SimpleNamespace(
            telemetry_max_bytes=MEGABYTE, penstock_telemetry_clients_max=10, penstock_telemetry_series_max=10
        )
        telemetry = Telemetry(SystemEnv(), Image(), settings)  # type: ignore[arg-type]
        plan = telemetry.subscribe(ZERO_UUID, CLIENT)
        request = PushTelemetryRequest(plan.client_instance_id, plan.subscription_id, False, GZIP, metrics)
        await telemetry.push(request, CLIENT, charged.append)

    if outcome is None:
        asyncio.run(scenario())
    else:
        with pytest.raises(ApiError) as refused:
            asyncio.run(scenario())
        assert refused.value.code is outcome
    assert len(charged) == bool(metrics)
    assert all(work_s > 0 for work_s in charged)


def make_telemetry() -> Telemetry:
    settings = SimpleNamespace(
        telemetry_max_bytes=MEGABYTE, penstock_telemetry_clients_max=10, penstock_telemetry_series_max=10
    )
    return Telemetry(SystemEnv(), Image(), settings)  # type: ignore[arg-type]


def test_pushes_are_counted_by_their_outcome() -> None:
    async def scenario() -> None:
        telemetry = make_telemetry()
        assert (telemetry.is_wanted, telemetry.known()) == (False, [])
        plan = telemetry.subscribe(ZERO_UUID, CLIENT)
        assert plan.client_instance_id != ZERO_UUID
        assert (plan.telemetry_max_bytes, plan.delta_temporality) == (MEGABYTE, False)
        empty = PushTelemetryRequest(plan.client_instance_id, plan.subscription_id, False, GZIP, b"")
        await telemetry.push(empty, CLIENT, lambda _: None)
        assert telemetry.outcomes == {"NONE": 1}
        stale = empty._replace(subscription_id=plan.subscription_id + 1)
        for _ in range(2):
            with pytest.raises(ApiError):
                await telemetry.push(stale, CLIENT, lambda _: None)
        assert sum(telemetry.outcomes.values()) == 3
        assert max(telemetry.outcomes.values()) == 2
        (client,) = telemetry.known()
        assert 0 <= telemetry.silence_ms(client) < 60_000

    asyncio.run(scenario())


def test_two_pushes_are_read_at_a_time() -> None:
    async def scenario() -> None:
        telemetry = make_telemetry()
        reads: list[asyncio.Future[object]] = []

        def held(_: object) -> asyncio.Future[object]:
            reads.append(asyncio.get_running_loop().create_future())
            return reads[-1]

        telemetry._env.run_blocking = held  # type: ignore[method-assign,assignment]
        pushes = []
        for number in range(3):
            plan = telemetry.subscribe(bytes([number + 1]) * 16, CLIENT)
            request = PushTelemetryRequest(plan.client_instance_id, plan.subscription_id, False, GZIP, gzipped(b""))
            pushes.append(asyncio.ensure_future(telemetry.push(request, CLIENT, lambda _: None)))
        await asyncio.sleep(0)
        with pytest.raises(ApiError) as refused:
            await pushes[2]
        assert refused.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert len(reads) == 2
        for read in reads:
            read.set_result(telemetry._read(PushTelemetryRequest(b"", 0, False, GZIP, gzipped(b""))))
        await asyncio.gather(*pushes[:2])
        assert telemetry._reading == 0
        assert telemetry.outcomes == {"NONE": 2, "THROTTLING_QUOTA_EXCEEDED": 1}

    asyncio.run(scenario())


def test_what_a_client_pushes_is_kept() -> None:
    async def scenario() -> None:
        telemetry = make_telemetry()
        taken: list[tuple[TelemetryClient, Push]] = []
        telemetry.clients.take = lambda *pushed: taken.append(pushed)  # type: ignore[method-assign]
        plan = telemetry.subscribe(ZERO_UUID, CLIENT)
        request = PushTelemetryRequest(plan.client_instance_id, plan.subscription_id, False, GZIP, gzipped(b""))
        await telemetry.push(request, CLIENT, lambda _: None)
        assert taken == [(telemetry.known()[0], telemetry._read(request))]

    asyncio.run(scenario())
