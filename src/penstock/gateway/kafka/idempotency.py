"""Requests with an Idempotency-Key: the first one is executed, later ones get its answer."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable
from copy import copy
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from penstock.core.fairness import FairCache
from penstock.gateway.web.problem import Problem

KEY_LENGTH_MAX = 255
# The approximate size of an entry besides its names, and what one may have on average.
ENTRY_BYTES, KEY_BYTES = 500, 750

Answer = TypeVar("Answer")


@dataclass(slots=True)
class _Known(Generic[Answer]):
    fingerprint: bytes
    expires_at: float
    answer: asyncio.Future[Answer] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Shared(Protocol[Answer]):
    """The keys of other gateways."""

    async def once(
        self, key: bytes, fingerprint: str, carry_out: Callable[[], Awaitable[Answer]]
    ) -> tuple[Answer, bool]:
        """The answer, and whether another gateway gave it."""
        ...


class IdempotencyKeys(Generic[Answer]):
    """The answers to this gateway's requests, for as long and as many as the settings say.

    With `shared`, other gateways' answers are found as well.
    """

    def __init__(self, keys_max: int, remember_s: float, shared: Shared[Answer] | None = None) -> None:
        self._remember_s = remember_s
        self._shared = shared
        self._known: FairCache[str, tuple[str, str], _Known[Answer]] = FairCache(keys_max, keys_max * KEY_BYTES)
        self._owner = ""

    def of(self, owner: str) -> IdempotencyKeys[Answer]:
        """The keys of one caller: the same key of another is another key.

        The limits are shared, but a caller that uses many keys loses its own first.
        """
        theirs = copy(self)
        theirs._owner = owner
        return theirs

    async def once(
        self, scope: str, key: str | None, request: bytes, carry_out: Callable[[], Awaitable[Answer]]
    ) -> tuple[Answer, bool]:
        """The answer, and whether it is from an earlier request. Failures are not cached: the caller may retry.

        A key that was used with a different request is rejected (422).
        """
        if key is None:
            return await carry_out(), False
        if not 0 < len(key) <= KEY_LENGTH_MAX:
            raise Problem(40001, "this Idempotency-Key is too long", f"use up to {KEY_LENGTH_MAX} characters")
        if self._owner:
            scope = f"{self._owner}\0{scope}"
        self._drop_expired()
        fingerprint = hashlib.sha256(request).digest()
        known = self._known.peek((scope, key))
        if known is not None:
            if known.fingerprint != fingerprint:
                raise Problem(
                    42210, "this Idempotency-Key was used with a different request", "use a new key for each request"
                )
            return await asyncio.shield(known.answer), True
        entry: _Known[Answer] = _Known(fingerprint, time.monotonic() + self._remember_s)
        self._known.put(self._owner, (scope, key), entry, ENTRY_BYTES + len(scope) + len(key))
        again = False
        try:
            if self._shared is None:
                answer = await carry_out()
            else:
                name = f"{scope}\0{key}".encode("utf-8", "surrogateescape")
                answer, again = await self._shared.once(name, fingerprint.hex(), carry_out)
        except BaseException as error:
            if self._known.peek((scope, key)) is entry:
                self._known.pop((scope, key))
            if isinstance(error, Exception):
                entry.answer.set_exception(error)
                # There may be no request waiting for it, and the caller gets the error anyway.
                entry.answer.exception()
            else:
                entry.answer.cancel()
            raise
        entry.answer.set_result(answer)
        return answer, again

    def _drop_expired(self) -> None:
        now = time.monotonic()
        expired = []
        for key in self._known:
            oldest = self._known.peek(key)
            if oldest is None or oldest.expires_at > now:
                break
            expired.append(key)
        for key in expired:
            self._known.pop(key)
