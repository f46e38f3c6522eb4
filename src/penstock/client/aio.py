"""`penstock.client.aio`: the clients for asyncio, with the names of the blocking ones."""

from __future__ import annotations

from penstock.client.application.aio import Admin, Consumer, Producer, ShareConsumer

__all__ = ["Admin", "Consumer", "Producer", "ShareConsumer"]
