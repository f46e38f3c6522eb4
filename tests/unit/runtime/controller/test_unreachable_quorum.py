"""What stands in for the quorum while no active controller can be reached."""

from __future__ import annotations

import asyncio

import pytest

from penstock.core.metadata.image import Image
from penstock.core.metadata.result import Result
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.controller.unreachable import UnreachableQuorum


def test_every_decision_is_rejected_at_once_and_none_is_made() -> None:
    async def test() -> None:
        image, made = Image(), []
        quorum = UnreachableQuorum(image)
        assert quorum.image is image
        for decide in (quorum.decide, quorum.begin):
            answer = decide(lambda _: made.append(1) or Result([], None))
            with pytest.raises(ApiError, match="no active controller") as rejected:
                async with asyncio.timeout(5):
                    await answer
            assert rejected.value.code == ErrorCode.REQUEST_TIMED_OUT
        assert made == []

    asyncio.run(test())
