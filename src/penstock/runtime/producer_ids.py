"""Hands out producer ids from blocks that the controller allots to this broker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from penstock.runtime.controller import Controller


class ProducerIds:
    """Unique ids; a block that was not used up is lost at a restart, which costs nothing."""

    def __init__(self, controller: Controller, broker_id: int, broker_epoch: int) -> None:
        self._controller = controller
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._block: Iterator[int] = iter(())
        self._asking: asyncio.Future[range] | None = None

    async def take(self) -> int:
        """The next id."""
        while True:
            for producer_id in self._block:
                return producer_id
            if self._asking is None:
                self._asking = self._controller.allocate_producer_ids(self._broker_id, self._broker_epoch)
                try:
                    self._block = iter(await self._asking)
                finally:
                    self._asking = None
            else:
                # Whoever asked first fills the block for everybody.
                await asyncio.wait([self._asking])
                await asyncio.sleep(0)
