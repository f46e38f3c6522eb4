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

if TYPE_CHECKING:
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

__version__ = "0.1.0"

__all__ = [
    "Admin",
    "Connection",
    "Consumer",
    "PenstockError",
    "Producer",
    "Record",
    "ShareConsumer",
    "__version__",
    "aio",
]


def __getattr__(name: str) -> Any:
    if name == "aio":
        return importlib.import_module("penstock.client.aio")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module("penstock.client"), name)
    globals()[name] = found
    return found
