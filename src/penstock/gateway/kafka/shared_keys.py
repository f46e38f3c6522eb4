"""Idempotency-Keys that all gateways know: whichever one a retry reaches, its record is published once."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable

from confluent_kafka import KafkaException

from penstock.gateway.kafka.delivery import Delivered, QueueFull
from penstock.gateway.kafka.failures import problem_of
from penstock.gateway.kafka.key_ledger import Holding, KeyLedger, Note, decode
from penstock.gateway.kafka.key_log import KeyLog
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.web.problem import Problem, too_busy

log = logging.getLogger(__name__)

# Beyond the time that a record may take: clocks differ, and an answer takes its time to be written.
GRACE_MS = 10_000


class SharedKeys:
    """Claims keys in the log before requests are carried out, and finds the answers of others there."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self._ledger = KeyLedger(settings.idempotency_keys_max, self._changed)
        self._starting: asyncio.Task[KeyLog] | None = None
        self._changes: dict[bytes, list[asyncio.Future[None]]] = {}
        self._releases: set[asyncio.Task[None]] = set()

    async def once(
        self, key: bytes, fingerprint: str, carry_out: Callable[[], Awaitable[Delivered]]
    ) -> tuple[Delivered, bool]:
        """The answer, and whether another gateway gave it. A Problem (409) where nobody knows whether one did."""
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
        except (KafkaException, TimeoutError) as error:
            # The next request tries anew.
            self._starting = None
            raise problem_of(error, "Idempotency-Keys cannot be read: ") from None

    async def _start(self) -> KeyLog:
        key_log = KeyLog(self._settings, self._take)
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
            # It may be in the log all the same. Then it must not keep the key from the next one who tries.
            self._release(key_log, key, note.claim)
            raise problem_of(error, "the Idempotency-Key could not be claimed: ") from None

    async def _carry_out(
        self, key_log: KeyLog, key: bytes, claim: str, carry_out: Callable[[], Awaitable[Delivered]]
    ) -> Delivered:
        try:
            answer = await carry_out()
        except Problem as problem:
            # After a refusal the caller may try again. After anything else the record may be there.
            if problem.status < 500:
                self._release(key_log, key, claim)
            raise
        try:
            await key_log.append(key, Note("answer", claim, answer=list(answer)).encode())
        except (KafkaException, QueueFull) as error:
            # The record is published, and this gateway remembers so; others would say that they do not know.
            log.warning("the answer of an Idempotency-Key could not be written: %s", error)
        return answer

    async def _answer_of(self, key: bytes, holding: Holding, fingerprint: str) -> Delivered | None:
        """The answer of the one who holds a key, waiting for it; None where it was released meanwhile."""
        if holding.fingerprint != fingerprint:
            raise Problem(422, 42210, "this Idempotency-Key came with another request before", "use a new key for each")
        give_up_ms = holding.claimed_at_ms + self._settings.publish_timeout_ms + GRACE_MS
        while holding.answer is None:
            left_s = (give_up_ms - time.time() * 1000) / 1000
            if left_s <= 0:
                raise Problem(
                    409,
                    40904,
                    "the gateway that took this Idempotency-Key on went away, or its brokers did: its record may be "
                    "there or not",
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
            log.warning("an Idempotency-Key could not be released: %s", error)
