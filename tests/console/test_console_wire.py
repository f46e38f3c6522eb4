"""Questions over the wire: clusters that do not answer, and those that cannot be asked this way."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest

from penstock.client.address import Address
from penstock.gateway.kafka.broker_requests import BrokerWire
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.web.problem import Problem
from penstock.wire.apis import ApiKey
from penstock.wire.messages.api_versions import ApiVersionsRequest
from penstock.wire.messages.metadata import MetadataRequest, MetadataResponse
from support.scripted_broker import ScriptedBroker

T = TypeVar("T")


def run_apart(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a loop of its own: a browser of another test may hold this thread's."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


def test_a_mechanism_that_only_librdkafka_supports_is_reported() -> None:
    properties = {"security.protocol": "SASL_SSL", "sasl.mechanisms": "GSSAPI"}
    with pytest.raises(Problem, match="GSSAPI") as raised:
        BrokerWire(GatewaySettings("localhost:1", client_properties=properties))
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


def test_an_answer_that_takes_long_holds_no_other_up() -> None:
    is_asked, others_are_answered = threading.Event(), threading.Event()

    def answer(request: MetadataRequest) -> MetadataResponse:
        if request.topics is None:
            is_asked.set()
            assert others_are_answered.wait(30)
        return MetadataResponse(cluster_id="long" if request.topics is None else "short")

    async def ask(broker: ScriptedBroker) -> list[str | None]:
        wire, address = BrokerWire(GatewaySettings(broker.address)), Address("127.0.0.1", broker.port)
        try:
            long = asyncio.create_task(wire.ask_each_apart([address], MetadataRequest(topics=None), timeout_ms=30_000))
            assert await asyncio.to_thread(is_asked.wait, 30)
            short = await wire.ask(MetadataRequest(topics=()), timeout_ms=10_000)
            others_are_answered.set()
            return [short.cluster_id, (await long)[address].cluster_id]
        finally:
            await wire.stop()

    with ScriptedBroker() as broker:
        broker.answers[ApiKey.METADATA] = answer
        assert run_apart(ask(broker)) == ["short", "long"]
        assert broker.connections == 2
