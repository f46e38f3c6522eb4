"""Reading what a client pushes is work for a thread, and charged to the client, whether or not it can be read."""

from __future__ import annotations

import asyncio
import os
import zlib
from types import SimpleNamespace

import pytest

from penstock.core.metadata.image import Image
from penstock.core.telemetry.clients import ClientDescription
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
