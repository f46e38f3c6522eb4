"""Stands in for the quorum when no active controller could be reached: it rejects everything, with the reason."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from penstock.core.metadata.image import Image
from penstock.core.metadata.result import Result
from penstock.model.errors import ApiError, ErrorCode

Response = TypeVar("Response")

WHY = (
    "no active controller answered in time: a majority of the controllers must be up and reach each other. "
    "Brokers serve on meanwhile; look at `penstock cluster quorum` and at the controllers' logs"
)


class UnreachableQuorum:
    """A quorum that rejects every decision."""

    def __init__(self, image: Image) -> None:
        self.image = image

    def decide(self, decision: Callable[[Image], Result[Response]]) -> asyncio.Future[Response]:  # noqa: ARG002
        """Fails with REQUEST_TIMED_OUT."""
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        answer.set_exception(ApiError(ErrorCode.REQUEST_TIMED_OUT, WHY))
        return answer

    begin = decide
