"""Checks of the APIs by which clients push metrics."""

from __future__ import annotations

from collections.abc import Callable

from api_world import Ask, World

from penstock.model.errors import ErrorCode
from penstock.wire.compression import Compression, compress
from penstock.wire.messages.describe_clients import DescribeClientsRequest
from penstock.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from penstock.wire.messages.push_telemetry import PushTelemetryRequest
from support.otlp import gauge, metrics_data, point


def _subscribe(ask: Ask) -> GetTelemetrySubscriptionsResponse:
    response: GetTelemetrySubscriptionsResponse = ask(GetTelemetrySubscriptionsRequest(), 0)
    assert response.error_code == 0
    return response


def _push(ask: Ask, plan: GetTelemetrySubscriptionsResponse, codec: int, data: bytes) -> int:
    request = PushTelemetryRequest(plan.client_instance_id, plan.subscription_id, False, codec, data)
    code: int = ask(request, 0).error_code
    return code


def check_get_telemetry_subscriptions(ask: Ask, _: World, version: int) -> None:
    plan = _subscribe(ask)
    assert plan.client_instance_id != bytes(16)
    assert (plan.push_interval_ms, plan.telemetry_max_bytes, plan.requested_metrics) == (300_000, 1_048_576, ())
    assert plan.accepted_compression_types == (4, 3, 1, 2)
    again = ask(GetTelemetrySubscriptionsRequest(plan.client_instance_id), version)
    assert again.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED


def check_push_telemetry(ask: Ask, _: World, version: int) -> None:
    data = metrics_data(gauge("a", point(1)))
    for codec in Compression:
        assert _push(ask, _subscribe(ask), codec, compress(codec, data)) == 0
    plan = _subscribe(ask)
    assert _push(ask, plan, Compression.NONE, data) == 0
    assert _push(ask, plan, Compression.NONE, data) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert _push(ask, _subscribe(ask), Compression.NONE, b"\x0a\x7f") == ErrorCode.INVALID_RECORD
    assert _push(ask, _subscribe(ask), Compression.ZSTD, b"garbage") == ErrorCode.INVALID_RECORD
    bomb = compress(Compression.ZSTD, bytes(64 * 1024 * 1024))
    assert _push(ask, _subscribe(ask), Compression.ZSTD, bomb) == ErrorCode.TELEMETRY_TOO_LARGE
    assert ask(PushTelemetryRequest(), version).error_code == ErrorCode.INVALID_REQUEST


def check_describe_clients(ask: Ask, _: World, version: int) -> None:
    plan = _subscribe(ask)
    assert _push(ask, plan, Compression.NONE, metrics_data(gauge("a.b", point(1.5, {"topic": "t"})))) == 0
    request = DescribeClientsRequest([plan.client_instance_id], include_series=True)
    (client,) = ask(request, version).clients
    assert (client.client_id, client.interval_ms, client.series_count) == ("wire-client", 300_000, 1)
    (series,) = client.series
    assert (series.name, series.value, [tuple(one) for one in series.labels]) == ("a_b", 1.5, [("topic", "t")])
    everybody = ask(DescribeClientsRequest(None), version).clients
    assert plan.client_instance_id in {one.instance_id for one in everybody}
    assert all(one.series == () for one in everybody)


CHECKS: dict[str, Callable[[Ask, World, int], None]] = {
    "get_telemetry_subscriptions": check_get_telemetry_subscriptions,
    "push_telemetry": check_push_telemetry,
    "describe_clients": check_describe_clients,
}
