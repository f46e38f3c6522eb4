"""Markers of transactions: they are due when their decision is in the log, and only then."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.coordinator.transactions import Transactions


class Sender:
    """What a decision is reported to."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def _send_when_settled(self, _: object, markers: object) -> None:
        self.sent.append(markers)


def test_markers_are_sent_for_decisions_that_were_appended_alone() -> None:
    async def test() -> None:
        sender, loop = Sender(), asyncio.get_running_loop()
        appended, refused, given_up = loop.create_future(), loop.create_future(), loop.create_future()
        appended.set_result("markers")
        refused.set_exception(ApiError(ErrorCode.NOT_COORDINATOR, "another coordinator"))
        given_up.cancel()
        for due in (appended, refused, given_up):
            Transactions._decided(cast("Any", sender), cast("Any", None), due)
        assert sender.sent == ["markers"]

    asyncio.run(test())
