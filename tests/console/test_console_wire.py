"""Questions over the wire: clusters that do not answer, and those that cannot be asked this way."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest

from penstock.gateway.kafka.broker_requests import BrokerWire
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.web.problem import Problem
from penstock.wire.messages.api_versions import ApiVersionsRequest

T = TypeVar("T")


def run_apart(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a loop of its own: a browser of another test may hold this thread's."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


def test_a_mechanism_that_only_librdkafka_supports_is_reported() -> None:
    properties = {"security.protocol": "SASL_SSL", "sasl.mechanisms": "GSSAPI"}
    wire = BrokerWire(GatewaySettings("localhost:1", client_properties=properties))
    assert not wire.is_usable
    with pytest.raises(Problem, match="GSSAPI") as raised:
        run_apart(wire.ask(ApiVersionsRequest()))
    assert raised.value.status == 501


def test_unreachable_brokers_are_reported_with_reasons() -> None:
    async def ask() -> None:
        wire = BrokerWire(GatewaySettings("127.0.0.1:1"))
        try:
            await wire.ask(ApiVersionsRequest())
        finally:
            await wire.stop()

    with pytest.raises(Problem, match=r"127\.0\.0\.1:1 is lost") as raised:
        run_apart(ask())
    assert raised.value.status == 503
