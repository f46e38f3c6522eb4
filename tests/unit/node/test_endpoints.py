"""The listeners of a node."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from penstock.config.broker import node_settings
from penstock.node.endpoints import Endpoints
from penstock.node.failures import CannotStart
from penstock.server.listener import Listener
from support.node_thread import ONE_NODE


def test_a_port_that_another_process_listens_on_after_it_was_bound_is_named() -> None:
    properties = {**ONE_NODE, "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0"}
    endpoints = Endpoints(node_settings(properties)[0], Listener, lambda _: None, lambda *_: None)  # type: ignore[arg-type, return-value]

    async def story() -> None:
        await endpoints.bind()
        taken = next(one for one in endpoints.listeners if one.name == "CONTROLLER")
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind(("127.0.0.1", taken.port))
            other.listen()
            dispatcher: Any = None
            with pytest.raises(CannotStart, match=f"cannot listen on 127.0.0.1:{taken.port}: .*Choose another port"):
                endpoints.serve_controllers(dispatcher)
        await endpoints.stop_brokers(0)
        await endpoints.stop_controllers(0)

    asyncio.run(story())
