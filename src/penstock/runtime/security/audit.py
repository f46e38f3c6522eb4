"""The audit trail of a node: who changed what, who was denied what, and whose sign-in was refused.

Events go into a bounded queue, and a task writes them: to the topic `_audit` (`audit_topic`), and on request to the
logger `penstock.audit`. Nothing that serves a client ever waits for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

from penstock.core.backoff import Backoff
from penstock.core.security.audit import AuditEvent, AuditQueue, EventType, Queued, Who, details_of, shortened
from penstock.core.security.audited_requests import AUDITED, changes_of
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.env import Env
from penstock.runtime.keep_running import keep_running
from penstock.runtime.peer import PeerLost
from penstock.wire.apis import APIS, ApiKey

# So many events are written at once, so long after the first of them.
EVENTS_PER_WRITE = 500
LINGER_S = 0.2
RETRY_MIN_S = 0.5
RETRY_MAX_S = 30.0
# How often it is checked whether repeated events are due.
REPEATS_CHECK_S = 2.0
# What is left is given this long when a node stops.
FLUSH_S = 2.0

# Denials of these are recorded from their responses, with all that they were about.
TOLD_BY_RESPONSES = AUDITED - {ApiKey.OFFSET_COMMIT}
DENIALS = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    }
)

logger = logging.getLogger("penstock.security")
trail = logging.getLogger("penstock.audit")

Write = Callable[[Sequence[tuple[int, bytes]]], Awaitable[None]]


class Doer(Protocol):
    """A connection's peer, as far as the trail needs it."""

    principal: str
    host: str
    listener_name: str
    client_id: str | None
    api_key: int
    is_forwarded: bool


class AuditTrail:
    """Collects events from the moment it is created, and writes them once it is started."""

    def __init__(self, env: Env, node_id: int, queue_max: int, *, is_on: bool, logs: bool) -> None:
        """With `logs` events go to the logger; `is_on` is whether anything is collected at all."""
        self.is_on = is_on or logs
        self._env = env
        self._node_id = node_id
        self._logs = logs
        self._queue = AuditQueue(queue_max)
        self._arrived = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._write: Write | None = None
        self.written = 0

    @property
    def dropped(self) -> int:
        """Events that there was no room for."""
        return self._queue.dropped

    @property
    def waiting(self) -> int:
        """Events that are not written yet."""
        return len(self._queue)

    def changed(self, client: Doer, api_key: int, request: Any, response: Any) -> None:
        """A request that changes the cluster was answered."""
        if client.is_forwarded:
            # The broker that serves the client records it.
            return
        changes = changes_of(api_key, request, response)
        who = _who(client)
        for row in changes.rows:
            is_denied = row.code in DENIALS
            if is_denied and api_key not in TOLD_BY_RESPONSES:
                continue
            event = AuditEvent(
                EventType.DENIED if is_denied else EventType.CHANGE,
                who,
                APIS[api_key].name,
                "",
                row.kind,
                shortened(row.name),
                _outcome(row.code),
                shortened(row.message),
                details_of(row.details),
            )
            self._add(event, may_repeat=is_denied or api_key == ApiKey.OFFSET_COMMIT)
        if changes.left_out:
            more = {"more": changes.left_out}
            self._add(AuditEvent(EventType.CHANGE, who, APIS[api_key].name, details=details_of(more)))

    def denied(self, asker: Any, operation: Operation, kind: ResourceType, name: str) -> None:
        """A client was denied something; a listener of `AccessControl`."""
        api_key = getattr(asker, "api_key", -1)
        if getattr(asker, "is_forwarded", True) or api_key in TOLD_BY_RESPONSES:
            return
        api = APIS[api_key].name if api_key in APIS else ""
        event = AuditEvent(
            EventType.DENIED, _who(asker), api, operation.name, kind.name.lower(), shortened(name), "DENIED"
        )
        self._add(event, may_repeat=True)

    def handshake_failed(self, listener_name: str, host: str, reason: str) -> None:
        """TLS could not be agreed with a peer: it has no certificate that counts, trusts not ours, or speaks no TLS."""
        if self.is_on:
            who = Who("", host, "", listener_name)
            event = AuditEvent(
                EventType.SIGN_IN_REFUSED,
                who,
                "",
                "",
                "listener",
                listener_name,
                "TLS_HANDSHAKE_FAILED",
                shortened(reason),
            )
            self._add(event, may_repeat=True)

    def sign_in_refused(self, client: Doer, mechanism: str, user: str, reason: str) -> None:
        """A client could not sign in."""
        event = AuditEvent(
            EventType.SIGN_IN_REFUSED,
            _who(client)._replace(principal=""),
            "SaslAuthenticate",
            "",
            "user",
            shortened(user),
            ErrorCode.SASL_AUTHENTICATION_FAILED.name,
            shortened(reason),
            details_of({"mechanism": mechanism}),
        )
        self._add(event, may_repeat=True)

    def _add(self, event: AuditEvent, *, may_repeat: bool = False) -> None:
        if self.is_on:
            self._queue.add(event, self._env.monotonic_ms(), may_repeat=may_repeat)
            self._arrived.set()

    def start(self, write: Write | None = None) -> None:
        """Begin to write: `write` appends documents, each with its time; without it they are only logged."""
        self._write = write
        if self.is_on and self._task is None:
            self._task = keep_running(self._env, self._run, "audit trail")

    async def stop(self) -> None:
        """Write what is left, if that is quickly done."""
        if self._task is None:
            return
        self._task.cancel()
        try:
            await asyncio.wait_for(self._write_all(), FLUSH_S)
        except (TimeoutError, ApiError, PeerLost) as error:
            logger.warning("%d events of the audit trail were not written: %s", len(self._queue), error)

    async def _run(self) -> None:
        backoff = Backoff(RETRY_MIN_S, RETRY_MAX_S)
        while True:
            try:
                await asyncio.wait_for(self._arrived.wait(), REPEATS_CHECK_S)
                await asyncio.sleep(LINGER_S)
            except TimeoutError:
                pass
            try:
                await self._write_all()
            except (ApiError, PeerLost) as error:
                logger.warning("the audit trail cannot be written for now, %d events wait: %s", self.waiting, error)
                await asyncio.sleep(backoff.failed())
            else:
                backoff.succeeded()

    async def _write_all(self) -> None:
        self._arrived.clear()
        while taken := self._queue.take(EVENTS_PER_WRITE, self._env.monotonic_ms()):
            documents = [self._document(row) for row in taken]
            try:
                if self._write is not None:
                    await self._write(documents)
            except BaseException:
                self._queue.put_back(taken)
                self._arrived.set()
                raise
            self.written += len(taken)
            if self._logs:
                for _, document in documents:
                    trail.info("%s", document.decode("utf-8"))

    def _document(self, row: Queued) -> tuple[int, bytes]:
        """An event with its time on the wall clock, as that is now."""
        time_ms = self._env.now_ms() - (self._env.monotonic_ms() - row.time_ms)
        return time_ms, row.event.to_json(self._node_id, _iso(time_ms), row.times)


def _who(client: Doer) -> Who:
    return Who(client.principal, client.host, shortened(client.client_id), client.listener_name)


def _iso(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _outcome(code: int) -> str:
    try:
        return "OK" if not code else ErrorCode(code).name
    except ValueError:
        return str(code)
