"""Requests to functions with `reply=True`: a record, and the reply to it, which has its correlation id.

Replies to all requests of an application go to one topic, which each of its processes reads from the end that it had
when the process made its first request. Replies to requests of other processes are dropped.
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
    """The transport of requests and replies. Its methods block."""

    def open(self, topic: str, received: Callable[[Any], None]) -> None:
        """Start to call `received` with every new message of a topic, in any thread."""
        ...

    def send(self, message: Message) -> None:
        """Store a request; returns when it is durable."""
        ...

    def close(self) -> None:
        """Stop receiving."""
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

    async def request(self, message: Message, returns: Any, timeout_s: float) -> Any:
        """Send a request, and return the value of its reply; raises TimedOut."""
        correlation = uuid.uuid4().hex
        headers = [*message.headers, *current_trace(), (REPLY_TOPIC, self._topic), (CORRELATION, correlation)]
        value = self._encode(message.value, message.topic)
        sent = Message(message.topic, message.key, value, headers)
        future = self._waiting[correlation.encode()] = Future()
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.to_thread(self._open)
                await asyncio.to_thread(self._replies.send, sent)
                reply = await asyncio.wrap_future(future)
        except TimeoutError:
            what = f"no reply to a request to {message.topic} came within {timeout_s:g} s"
            advice = f"see that a function with reply=True reads it, and what is in {PREFIX}{message.topic}"
            raise TimedOut(what, "", advice) from None
        finally:
            del self._waiting[correlation.encode()]
        return Record(reply, decoder_of(returns)).value

    def close(self) -> None:
        """Stop receiving replies."""
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
                # A second reply, or one after the timeout, is dropped.
                with suppress(InvalidStateError):
                    future.set_result(message)
