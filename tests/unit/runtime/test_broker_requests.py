"""A broker asks the brokers of its cluster, and itself."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.brokers import Brokers

HERE = 1


class Connection:
    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id

    def send(self, message: Any, *, timeout_ms: int | None = None) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answer.set_result((self.broker_id, message, timeout_ms))
        return answer


def test_a_broker_is_called_over_one_connection_for_each_lane() -> None:
    opened: list[int] = []

    def connect(broker_id: int) -> Connection:
        opened.append(broker_id)
        return Connection(broker_id)

    async def ask_itself(request: str) -> str:
        await asyncio.sleep(0)
        return f"own {request}"

    async def story() -> None:
        brokers = Brokers(HERE, connect, ask_itself)
        assert await brokers.ask(HERE, "a") == "own a"
        assert opened == []
        assert await brokers.ask(2, "b", timeout_ms=5) == (2, "b", 5)
        assert await brokers.ask(2, "c") == (2, "c", None)
        assert await brokers.ask(3, "d") == (3, "d", None)
        assert opened == [2, 3]
        await brokers.ask(2, "e", lane=7)
        await brokers.ask(2, "f", lane=7)
        assert opened == [2, 3, 2]
        with pytest.raises(ApiError) as refused:
            await brokers.ask(-1, "g")
        assert refused.value.code is ErrorCode.LEADER_NOT_AVAILABLE

    asyncio.run(story())
