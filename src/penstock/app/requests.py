"""Requests to functions with `reply=True`: a record, and the reply to it, which has its correlation id.

Replies to all requests of an application go to one topic, which each of its processes reads from where it ended when
the first request was made. Replies to others' requests are dropped there.
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any, Protocol

from penstock.app.context import Message
from penstock.app.policy import PREFIX
from penstock.app.tracing import current_trace
from penstock.client.application.errors import TimedOut
from penstock.client.application.records import Record
from penstock.client.application.serdes import Encode, decoder_of

REPLY_TOPIC = "reply-topic"
CORRELATION = "correlation-id"


class Replies(Protocol):
    """Where requests go, and replies come from. Its methods block."""

    def open(self, topic: str, received: Callable[[Any], None]) -> None:
        """From now on, call `received` with every message of a topic, in any thread."""
        ...

    def send(self, message: Message) -> None:
        """Store a request; returns when that is done."""
        ...

    def close(self) -> None:
        """Receive no more."""
        ...


class Requests:
    """The requests of one process that have no reply yet."""

    def __init__(self, app: str, replies: Replies, encode: Encode) -> None:
        self._topic = f"{app}.replies"
        self._replies = replies
        self._encode = encode
        self._waiting: dict[bytes, Future[Any]] = {}
        self._opening = threading.Lock()
        self._is_open = False

    async def ask(self, message: Message, returns: Any, timeout_s: float) -> Any:
        """Send a request, and return the value of its reply; raises TimedOut."""
        correlation = uuid.uuid4().hex
        headers = [*message.headers, *current_trace(), (REPLY_TOPIC, self._topic), (CORRELATION, correlation)]
        value = self._encode(message.value, message.topic)
        request = Message(message.topic, message.key, value, headers)
        future = self._waiting[correlation.encode()] = Future()
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.to_thread(self._open)
                await asyncio.to_thread(self._replies.send, request)
                reply = await asyncio.wrap_future(future)
        except TimeoutError:
            what = f"no reply to a request to {message.topic} came within {timeout_s:g} s"
            advice = f"see that a function with reply=True reads it, and what is in {PREFIX}{message.topic}"
            raise TimedOut(what, "", advice) from None
        finally:
            del self._waiting[correlation.encode()]
        return Record(reply, decoder_of(returns)).value

    def close(self) -> None:
        """Receive no more replies."""
        with self._opening:
            if self._is_open:
                self._is_open = False
                self._replies.close()

    def _open(self) -> None:
        with self._opening:
            if not self._is_open:
                self._replies.open(self._topic, self._received)
                self._is_open = True

    def _received(self, message: Any) -> None:
        for name, value in message.headers() or ():
            future = self._waiting.get(value) if name == CORRELATION else None
            if future is not None:
                # A second reply, or one that comes too late, finds nobody.
                with suppress(InvalidStateError):
                    future.set_result(message)
