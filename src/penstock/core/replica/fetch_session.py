"""Incremental fetch sessions (KIP-227): a client names its partitions once, then only what changes.

Theory of operation. A full fetch with epoch 0 requests a session; the reply carries its id. Later fetches carry the
id and the next epoch, the partitions to add or change, and those to forget; the reply only holds partitions that have
something new. Session id 0 with epoch -1 is a plain fetch without a session. A wrong epoch or an evicted id gets an
error, after which the client starts again.

The cache is bounded in sessions, and in bytes of those of clients. Where there is no room, sessions are evicted that
have been idle for `EVICTION_AGE_MS`, and then the least recently used ones of the owner (a principal) that holds more
than the one that needs room would. An owner that already holds the most gets no session: its fetches name all their
partitions, which costs more and always works.

Clients do not evict the sessions of followers; a follower's session evicts theirs at once. It also ends with its
connection: every partition of it calls its watcher at every append, and a follower that connects again starts anew.
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
BYTES_MAX = 32 * 1024 * 1024
# What a session and each of its partitions hold in memory, names of topics aside.
SESSION_BYTES = 1_000
PARTITION_BYTES = 700

Key = Hashable


class Wanted(NamedTuple):
    """What a client requests of one partition."""

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


class FetchSession:
    """The partitions one client follows, in the order in which they are served."""

    __slots__ = ("epoch", "is_privileged", "last_used_ms", "owner", "partitions", "session_id", "size_bytes")

    def __init__(self, session_id: int, now_ms: int, is_privileged: bool = False, owner: Hashable = None) -> None:
        self.session_id = session_id
        self.is_privileged = is_privileged
        self.owner = owner
        self.size_bytes = SESSION_BYTES
        self.epoch = 1
        self.last_used_ms = now_ms
        self.partitions: OrderedDict[Key, Cached] = OrderedDict()

    def update(self, wanted: Iterable[tuple[Key, Wanted]], forgotten: Iterable[Key]) -> None:
        """Add or change the wanted partitions, drop the forgotten ones."""
        for key, want in wanted:
            cached = self.partitions.get(key)
            if cached is None:
                self.partitions[key] = Cached(want)
                self.size_bytes += _size_of(key)
            else:
                cached.wanted = want
        for key in forgotten:
            if self.partitions.pop(key, None) is not None:
                self.size_bytes -= _size_of(key)
                assert self.size_bytes >= SESSION_BYTES, "partitions take no less than nothing"

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
    session: FetchSession | None = None
    incremental: bool = False

    @property
    def session_id(self) -> int:
        """The id to answer with; 0 means that there is no session."""
        assert self.error is ErrorCode.NONE or self.session is None, "an error comes without a session"
        assert not self.incremental or self.session is not None, "only sessions have increments"
        return self.session.session_id if self.session is not None else 0


@dataclass(slots=True)
class _Holding:
    """What the sessions of one owner take."""

    sessions: int = 0
    size_bytes: int = 0


class SessionCache:
    """All sessions of one broker: at most `slots`, those of clients with at most `bytes_max`."""

    def __init__(self, slots: int, random: Random, bytes_max: int = BYTES_MAX) -> None:
        # Called with sessions that have ended.
        self.on_closed: Callable[[FetchSession], None] | None = None
        self._slots = slots
        self._bytes_max = bytes_max
        self._random = random
        # The least recently used first.
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        # Of clients, by owner.
        self._holdings: dict[Hashable, _Holding] = {}
        self._size_bytes = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def size_bytes(self) -> int:
        """What the sessions of clients hold in memory, about."""
        return self._size_bytes

    def open(
        self,
        session_id: int,
        epoch: int,
        wanted: Iterable[tuple[Key, Wanted]],
        forgotten: Iterable[Key],
        now_ms: int,
        *,
        owner: Hashable = None,
        is_privileged: bool = False,
    ) -> FetchContext:
        """Decide how to serve a fetch with this id and epoch.

        Followers are privileged: they always get a session. The session of another owner is as unknown as none.
        """
        session = self._sessions.get(session_id)
        if session is not None and (session.is_privileged, session.owner) != (is_privileged, owner):
            session = None
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            # Both start a full fetch, and either one ends the session that was named.
            if session is not None:
                self.close(session_id)
            if epoch == FINAL_EPOCH:
                return FetchContext()
            return self._create(wanted, now_ms, owner, is_privileged)
        if session is None:
            return FetchContext(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            return FetchContext(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        self._sessions.move_to_end(session_id)
        session.last_used_ms = now_ms
        size_bytes = session.size_bytes
        session.update(wanted, forgotten)
        if session.size_bytes != size_bytes and not is_privileged:
            self._charge(owner, 0, session.size_bytes - size_bytes)
            if not self._make_room(session, now_ms):
                # The client starts again, with all its partitions, and without a session if there is still no room.
                self.close(session_id)
                return FetchContext(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        assert 0 < session.epoch <= EPOCH_MAX, "epochs of a session skip 0 and -1"
        assert session.session_id == session_id
        return FetchContext(session=session, incremental=True)

    def _create(
        self, wanted: Iterable[tuple[Key, Wanted]], now_ms: int, owner: Hashable, is_privileged: bool
    ) -> FetchContext:
        session_id = 0
        while session_id == 0 or session_id in self._sessions:
            session_id = self._random.randrange(1, 2**31)
        session = FetchSession(session_id, now_ms, is_privileged, owner)
        session.update(wanted, ())
        if not session.partitions:
            return FetchContext()
        assert 0 < session_id < 2**31, "0 is no session"
        assert session.epoch == 1, "the first fetch had epoch 0"
        self._sessions[session_id] = session
        if not is_privileged:
            self._charge(owner, 1, session.size_bytes)
        if not self._make_room(session, now_ms):
            self.close(session_id)
            return FetchContext()
        return FetchContext(session=session)

    def close(self, session_id: int) -> None:
        """End a session, if it has not ended yet."""
        session = self._sessions.pop(session_id, None)
        if session is None:
            return
        if not session.is_privileged:
            self._charge(session.owner, -1, -session.size_bytes)
        assert session.session_id == session_id
        if self.on_closed is not None:
            self.on_closed(session)

    def _charge(self, owner: Hashable, sessions: int, size_bytes: int) -> None:
        holding = self._holdings.setdefault(owner, _Holding())
        holding.sessions += sessions
        holding.size_bytes += size_bytes
        self._size_bytes += size_bytes
        assert holding.sessions >= 0
        assert holding.size_bytes >= 0
        assert self._size_bytes >= holding.size_bytes, "an owner has no more than all"
        if not holding.sessions:
            assert holding.size_bytes == 0, "memory is only held by sessions"
            del self._holdings[owner]

    def _make_room(self, session: FetchSession, now_ms: int) -> bool:
        """Evict others until the limits are kept; whether they are kept with this session."""
        while len(self._sessions) > self._slots or self._size_bytes > self._bytes_max:
            evicted = self._evicted_for(session, now_ms)
            if evicted is None:
                # Followers are few, and without a session each of their fetches names every partition.
                return session.is_privileged
            self.close(evicted.session_id)
        assert len(self._sessions) <= self._slots
        assert self._size_bytes <= self._bytes_max
        return True

    def _evicted_for(self, session: FetchSession, now_ms: int) -> FetchSession | None:
        """The session to end first, so that there is room for this one; None if there is none to end."""
        is_by_count = len(self._sessions) > self._slots
        for oldest in self._sessions.values():
            if now_ms - oldest.last_used_ms < EVICTION_AGE_MS:
                break
            if oldest is not session and (session.is_privileged or not oldest.is_privileged):
                return oldest
        if not self._holdings:
            return None

        def share(owner: Hashable) -> int:
            return self._holdings[owner].sessions if is_by_count else self._holdings[owner].size_bytes

        assert session.is_privileged or session.owner in self._holdings, "it is counted already"
        largest = max(self._holdings, key=share)
        if not session.is_privileged and share(largest) <= share(session.owner):
            return None
        return next(each for each in self._sessions.values() if not each.is_privileged and each.owner == largest)


def _size_of(key: Key) -> int:
    # Names are in the requests, and rarely shared by those of different sessions.
    return PARTITION_BYTES + len(getattr(key, "topic", ""))
