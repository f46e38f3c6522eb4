"""Penstock: a distributed message broker that speaks Apache Kafka's protocol.

    import penstock

    producer = penstock.Producer()
    consumer = penstock.Consumer(group="billing")
    admin = penstock.Admin()

Names are loaded when they are first used; `penstock.aio` has the clients for asyncio.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from penstock.model.version import __version__

if TYPE_CHECKING:
    from penstock.app import App, Context, Depends, Message
    from penstock.client import (
        Admin,
        Connection,
        Consumer,
        PenstockError,
        Producer,
        Record,
        ShareConsumer,
        aio,
    )

__all__ = [
    "Admin",
    "App",
    "Connection",
    "Consumer",
    "Context",
    "Depends",
    "Message",
    "PenstockError",
    "Producer",
    "Record",
    "ShareConsumer",
    "__version__",
    "aio",
]

_OF_APP = ("App", "Context", "Depends", "Message")


def __getattr__(name: str) -> Any:
    if name == "aio":
        return importlib.import_module("penstock.client.aio")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    room = "penstock.app" if name in _OF_APP else "penstock.client"
    found = getattr(importlib.import_module(room), name)
    globals()[name] = found
    return found
