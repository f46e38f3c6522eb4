"""Forwarded requests: whom the controller takes for their client."""

from __future__ import annotations

import asyncio
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.api.access import requiring
from penstock.api.context import Client, Reply, RequestContext
from penstock.api.envelope import envelope
from penstock.api.forwarding import Forwarding
from penstock.core.security.authorizer import Authorizer
from penstock.model.access import Operation
from penstock.model.errors import ErrorCode
from penstock.runtime.security.access_control import OPEN, AccessControl
from penstock.wire.messages.create_topics import CreateTopicsRequest
from penstock.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse

FRAME = b"\0\x13\0\x07\0\0\0\x01" + bytes(10)
BROKER = RequestContext(0, "broker-1", Client(("10.0.0.1", 1), "CONTROLLER", principal="User:broker"))


class Controller:
    """Takes envelopes, and remembers for whom."""

    def __init__(self) -> None:
        self.served: list[Client] = []
        self.handle = partial(envelope, self.services())

    def services(self, access: AccessControl = OPEN) -> Any:
        return SimpleNamespace(raft=SimpleNamespace(is_leader=True), answer=self._answer, access=access)

    def _answer(self, _: bytearray, client: Client) -> Reply:
        self.served.append(client)
        return [b"\0\0\0\x02", b"ok"]

    async def ask(self, envelope: EnvelopeRequest, _: int) -> EnvelopeResponse:
        response: EnvelopeResponse = await self.handle(envelope, BROKER)
        return response


@pytest.mark.parametrize(
    ("principal", "host", "is_token"),
    [("User:alice", "192.168.1.7", False), ("User:CN=a:b,O=c", "::1", False), ("User:bob", "10.1.1.1", True)],
)
def test_a_forwarded_request_is_its_clients_and_not_the_brokers(principal: str, host: str, is_token: bool) -> None:
    controller = Controller()
    forwarding = Forwarding(controller, lambda: False, {})  # type: ignore[arg-type]
    client = Client((host, 5), "SASL_PLAINTEXT", principal=principal, is_token=is_token)
    assert asyncio.run(forwarding.forward(FRAME, CreateTopicsRequest(), client)) == b"ok"
    (served,) = controller.served
    assert (served.principal, served.host, served.is_token) == (principal, host, is_token)


@pytest.mark.parametrize("principal", [b"", b"\0\0", b"\0\x07rest", None])
def test_an_unreadable_principal_is_rejected(principal: bytes | None) -> None:
    controller = Controller()
    response = asyncio.run(controller.ask(EnvelopeRequest(FRAME, principal, bytes(4)), 0))
    assert response.error_code == ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE
    assert controller.served == []


def test_envelopes_come_from_brokers_only() -> None:
    controller = Controller()
    access = AccessControl(Authorizer(super_users=["User:broker"]))
    handle = requiring(
        Operation.CLUSTER_ACTION, access, partial(envelope, controller.services(access)), EnvelopeResponse
    )
    mallory = BROKER._replace(client=Client(("10.0.0.1", 1), "CONTROLLER", principal="User:mallory"))
    assert handle(EnvelopeRequest(FRAME), mallory).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert controller.served == []
