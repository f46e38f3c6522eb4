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
from penstock.runtime.telemetry import READING_MAX, WAITING_OF_USER_MAX, Telemetry
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


def test_two_pushes_are_read_at_a_time_and_users_take_turns() -> None:
    async def scenario() -> None:
        telemetry = make_telemetry()
        reads: list[asyncio.Future[object]] = []

        def held(_: object) -> asyncio.Future[object]:
            reads.append(asyncio.get_running_loop().create_future())
            return reads[-1]

        telemetry._env.run_blocking = held  # type: ignore[method-assign,assignment]

        def push(number: int, user: str) -> asyncio.Future[None]:
            description = CLIENT._replace(owner=user)
            plan = telemetry.subscribe(bytes([number + 1]) * 16, description)
            request = PushTelemetryRequest(plan.client_instance_id, plan.subscription_id, False, GZIP, gzipped(b""))
            return asyncio.ensure_future(telemetry.push(request, description, lambda _: None))

        async def finish(*numbers: int) -> None:
            for number in numbers:
                reads[number].set_result(telemetry._read(PushTelemetryRequest(b"", 0, False, GZIP, gzipped(b""))))
            for _ in range(5):
                await asyncio.sleep(0)

        many = [push(number, "User:many") for number in range(READING_MAX + WAITING_OF_USER_MAX + 1)]
        for _ in range(2):
            await asyncio.sleep(0)
        other = push(100, "User:other")
        with pytest.raises(ApiError) as refused:
            await many.pop()
        assert refused.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert len(reads) == READING_MAX
        await finish(0, 1)
        assert len(reads) == 4
        await finish(2, 3)
        assert other.done()
        assert [one.done() for one in many] == [True, True, True, False]
        await finish(4)
        await asyncio.gather(*many, other)
        assert telemetry.outcomes == {"NONE": 5, "THROTTLING_QUOTA_EXCEEDED": 1}

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
