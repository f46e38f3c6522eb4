"""Incremental fetch sessions (KIP-227): a client names its partitions once, then only what changes.

Theory of operation. A full fetch with epoch 0 asks for a session; the reply carries its id. Later fetches carry the
id and the next epoch, the partitions to add or change, and those to forget; the reply only holds partitions that have
something new. Session id 0 with epoch -1 is a plain fetch without a session. A wrong epoch or an evicted id gets an
error, after which the client starts again. The cache is bounded: the least recently used session is evicted once it has
been idle for `EVICTION_AGE_MS`; for a follower's new session it is evicted at once. A follower's session also ends with
its connection: every partition of it calls its watcher at every append, and a follower that connects again starts anew.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from penstock.model.errors import ErrorCode

EVICTION_AGE_MS = 120_000
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EPOCH_MAX = 2**31 - 1

Key = Hashable


class Wanted(NamedTuple):
    """What a client asks of one partition."""

    offset: int
    bytes_max: int
    leader_epoch: int = -1
    log_start_offset: int = -1
    last_fetched_epoch: int = -1


@dataclass(slots=True)
class Cached:
    """One partition of a session, and what the client last got for it."""

    wanted: Wanted
    high_watermark: int = -1
    log_start_offset: int = -1


class Session:
    """The partitions one client follows, in the order in which they are served."""

    __slots__ = ("epoch", "is_privileged", "last_used_ms", "partitions", "session_id")

    def __init__(self, session_id: int, now_ms: int, is_privileged: bool = False) -> None:
        self.session_id = session_id
        self.is_privileged = is_privileged
        self.epoch = 1
        self.last_used_ms = now_ms
        self.partitions: OrderedDict[Key, Cached] = OrderedDict()

    def update(self, wanted: Iterable[tuple[Key, Wanted]], forgotten: Iterable[Key]) -> None:
        """Add or change the wanted partitions, drop the forgotten ones."""
        for key, want in wanted:
            cached = self.partitions.get(key)
            if cached is None:
                self.partitions[key] = Cached(want)
            else:
                cached.wanted = want
        for key in forgotten:
            self.partitions.pop(key, None)

    def must_include(self, key: Key, high_watermark: int, log_start_offset: int, size_bytes: int, error: int) -> bool:
        """Whether the response must include this partition; remembers what it includes.

        A partition that returned data goes to the end of the order, so that the first ones cannot starve the rest.
        """
        cached = self.partitions.get(key)
        if cached is None:
            return True
        news = bool(size_bytes) or error != 0
        if cached.high_watermark != high_watermark or cached.log_start_offset != log_start_offset:
            cached.high_watermark = high_watermark
            cached.log_start_offset = log_start_offset
            news = True
        if error:
            # The client will start again from scratch, so whatever it finds then must be included.
            cached.high_watermark = -1
        elif size_bytes:
            self.partitions.move_to_end(key)
        return news


class FetchContext(NamedTuple):
    """How one fetch is served: its session if any, whether it is incremental, or the error to answer with."""

    error: ErrorCode = ErrorCode.NONE
    session: Session | None = None
    incremental: bool = False

    @property
    def session_id(self) -> int:
        """The id to answer with; 0 means that there is no session."""
        return self.session.session_id if self.session is not None else 0


class SessionCache:
    """All sessions of one broker, at most `slots` of them."""

    def __init__(self, slots: int, random: Random) -> None:
        # Called with sessions that have ended.
        self.on_closed: Callable[[Session], None] | None = None
        self._slots = slots
        self._random = random
        self._sessions: OrderedDict[int, Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def open(
        self,
        session_id: int,
        epoch: int,
        wanted: Iterable[tuple[Key, Wanted]],
        forgotten: Iterable[Key],
        now_ms: int,
        *,
        is_privileged: bool = False,
    ) -> FetchContext:
        """Decide how to serve a fetch with this id and epoch. Followers are privileged: they always get a session."""
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            # Both start a full fetch, and either one ends the session that was named.
            self.close(session_id)
            if epoch == FINAL_EPOCH:
                return FetchContext()
            return self._create(wanted, now_ms, is_privileged)
        session = self._sessions.get(session_id)
        if session is None:
            return FetchContext(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            return FetchContext(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        session.update(wanted, forgotten)
        session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        session.last_used_ms = now_ms
        self._sessions.move_to_end(session_id)
        return FetchContext(session=session, incremental=True)

    def _create(self, wanted: Iterable[tuple[Key, Wanted]], now_ms: int, is_privileged: bool) -> FetchContext:
        partitions = list(wanted)
        if not partitions or not self._make_room(now_ms, is_privileged):
            return FetchContext()
        session_id = 0
        while session_id == 0 or session_id in self._sessions:
            session_id = self._random.randrange(1, 2**31)
        session = Session(session_id, now_ms, is_privileged)
        session.update(partitions, ())
        self._sessions[session_id] = session
        return FetchContext(session=session)

    def close(self, session_id: int) -> None:
        """End a session, if it has not ended yet."""
        session = self._sessions.pop(session_id, None)
        if session is not None and self.on_closed is not None:
            self.on_closed(session)

    def _make_room(self, now_ms: int, is_privileged: bool) -> bool:
        if len(self._sessions) < self._slots:
            return True
        for oldest in self._sessions.values():
            if oldest.is_privileged and now_ms - oldest.last_used_ms < EVICTION_AGE_MS:
                continue
            if is_privileged or now_ms - oldest.last_used_ms >= EVICTION_AGE_MS:
                self.close(oldest.session_id)
                return True
            return False
        # Followers are few, and without a session each of their fetches names every partition.
        return is_privileged
