"""Carries the dead letters of one share-partition to the group's topic for them.

A letter is sent with the identity that was stored with it until its partition has it, and only then archived. The next
leader sends what is not archived with the same identities, so that a letter is neither lost nor written twice
(docs/adr/0016). While the topic cannot be written the letters wait, and count as records in flight.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from penstock.core.backoff import Backoff
from penstock.core.share.contract import DeadLetter, Write
from penstock.core.share.dead_letters import TOO_LARGE, Origin, build_letter
from penstock.core.share.partition import SharePartition
from penstock.core.share.runs import NO_PRODUCER_ID
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.env import Env
from penstock.runtime.share.counters import ShareCounters
from penstock.runtime.share.dead_letter_topics import DeadLetterDestination, DeadLetterTopics
from penstock.runtime.share.settings import ShareGroupSettings
from penstock.wire.records import Record

# So many letters are on their way at once; one, until the partition is known to take them.
WINDOW_MAX = 16
RETRY_MIN_MS = 50
RETRY_MAX_MS = 5_000
_TOO_LARGE = frozenset((ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE))
# The partition does not know the producer as it should: it was cut, deleted or lost.
_STRANGE = frozenset((ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID))

logger = logging.getLogger("penstock.share")


class DeadLetterWriter:
    """`store` makes a change durable, `read_record` reads one record of the log, None if it is gone."""

    def __init__(
        self,
        env: Env,
        share: SharePartition,
        origin: Origin,
        topics: DeadLetterTopics,
        counters: ShareCounters,
        settings: Callable[[], ShareGroupSettings],
        read_record: Callable[[int], Awaitable[Record | None]],
        store: Callable[[Write | None], Awaitable[None]],
        when_idle: Callable[[], None],
    ) -> None:
        self._env = env
        self._share = share
        self._origin = origin
        self._topics = topics
        self._counters = counters
        self._settings = settings
        self._read_record = read_record
        self._store = store
        self._when_idle = when_idle
        self._task: asyncio.Task[None] | None = None
        self._window = 1
        # Whose letters the partition takes.
        self._known_producer = NO_PRODUCER_ID
        self._complaint = ""
        self._is_closed = False

    @property
    def is_busy(self) -> bool:
        """Whether letters are on their way."""
        return self._task is not None

    def nudge(self) -> None:
        """There may be letters."""
        if self._task is None and not self._is_closed and self._share.has_letters:
            self._task = self._env.spawn(self._carry(), f"dead letters of {self._origin.topic}")

    def close(self) -> None:
        """Another broker leads the share-partition; what is on its way may arrive."""
        self._is_closed = True

    async def _carry(self) -> None:
        backoff = Backoff(RETRY_MIN_MS, RETRY_MAX_MS)
        try:
            while self._share.has_letters and not self._is_closed:
                try:
                    await self._carry_some()
                    backoff.succeeded()
                except ApiError as error:
                    self._window = 1
                    self._complain(error)
                    await asyncio.sleep(backoff.failed() / 1000)
        finally:
            self._task = None
        if not self._is_closed:
            self._when_idle()

    async def _carry_some(self) -> None:
        """Write some letters and archive them; raises ApiError where one could not be written."""
        share, settings = self._share, self._settings()
        letters = share.letters()
        if not settings.dead_letter_topic:
            # The group wants no dead letters any more.
            await self._store(share.archive([letter.offset for letter in letters]) or share.renew_letters())
            return
        if not letters:
            await self._store(share.renew_letters())
            return
        place = await self._topics.place_of(settings.dead_letter_topic, self._origin.partition)
        producer_id = letters[0].producer_id
        window = self._window if producer_id == self._known_producer else 1
        sent = [letter for letter in letters[:window] if letter.producer_id == producer_id]
        codes = await self._write(place, sent, copies=settings.copies_dead_letters)
        failed = next((index for index, code in enumerate(codes) if code is not ErrorCode.NONE), len(codes))
        if failed:
            self._window = min(2 * window, WINDOW_MAX)
            self._known_producer = producer_id
            self._counters.letters += failed
            await self._store(share.archive([letter.offset for letter in sent[:failed]]))
            self._complaint = ""
        if failed == len(codes) or self._is_closed:
            return
        code = codes[failed]
        self._counters.letter_failures += 1
        if code in _STRANGE and not failed:
            # Nothing of this producer is under way: the partition will never take what it has left.
            await self._store(share.renew_letters(producer_id))
        if code in _TOO_LARGE and failed:
            # It is the next one, and goes without its record.
            self._window = 1
            return
        raise ApiError(code, f"{place.name}-{place.partition} answered {code.name}")

    async def _write(
        self, place: DeadLetterDestination, letters: Sequence[DeadLetter], *, copies: bool
    ) -> list[ErrorCode]:
        self._counters.letter_requests += len(letters)
        codes = await self._topics.write(place, [await self._batch(letter, copies=copies) for letter in letters])
        if codes[0] in _TOO_LARGE:
            codes = await self._topics.write(place, [await self._batch(letters[0], copies=False, note=TOO_LARGE)])
        return codes

    async def _batch(self, letter: DeadLetter, *, copies: bool, note: str = "") -> bytes:
        record = await self._read_record(letter.offset)
        return build_letter(letter, self._origin, record, self._env.now_ms(), copies=copies, note=note)

    def _complain(self, error: ApiError) -> None:
        """Once for each reason."""
        if error.message != self._complaint and not self._is_closed:
            self._complaint = error.message
            topic, partition, group = self._origin
            logger.warning(
                "dead letters of group %s in %s-%d wait and are tried again: %s", group, topic, partition, error.message
            )
