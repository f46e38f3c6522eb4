"""Idempotency-Keys shared by all gateways: whichever gateway a retry reaches, its record is published once."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable

from confluent_kafka import KafkaException

from penstock.gateway.kafka.broker_requests import BrokerWire
from penstock.gateway.kafka.delivery import Delivered, QueueFull
from penstock.gateway.kafka.errors import problem_of
from penstock.gateway.kafka.idempotency_claims import ClaimLog, KeyState, Note, decode
from penstock.gateway.kafka.idempotency_log import KeyLog
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.web.problem import Problem, too_busy

log = logging.getLogger(__name__)

# On top of the time that a publish may take: clocks differ, and writing the answer takes time.
GRACE_MS = 10_000


class SharedKeys:
    """Claims keys in the log before requests are executed, and finds other gateways' answers there."""

    def __init__(self, settings: GatewaySettings, brokers: BrokerWire) -> None:
        self._settings = settings
        self._brokers = brokers
        self._ledger = ClaimLog(settings.idempotency_keys_max, self._changed)
        self._starting: asyncio.Task[KeyLog] | None = None
        self._changes: dict[bytes, list[asyncio.Future[None]]] = {}
        self._releases: set[asyncio.Task[None]] = set()

    async def once(
        self, key: bytes, fingerprint: str, carry_out: Callable[[], Awaitable[Delivered]]
    ) -> tuple[Delivered, bool]:
        """The answer, and whether another gateway gave it. Raises Problem (409) if that is unknown."""
        key_log = await self._log()
        while True:
            holding = self._ledger.holding(key)
            if holding is not None:
                answer = await self._answer_of(key, holding, fingerprint)
                if answer is not None:
                    return answer, True
                continue
            claim = uuid.uuid4().hex
            await self._claim(key_log, key, Note("claim", claim, fingerprint))
            holding = self._ledger.holding(key)
            if holding is not None and holding.claim == claim:
                return await self._carry_out(key_log, key, claim, carry_out), False

    async def stop(self) -> None:
        """Stop reading and writing."""
        if self._starting is not None:
            [started] = await asyncio.gather(self._starting, return_exceptions=True)
            if self._releases:
                await asyncio.wait(self._releases, timeout=1)
            if isinstance(started, KeyLog):
                await started.stop()

    async def _log(self) -> KeyLog:
        if self._starting is None:
            self._starting = asyncio.create_task(self._start(), name="idempotency-keys")
        try:
            return await asyncio.shield(self._starting)
        except (KafkaException, TimeoutError, Problem) as error:
            # The next request tries again.
            self._starting = None
            if isinstance(error, Problem):
                raise
            raise problem_of(error, "Idempotency-Keys cannot be read: ") from None

    async def _start(self) -> KeyLog:
        key_log = KeyLog(self._settings, self._brokers, self._take)
        try:
            await key_log.start()
        except BaseException:
            await key_log.stop()
            raise
        return key_log

    async def _claim(self, key_log: KeyLog, key: bytes, note: Note) -> None:
        try:
            await key_log.append(key, note.encode())
        except QueueFull:
            raise too_busy("too many records are waiting for the brokers") from None
        except KafkaException as error:
            # It may be in the log nevertheless. Then it must not keep the key from the next request.
            self._release(key_log, key, note.claim)
            raise problem_of(error, "the Idempotency-Key could not be claimed: ") from None

    async def _carry_out(
        self, key_log: KeyLog, key: bytes, claim: str, carry_out: Callable[[], Awaitable[Delivered]]
    ) -> Delivered:
        try:
            answer = await carry_out()
        except Problem as problem:
            # After a rejection the caller may retry. After any other error the record may have been written.
            if problem.status < 500:
                self._release(key_log, key, claim)
            raise
        try:
            await key_log.append(key, Note("answer", claim, answer=list(answer)).encode())
        except (KafkaException, QueueFull) as error:
            # The record is published, and this gateway knows; others would report that they do not.
            log.warning("writing the answer of an Idempotency-Key failed: %s", error)
        return answer

    async def _answer_of(self, key: bytes, holding: KeyState, fingerprint: str) -> Delivered | None:
        """The answer of a key's holder, waiting for it; None if the key was released meanwhile."""
        if holding.fingerprint != fingerprint:
            raise Problem(
                42210, "this Idempotency-Key was used with a different request", "use a new key for each request"
            )
        give_up_ms = holding.claimed_at_ms + self._settings.publish_timeout_ms + GRACE_MS
        while holding.answer is None:
            left_s = (give_up_ms - time.time() * 1000) / 1000
            if left_s <= 0:
                raise Problem(
                    40904,
                    "the gateway that claimed this Idempotency-Key, or its brokers, failed: the record may or may not "
                    "be published",
                    "read the topic to find out; to publish in any case, use a new key",
                )
            await self._change(key, left_s)
            if self._ledger.holding(key) is not holding:
                return None
        return Delivered(*holding.answer)

    async def _change(self, key: bytes, timeout_s: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._changes.setdefault(key, [])
        waiting.append(future)
        await asyncio.wait([future], timeout=timeout_s)
        if not future.done():
            waiting.remove(future)

    def _changed(self, key: bytes) -> None:
        for future in self._changes.pop(key, ()):
            if not future.done():
                future.set_result(None)

    def _take(self, key: bytes, value: bytes | None, timestamp_ms: int) -> None:
        note = decode(value)
        if note is not None:
            self._ledger.apply(key, note, timestamp_ms)
        self._ledger.forget_before(timestamp_ms - int(self._settings.idempotency_s * 1000))

    def _release(self, key_log: KeyLog, key: bytes, claim: str) -> None:
        task = asyncio.create_task(self._write_release(key_log, key, claim), name="idempotency-release")
        self._releases.add(task)
        task.add_done_callback(self._releases.discard)

    async def _write_release(self, key_log: KeyLog, key: bytes, claim: str) -> None:
        try:
            await key_log.append(key, Note("release", claim).encode())
        except (KafkaException, QueueFull) as error:
            log.warning("releasing an Idempotency-Key failed: %s", error)
