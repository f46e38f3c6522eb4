"""One connection to another node: requests out, responses back in the order of their requests.

Theory of operation. A peer is idle, opening, or open. The first request opens it: it connects, asks for the API
versions of the other side, then sends whatever has queued up, each in the newest version that both sides know. When a
connection breaks, cannot be opened, or leaves a request unanswered for too long, everything that waits fails with
`PeerLost` and the peer is idle again; the next request opens it after a pause that doubles with every failure.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from penstock.runtime.env import Env
from penstock.runtime.peer_frames import FrameStream
from penstock.wire.apis import APIS, response_class, response_header_version
from penstock.wire.codec import decoder, encoder
from penstock.wire.frame import RequestHeader, decode_response_header, encode_request
from penstock.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.wire.messages.table import ApiKey
from penstock.wire.primitives import Buffer, MalformedMessage

BACKOFF_FIRST_MS = 50
BACKOFF_MAX_MS = 1_000
# Requests that wait for a connection or an answer; a caller that runs into this is told so.
PENDING_MAX = 10_000
API_VERSIONS_VERSION = 3
SOFTWARE_NAME = "penstock"

logger = logging.getLogger("penstock.peer")

_KEYS = {api.module: key for key, api in APIS.items()}


class PeerLost(ConnectionError):
    """No answer can be had from the peer; the message says which one, and why."""


class PeerUnsupported(PeerLost):
    """The peer serves no version of the API that this node speaks."""


class Pending:
    """A request that waits for its turn, then for its answer."""

    __slots__ = ("answer", "api_key", "correlation_id", "deadline", "message", "timeout_ms", "version")

    def __init__(self, message: Any, api_key: int, timeout_ms: int, deadline: float, answer: asyncio.Future[Any]):
        self.message = message
        self.api_key = api_key
        self.timeout_ms = timeout_ms
        self.deadline = deadline
        self.answer = answer
        self.version = -1
        self.correlation_id = -1


class Peer:
    """Another node, as its clients here see it.

    `on_lost` is called whenever an established connection breaks or one cannot be opened, after the waiting requests
    were failed.
    """

    def __init__(
        self,
        env: Env,
        address: Callable[[], tuple[str, int] | None],
        client_id: str,
        request_timeout_ms: int,
    ) -> None:
        self.on_lost: Callable[[], None] | None = None
        self._env = env
        self._address = address
        self._client_id = client_id
        self._request_timeout_ms = request_timeout_ms
        self._loop = asyncio.get_running_loop()
        self._name = "a peer without an address"
        self._stream: FrameStream | None = None
        self._opening: asyncio.Task[None] | None = None
        self._versions: dict[int, tuple[int, int]] | None = None
        self._unsent: deque[Pending] = deque()
        self._sent: deque[Pending] = deque()
        self._next_correlation_id = 0
        self._backoff_ms = 0
        self._not_before = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def is_open(self) -> bool:
        """Whether requests leave at once."""
        return self._versions is not None

    def api_version(self, api_key: int) -> int | None:
        """The version that requests of this API go out in; None while that is not known, or when there is none."""
        theirs = self._versions.get(api_key) if self._versions is not None else None
        if theirs is None:
            return None
        api = APIS[api_key]
        version = min(api.last_stable_version, theirs[1])
        return version if version >= max(api.first_version, theirs[0]) else None

    def send(self, message: Any, *, timeout_ms: int | None = None) -> asyncio.Future[Any]:
        """Send one of the wire's `*Request` messages; the result is its response.

        Records in a response are views of memory that nothing else uses. Fails with PeerLost.
        """
        answer: asyncio.Future[Any] = self._loop.create_future()
        if self._closed:
            _fail(answer, PeerLost(f"the connection to {self._name} is closed"))
            return answer
        if len(self._unsent) + len(self._sent) >= PENDING_MAX:
            _fail(answer, PeerLost(f"{self._name} has {PENDING_MAX} requests to answer already"))
            return answer
        api_key = _KEYS[type(message).__module__.rpartition(".")[2]]
        timeout_ms = self._request_timeout_ms if timeout_ms is None else timeout_ms
        pending = Pending(message, api_key, timeout_ms, self._loop.time() + timeout_ms / 1_000, answer)
        self._watch(pending.deadline)
        if self._versions is not None:
            self._dispatch(pending)
        else:
            self._unsent.append(pending)
            if self._opening is None:
                self._opening = self._env.spawn(self._open(), f"connect to {self._name}")
        return answer

    def close(self) -> None:
        """Let go of the connection for good; what waits fails with PeerLost."""
        self._closed = True
        if self._stream is not None:
            self._stream.forget()
            self._stream.end("let go", flush=True)
        self._lose("this node let go of it", tell=False)

    # Opening.

    async def _open(self) -> None:
        pause = self._not_before - self._loop.time()
        if pause > 0:
            await asyncio.sleep(pause)
        address = self._address()
        if address is None:
            self._opening = None
            self._lose("it has no address that this node knows")
            return
        self._name = f"{address[0]}:{address[1]}"
        stream = FrameStream(self._received, self._ended)
        try:
            await self._env.network.connect(*address, lambda: stream)
        except OSError as error:
            self._opening = None
            self._lose(f"cannot connect: {error.strerror or error}")
            return
        except asyncio.CancelledError:
            stream.forget()
            stream.end("given up")
            raise
        self._opening = None
        self._stream = stream
        answer: asyncio.Future[Any] = self._loop.create_future()
        answer.add_done_callback(self._learn_versions)
        deadline = self._loop.time() + self._request_timeout_ms / 1_000
        request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version="1")
        asking = Pending(request, ApiKey.API_VERSIONS, self._request_timeout_ms, deadline, answer)
        self._watch(deadline)
        self._write(asking, API_VERSIONS_VERSION)

    def _learn_versions(self, answer: asyncio.Future[ApiVersionsResponse]) -> None:
        if answer.cancelled() or answer.exception() is not None or self._stream is None:
            return
        response = answer.result()
        if response.error_code:
            self._lose(f"it answered the question for its API versions with error {response.error_code}")
            return
        self._versions = {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}
        self._backoff_ms = 0
        waiting, self._unsent = self._unsent, deque()
        for pending in waiting:
            self._dispatch(pending)

    # Sending and receiving.

    def _dispatch(self, pending: Pending) -> None:
        if pending.answer.done():
            return
        version = self.api_version(pending.api_key)
        if version is None:
            name = APIS[pending.api_key].name
            _fail(pending.answer, PeerUnsupported(f"{self._name} serves no {name} that this node speaks"))
            return
        self._write(pending, version)

    def _write(self, pending: Pending, version: int) -> None:
        body: list[Buffer] = []
        try:
            encoder(type(pending.message), version)(pending.message, body)
        except ValueError as error:
            _fail(pending.answer, error)
            return
        pending.version = version
        pending.correlation_id = self._next_correlation_id
        self._next_correlation_id = (self._next_correlation_id + 1) & 0x7FFFFFFF
        header = RequestHeader(pending.api_key, version, pending.correlation_id, self._client_id)
        self._sent.append(pending)
        assert self._stream is not None
        self._stream.write(encode_request(header, body))

    def _received(self, frame: memoryview) -> None:
        if not self._sent:
            self._lose("it answered a question that nobody asked")
            return
        pending = self._sent[0]
        try:
            header_version = response_header_version(pending.api_key, pending.version)
            correlation_id, position = decode_response_header(frame, header_version)
            if correlation_id != pending.correlation_id:
                raise MalformedMessage(f"answer {correlation_id} came where {pending.correlation_id} was expected")
            if pending.answer.done():
                # Whoever asked no longer wants to know.
                self._sent.popleft()
                return
            response, _ = decoder(response_class(pending.api_key), pending.version)(frame, position)
        except MalformedMessage as error:
            self._lose(f"its answer to {APIS[pending.api_key].name} cannot be read: {error}")
            return
        self._sent.popleft()
        pending.answer.set_result(response)

    # Losing.

    def _ended(self, reason: str) -> None:
        self._lose(reason)

    def _lose(self, reason: str, *, tell: bool = True) -> None:
        stream, self._stream = self._stream, None
        opening, self._opening = self._opening, None
        self._versions = None
        if opening is not None:
            opening.cancel()
        if stream is not None:
            # It reports its own end, which is this one.
            stream.forget()
            stream.end(reason)
        self._backoff_ms = min(BACKOFF_MAX_MS, self._backoff_ms * 2 or BACKOFF_FIRST_MS)
        self._not_before = self._loop.time() + self._backoff_ms / 1_000
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting = [*self._sent, *self._unsent]
        self._sent.clear()
        self._unsent.clear()
        for pending in waiting:
            _fail(pending.answer, PeerLost(f"{self._name} is lost: {reason}"))
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
            self._lose(f"it did not answer {APIS[late[0].api_key].name} within {late[0].timeout_ms} ms")
            return
        for pending in late:
            # Nothing was tried yet, so nothing is lost but the time.
            _fail(pending.answer, PeerLost(f"{self._name} could not be reached a moment ago"))
        rest = [pending.deadline for pending in waiting if not pending.answer.done()]
        if rest:
            self._watch(min(rest))


def _fail(answer: asyncio.Future[Any], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
        # Whoever asked may have gone away, which is no reason for the loop to complain.
        answer.exception()
