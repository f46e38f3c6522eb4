"""One connection for an event loop: requests out, responses back in order.

Theory of operation. A peer is idle, opening, or open. The first request opens it: it connects, requests the other
side's API versions and authenticates, then sends the queued requests, each in the newest version that both sides
support. When a connection breaks, cannot be opened, or leaves a request unanswered for too long, all outstanding
requests fail with NoAnswer and the peer is idle again; the next request opens it after a pause that doubles with every
failure.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from penstock.client.address import Address
from penstock.client.failures import AuthenticationFailed, NoAnswer, NotServed
from penstock.client.frames import FrameStream
from penstock.client.protocol import FRAME_BYTES_MAX, Call, Introduction, Protocol
from penstock.client.settings import Credentials
from penstock.client.tls import reason_of
from penstock.client.tokens import bearer_token
from penstock.core.backoff import Backoff
from penstock.wire.apis import Request
from penstock.wire.decoding import ENTRIES_UNLIMITED
from penstock.wire.primitives import MalformedMessage

BACKOFF_FIRST_MS = 50
# Authentication is renewed after this share of its lifetime.
RENEWAL_SHARE = 0.85
BACKOFF_MAX_MS = 1_000
# Requests that wait for a connection or a response; further ones fail.
PENDING_MAX = 10_000

# Opens a stream to a host and port; raises OSError if that fails.
R = TypeVar("R")
Connect = Callable[[str, int, Callable[[], asyncio.BaseProtocol]], Awaitable[object]]
Spawn = Callable[[Coroutine[object, object, None], str], "asyncio.Task[None]"]


class Pending(Call):
    """A request that is queued or awaits its response."""

    __slots__ = ("answer", "deadline", "timeout_ms")

    def __init__(self, message: Request[object], timeout_ms: int, deadline: float, answer: asyncio.Future[Any]) -> None:
        super().__init__(message)
        self.timeout_ms = timeout_ms
        self.deadline = deadline
        self.answer = answer


class Peer:
    """A broker or controller, from a client's point of view.

    `connect` and `spawn` are injected: how a stream is opened, and who owns the task that does it. `on_lost` is called
    whenever a connection breaks or cannot be opened, after the outstanding requests have failed.
    """

    def __init__(
        self,
        address: Callable[[], tuple[str, int] | None],
        client_id: str,
        request_timeout_ms: int,
        connect: Connect,
        spawn: Spawn,
        credentials: Credentials | None = None,
        versions_max: Mapping[int, int] | None = None,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        entries_max: int = ENTRIES_UNLIMITED,
    ) -> None:
        self.on_lost: Callable[[], None] | None = None
        self._address = address
        self._client_id = client_id
        self._request_timeout_ms = request_timeout_ms
        self._connect = connect
        self._spawn = spawn
        self._credentials = credentials
        self._frame_bytes_max = frame_bytes_max
        self._entries_max = entries_max
        self._loop = asyncio.get_running_loop()
        self._versions_max = versions_max
        self._protocol = Protocol("a peer without an address", client_id)
        self._stream: FrameStream | None = None
        self._opening: asyncio.Task[None] | None = None
        self._is_open = False
        self._unsent: deque[Pending] = deque()
        self._sent: deque[Pending] = deque()
        self._backoff = Backoff(BACKOFF_FIRST_MS, BACKOFF_MAX_MS)
        self._not_before = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def is_open(self) -> bool:
        """Whether requests are sent at once."""
        return self._is_open

    def api_version(self, api_key: int) -> int | None:
        """The version used for this API; None while it is unknown, or if there is none."""
        return self._protocol.version(api_key) if self._is_open else None

    def send(self, message: Request[R], *, timeout_ms: int | None = None) -> asyncio.Future[R]:
        """Send one of the `*Request` messages; the result is its response.

        Records in a response are views of memory that nothing else uses. Raises NoAnswer.
        """
        answer: asyncio.Future[R] = self._loop.create_future()
        if self._closed:
            _fail(answer, NoAnswer(f"the connection to {self._protocol.name} is closed"))
            return answer
        if len(self._unsent) + len(self._sent) >= PENDING_MAX:
            _fail(answer, NoAnswer(f"{self._protocol.name} already has {PENDING_MAX} outstanding requests"))
            return answer
        pending = self._pending(message, self._request_timeout_ms if timeout_ms is None else timeout_ms, answer)
        if self._is_open:
            self._write(pending)
        else:
            self._unsent.append(pending)
            if self._stream is None and self._opening is None:
                self._opening = self._spawn(self._open(), f"connect to {self._protocol.name}")
        return answer

    def close(self, *, flush: bool = True) -> None:
        """Close the connection for good, with `flush` after what was sent; outstanding requests fail with NoAnswer."""
        self._closed = True
        if self._stream is not None:
            self._stream.forget()
            self._stream.end("closed", flush=flush)
        self._disconnect("this node closed it", tell=False)

    async def _open(self) -> None:
        pause = self._not_before - self._loop.time()
        if pause > 0:
            await asyncio.sleep(pause)
        address = self._address()
        if address is None:
            self._opening = None
            self._disconnect("its address is unknown")
            return
        self._protocol = Protocol(str(Address(*address)), self._client_id, self._versions_max, self._entries_max)
        stream = FrameStream(self._received, self._disconnect, self._frame_bytes_max)
        try:
            credentials = await self._with_token()
        except AuthenticationFailed as error:
            self._opening = None
            self._disconnect(error)
            return
        try:
            await self._connect(*address, lambda: stream)
        except OSError as error:
            self._opening = None
            self._disconnect(f"cannot connect: {reason_of(error)}")
            return
        except asyncio.CancelledError:
            stream.forget()
            stream.end("aborted")
            raise
        self._opening = None
        self._stream = stream
        self._introduce(self._protocol.introduction(credentials))

    async def _with_token(self) -> Credentials | None:
        """The credentials with the token itself, where tokens are fetched: that must not block the loop."""
        credentials = self._credentials
        if credentials is None or credentials.tokens is None:
            return credentials
        token = await asyncio.to_thread(bearer_token, credentials.tokens)
        return replace(credentials, password=token, tokens=None)

    def _introduce(self, introduction: Introduction, answer: asyncio.Future[object] | None = None) -> None:
        """Send the introduction's next request, given the response to the previous one."""
        if answer is not None and (answer.cancelled() or answer.exception() is not None or self._stream is None):
            return
        try:
            request = introduction.send(answer.result() if answer is not None else None)
        except StopIteration:
            self._begin()
        except NoAnswer as error:
            self._disconnect(error)
        else:
            pending = self._pending(request, self._request_timeout_ms, self._loop.create_future())
            pending.answer.add_done_callback(partial(self._introduce, introduction))
            self._write(pending)

    def _begin(self) -> None:
        self._is_open = True
        self._backoff.succeeded()
        if self._protocol.sign_in_lifetime_ms:
            delay_s = self._protocol.sign_in_lifetime_ms * RENEWAL_SHARE / 1_000
            assert self._stream is not None
            self._loop.call_later(delay_s, self._renew, self._stream)
        waiting, self._unsent = self._unsent, deque()
        for pending in waiting:
            if not pending.answer.done():
                self._write(pending)

    def _renew(self, stream: FrameStream) -> None:
        """Authenticate again before the broker closes the connection; requests wait meanwhile."""
        if self._stream is stream and self._credentials is not None:
            self._is_open = False
            self._spawn(self._sign_in_again(stream), f"sign in to {self._protocol.name} again")

    async def _sign_in_again(self, stream: FrameStream) -> None:
        try:
            credentials = await self._with_token()
        except AuthenticationFailed as error:
            self._disconnect(error)
            return
        if self._stream is stream and credentials is not None:
            self._introduce(self._protocol.sign_in(credentials))

    def _pending(self, message: Request[R], timeout_ms: int, answer: asyncio.Future[R]) -> Pending:
        pending = Pending(message, timeout_ms, self._loop.time() + timeout_ms / 1_000, answer)
        self._watch(pending.deadline)
        return pending

    def _write(self, pending: Pending) -> None:
        try:
            buffers = self._protocol.encode(pending)
        except (NotServed, ValueError) as error:
            _fail(pending.answer, error)
            return
        self._sent.append(pending)
        assert self._stream is not None
        self._stream.write(buffers)

    def _received(self, frame: memoryview) -> None:
        if not self._sent:
            self._disconnect("it sent a response without a request")
            return
        pending = self._sent[0]
        try:
            response = self._protocol.decode(pending, frame)
        except MalformedMessage as error:
            self._disconnect(f"its answer to {pending.name} cannot be read: {error}")
            return
        self._sent.popleft()
        # The caller may have been cancelled.
        if not pending.answer.done():
            pending.answer.set_result(response)

    def _disconnect(self, reason: str | NoAnswer, *, tell: bool = True) -> None:
        stream, self._stream = self._stream, None
        opening, self._opening = self._opening, None
        self._is_open = False
        if opening is not None:
            opening.cancel()
        if stream is not None:
            # The stream reports its own end, which is this one.
            stream.forget()
            stream.end("lost")
        self._not_before = self._loop.time() + self._backoff.failed() / 1_000
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting = [*self._sent, *self._unsent]
        self._sent.clear()
        self._unsent.clear()
        told = reason if isinstance(reason, NoAnswer) else NoAnswer(f"{self._protocol.name} is lost: {reason}")
        for pending in waiting:
            _fail(pending.answer, type(told)(*told.args))
        if tell and self.on_lost is not None:
            self.on_lost()

    def _watch(self, deadline: float) -> None:
        if self._timer is not None:
            if self._timer.when() <= deadline:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._check_deadlines)

    def _check_deadlines(self) -> None:
        self._timer = None
        now = self._loop.time()
        waiting = [pending for pending in (*self._sent, *self._unsent) if not pending.answer.done()]
        late = [pending for pending in waiting if pending.deadline <= now]
        if late and (self._stream is not None or now >= self._not_before):
            self._disconnect(f"it did not answer {late[0].name} within {late[0].timeout_ms} ms")
            return
        for pending in late:
            # Nothing was sent yet, so only time was lost.
            _fail(pending.answer, NoAnswer(f"{self._protocol.name} could not be reached a moment ago"))
        rest = [pending.deadline for pending in waiting if not pending.answer.done()]
        if rest:
            self._watch(min(rest))


def _fail(answer: asyncio.Future[R], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
        # The caller may be gone; retrieving the exception keeps the loop from logging it.
        answer.exception()
