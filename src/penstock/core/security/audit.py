"""The audit trail's events, and the bounded queue that they wait in until they are written.

What happens again and again (a client that is denied something and keeps trying) is written at once, and then once in
each `REPEATS_MS` with a count. Of one source, a principal at an address, only so many different events are kept at
once; its others are summed up in one event, so that they hide neither each other nor those of other sources. Where
there are too many sources, the events of all further ones are summed up. What there is no room for is dropped and
counted; the counts, one for each principal, are written as events once there is room again. However many events one
principal causes, there is room for those of others: it may have a multiple of the room that is left, and no more. Times
are in milliseconds since the epoch.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

VERSION = 1
OK = "OK"
# Repeated events are summed up over this time, so many different ones at once.
REPEATS_MS = 10_000
REPEATS_MAX = 2_000
REPEATS_OF_SOURCE_MAX = 50
# A principal may have so many times as many events in the queue as there is room left.
ROOM_FACTOR = 4
# So many principals' dropped events are counted apart.
DROPPED_OF_MAX = 50
TEXT_MAX = 500
DETAILS_MAX = 50


class EventType(StrEnum):
    """What an event is about."""

    CHANGE = "change"
    DENIED = "denied"
    SIGN_IN_REFUSED = "sign_in_refused"
    DROPPED = "dropped"


class Who(NamedTuple):
    """Who did it, and from where."""

    principal: str = ""
    host: str = ""
    client_id: str = ""
    listener: str = ""


class AuditEvent(NamedTuple):
    """One thing that a client did, or tried to do."""

    type: EventType
    who: Who = Who()
    api: str = ""
    operation: str = ""
    resource_type: str = ""
    resource: str = ""
    outcome: str = OK
    message: str = ""
    details: tuple[tuple[str, str], ...] = ()

    def to_json(self, broker_id: int, time: str, count: int) -> bytes:
        """The event as it is written; documented in docs/security.md."""
        document: dict[str, object] = {
            "version": VERSION,
            "time": time,
            "broker": broker_id,
            "type": self.type.value,
            **self.who._asdict(),
            "api": self.api,
            "operation": self.operation,
            "resource_type": self.resource_type,
            "resource": self.resource,
            "outcome": self.outcome,
            "message": self.message,
            "details": dict(self.details),
            "count": count,
        }
        kept = {name: value for name, value in document.items() if value not in ("", {})}
        return json.dumps(kept, ensure_ascii=False).encode("utf-8", "backslashreplace")


class Queued(NamedTuple):
    """An event that waits to be written; its time is the monotonic clock's."""

    event: AuditEvent
    time_ms: int
    times: int = 1


# What events are limited by: a principal at an address.
Source = tuple[str, str]


def _source(event: AuditEvent) -> Source:
    return event.who.principal, event.who.host


def _owner(event: AuditEvent) -> Who:
    """Whose share of the queue an event takes: its principal's, or its address's before any has signed in."""
    return Who(event.who.principal) if event.who.principal else Who(host=event.who.host)


class _Repeats:
    """An event that was written and may come again."""

    __slots__ = ("count", "last_ms", "until_ms")

    def __init__(self, until_ms: int) -> None:
        self.until_ms = until_ms
        self.count = 0
        self.last_ms = 0


class AuditQueue:
    """Holds at most `size_max` events."""

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._queue: deque[Queued] = deque()
        self._repeats: dict[AuditEvent, _Repeats] = {}
        # How many of them each source has.
        self._sources: Counter[Source] = Counter()
        # How many events each principal has in the queue, and how many of it were dropped.
        self._owners: Counter[Who] = Counter()
        self._unreported: Counter[Who] = Counter()
        # All that there was no room for.
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, event: AuditEvent, now_ms: int, *, may_repeat: bool = False) -> None:
        """Queue an event. One that `may_repeat` is summed up with others like it."""
        if may_repeat:
            event = self._grouped(event)
            known = self._repeats.get(event)
            if known is not None:
                known.count += 1
                known.last_ms = now_ms
                return
            self._repeats[event] = _Repeats(now_ms + REPEATS_MS)
            self._sources[_source(event)] += 1
        owner = _owner(event)
        if self._owners[owner] >= ROOM_FACTOR * (self._size_max - len(self._queue)):
            self._drop(owner, 1)
        else:
            self._append(Queued(event, now_ms))

    def _append(self, queued: Queued) -> None:
        self._queue.append(queued)
        self._owners[_owner(queued.event)] += 1

    def _grouped(self, event: AuditEvent) -> AuditEvent:
        """The event itself, or what it is counted in where there are too many different ones."""
        if event in self._repeats:
            return event
        of_source = self._sources[_source(event)]
        who = Who(event.who.principal, event.who.host)
        if len(self._repeats) >= REPEATS_MAX and not of_source:
            who = Who()
        elif of_source < REPEATS_OF_SOURCE_MAX:
            return event
        return AuditEvent(event.type, who, message="further events of many kinds, which are only counted")

    def _drop(self, owner: Who, count: int) -> None:
        self.dropped += count
        is_apart = owner in self._unreported or len(self._unreported) < DROPPED_OF_MAX
        self._unreported[owner if is_apart else Who()] += count
        if not self._owners[owner]:
            del self._owners[owner]

    def take(self, count: int, now_ms: int) -> list[Queued]:
        """The next events to write, with what has been repeated until now."""
        for event, repeats in list(self._repeats.items()):
            if repeats.until_ms > now_ms:
                continue
            if not repeats.count:
                del self._repeats[event]
                self._sources[_source(event)] -= 1
                if not self._sources[_source(event)]:
                    del self._sources[_source(event)]
            elif len(self._queue) < self._size_max:
                self._append(Queued(event, repeats.last_ms, repeats.count))
                repeats.count = 0
                repeats.until_ms = now_ms + REPEATS_MS
        taken = [self._queue.popleft() for _ in range(min(count, len(self._queue)))]
        for queued in taken:
            owner = _owner(queued.event)
            self._owners[owner] -= 1
            if not self._owners[owner]:
                del self._owners[owner]
        while self._unreported and len(taken) < count:
            owner, times = self._unreported.popitem()
            note = AuditEvent(EventType.DROPPED, owner, message="events that there was no room for were dropped")
            taken.append(Queued(note, now_ms, times))
        return taken

    def put_back(self, taken: Sequence[Queued]) -> None:
        """What was taken could not be written; the oldest events stay, the newest have no room."""
        for queued in reversed(taken):
            if queued.event.type is EventType.DROPPED:
                self._unreported[queued.event.who] += queued.times
            elif len(self._queue) < self._size_max:
                self._queue.appendleft(queued)
                self._owners[_owner(queued.event)] += 1
            else:
                self._drop(_owner(queued.event), queued.times)


def shortened(text: object) -> str:
    """A text of a client's, short enough to be kept."""
    shown = "" if text is None else str(text)
    return shown if len(shown) <= TEXT_MAX else shown[: TEXT_MAX - 1] + "…"


def details_of(values: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    """Details of an event: not too many, and none too long."""
    rows = [(shortened(name), shortened(value)) for name, value in list(values.items())[:DETAILS_MAX]]
    if len(values) > DETAILS_MAX:
        rows.append(("…", f"{len(values) - DETAILS_MAX} more"))
    return tuple(rows)
