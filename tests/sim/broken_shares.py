"""Ways to break share groups on purpose, as in `broken`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from penstock.core.share import dead_letters
from penstock.core.share.partition import SharePartition
from penstock.core.share.runs import NO_DELAYS
from penstock.runtime.share.led_partition import LedSharePartition
from penstock.runtime.share.letters import DeadLetterWriter
from penstock.runtime.share.persister import Persister
from penstock.wire.records import build_batch


@contextmanager
def write_anonymous_letters() -> Iterator[None]:
    """Write dead letters without the identities that were stored for them."""

    def anonymous(records: Any, **_: Any) -> bytes:
        return build_batch(records)

    with patch.object(dead_letters, "build_batch", anonymous):
        yield


@contextmanager
def archive_before_the_letter() -> Iterator[None]:
    """Record that a dead letter is written, then write it."""
    right = DeadLetterWriter._write

    async def write(carrier: DeadLetterWriter, place: Any, letters: Any, *, copies: bool) -> Any:
        await carrier._store(carrier._share.archive([letter.offset for letter in letters]))
        return await right(carrier, place, letters, copies=copies)

    with patch.object(DeadLetterWriter, "_write", write):
        yield


@contextmanager
def answer_before_durable() -> Iterator[None]:
    """Confirm a member's acknowledgement before it is written."""
    right = LedSharePartition._store

    async def store(led: LedSharePartition, write: Any) -> None:
        led._env.spawn(_quietly(right(led, write)), "store")
        await asyncio.sleep(0)

    with patch.object(LedSharePartition, "_store", store):
        yield


async def _quietly(work: Any) -> None:
    await asyncio.gather(work, return_exceptions=True)


@contextmanager
def forget_who_holds() -> Iterator[None]:
    """End locks early, and accept acknowledgements of any member."""
    right = SharePartition._take

    def take(share: SharePartition, run: Any, member: str, now_ms: int) -> None:
        right(share, run, member, now_ms)
        run.deadline_ms = now_ms + share.settings.lock_ms // 20

    check = SharePartition._check_holder

    def check_nobody(share: SharePartition, run: Any, member: str, kind: Any) -> None:  # noqa: ARG001
        check(share, run, run.holder, kind)

    with patch.object(SharePartition, "_take", take), patch.object(SharePartition, "_check_holder", check_nobody):
        yield


@contextmanager
def forget_delays() -> Iterator[None]:
    """Store nothing of delayed records."""
    right = Persister.write

    async def write(persister: Persister, *arguments: Any) -> None:
        await right(persister, *arguments[:8], NO_DELAYS, *arguments[9:])

    with patch.object(Persister, "write", write):
        yield


@contextmanager
def let_in_too_early() -> Iterator[None]:
    """Take a record that is not due for one that is overdue, if it was looked at before a leader went."""
    right = SharePartition.__init__

    def init(share: SharePartition, *arguments: Any, **options: Any) -> None:
        right(share, *arguments, **options)
        share.delays.cursor = share.delays.cursor._replace(due_ms=share.delays.cursor.due_ms + 1_000)

    with patch.object(SharePartition, "__init__", init):
        yield


SHARED_VARIANTS = (
    write_anonymous_letters,
    archive_before_the_letter,
    answer_before_durable,
    forget_who_holds,
    forget_delays,
    let_in_too_early,
)
