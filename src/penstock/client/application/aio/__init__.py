"""The same for asyncio, with the same names: `from penstock.client.aio import Producer`, or `penstock.aio.Producer`."""

from __future__ import annotations

from penstock.client.application.aio.admin import Admin
from penstock.client.application.aio.consumer import Consumer
from penstock.client.application.aio.producer import Producer
from penstock.client.application.aio.share import ShareConsumer

__all__ = ["Admin", "Consumer", "Producer", "ShareConsumer"]
