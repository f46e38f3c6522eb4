"""Allocates producer ids from blocks that the controller assigns to this broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest


class ProducerIds:
    """Unique ids; the rest of a block is lost at a restart, which costs nothing."""

    def __init__(
        self, ask_controller: Callable[[Any], Awaitable[Any]], broker_id: int, broker_epoch: Callable[[], int]
    ) -> None:
        self._ask = ask_controller
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._block: Iterator[int] = iter(())
        self._asking: asyncio.Future[range] | None = None

    async def take(self) -> int:
        """The next id; raises ApiError when the controller allocates none."""
        while True:
            for producer_id in self._block:
                return producer_id
            if self._asking is None:
                self._asking = asyncio.ensure_future(self._allocate())
                try:
                    self._block = iter(await self._asking)
                finally:
                    self._asking = None
            else:
                # The first caller fetches the block for all.
                await asyncio.wait([self._asking])
                await asyncio.sleep(0)

    async def _allocate(self) -> range:
        response = await self._ask(AllocateProducerIdsRequest(self._broker_id, self._broker_epoch()))
        if response.error_code:
            raise ApiError(ErrorCode(response.error_code), "the controller gave this broker no producer ids")
        first = response.producer_id_start
        return range(first, first + response.producer_id_len)
