"""Questions over the wire: where brokers are, and clusters that cannot be asked this way."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest

from penstock.gateway.rest.console.wire import BrokerWire, parse_addresses
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.web.problem import Problem
from penstock.wire.messages.api_versions import ApiVersionsRequest

T = TypeVar("T")


def run_apart(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a loop of its own: a browser of another test may hold this thread's."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("one:1, two:2", [("one", 1), ("two", 2)]),
        ("PLAINTEXT://one:1", [("one", 1)]),
        ("[::1]:9094", [("::1", 9094)]),
        ("one,two:2,", [("one", 9092), ("two", 2)]),
    ],
)
def test_bootstrap_lists_are_read_as_clients_read_them(text: str, addresses: list[tuple[str, int]]) -> None:
    assert parse_addresses(text) == addresses


def test_cluster_with_a_sign_in_is_not_asked() -> None:
    settings = GatewaySettings("localhost:1", client_properties={"security.protocol": "SASL_SSL"})
    with pytest.raises(Problem, match="TLS") as raised:
        run_apart(BrokerWire(settings).ask(ApiVersionsRequest()))
    assert raised.value.status == 501


def test_nobody_answers_is_said_with_reasons() -> None:
    async def ask() -> None:
        wire = BrokerWire(GatewaySettings("127.0.0.1:1"))
        try:
            await wire.ask(ApiVersionsRequest())
        finally:
            await wire.stop()

    with pytest.raises(Problem, match=r"127\.0\.0\.1:1 is lost") as raised:
        run_apart(ask())
    assert raised.value.status == 503
