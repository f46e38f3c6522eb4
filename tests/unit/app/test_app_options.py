"""Options of subscriptions that cannot be: what is misspelled must not silently mean something else."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.app import App
from penstock.client.application.errors import PenstockError


def handle(value: bytes) -> bytes:
    return value


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"guarantee": "exactly once"}, "use 'at-least-once' or 'exactly-once'"),
        ({"guarantee": True}, "use 'at-least-once' or 'exactly-once'"),
        ({"start": "begin"}, "use 'earliest' or 'latest'"),
        ({"backoff": "quadratic"}, "is not known"),
        ({"retries": -1}, "use 0 or more"),
        ({"dead_letters": None}, "the name of a topic"),
        ({"concurrency": 0}, "1 or more"),
        ({"batch_size": 0}, "1 or more"),
        ({"commit_interval_s": -1}, "0 or more"),
        ({"share": True, "guarantee": "exactly-once"}, "cannot be exactly once"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any], why: str) -> None:
    app = App("shop")
    with pytest.raises(PenstockError, match=why):
        app.subscribe("orders", **options)(handle)
    assert app.subscriptions == []


@pytest.mark.parametrize("topics", [(), ("",), (["orders"],)])
def test_topics_are_names(topics: tuple[Any, ...]) -> None:
    with pytest.raises(PenstockError, match="subscribes to nothing"):
        App("shop").subscribe(*topics)(handle)
