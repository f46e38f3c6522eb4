"""A broker serves the group protocols that its settings name."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.api.groups.group_requests import check_consumer_protocol, check_streams_protocol
from penstock.core.metadata.features import GROUP_VERSION, STREAMS_VERSION
from penstock.core.metadata.image import Image
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.coordinator.groups import Groups

IMAGE = cast(Image, SimpleNamespace(features={GROUP_VERSION: 1, STREAMS_VERSION: 1}))


@pytest.mark.parametrize(
    ("protocol", "check"), [("consumer", check_consumer_protocol), ("streams", check_streams_protocol)]
)
def test_a_protocol_that_is_not_named_is_refused(protocol: str, check: Any) -> None:
    check(IMAGE, cast(Groups, SimpleNamespace(protocols={"classic", protocol})))
    with pytest.raises(ApiError, match=r"rebalance\.protocols") as caught:
        check(IMAGE, cast(Groups, SimpleNamespace(protocols={"classic"})))
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
