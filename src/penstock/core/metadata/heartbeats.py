"""Which brokers are alive, as the active controller sees it. Nothing here is in the log.

Every heartbeat extends a broker's session by the session timeout, on a monotonic clock. A controller that has just
become active has received no heartbeats yet, so every broker starts with a session. When the connection of a broker's
heartbeats breaks, its process is most likely gone: its session is shortened to a grace period for reconnecting. Brokers
send a heartbeat to a new controller at once, so one that stays silent has most likely died with the old controller,
often in the same process: the first session is a short one too.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class BrokerSession:
    """The session of one registered broker."""

    deadline_ms: int
    metadata_offset: int = -1
    # The log's end offset when its controlled shutdown began; others must have read up to here before it may stop.
    controlled_shutdown_offset: int = -1
    fenced: bool = True
    being_fenced: bool = False

    @property
    def shutting_down(self) -> bool:
        """Whether its controlled shutdown is under way."""
        return self.controlled_shutdown_offset >= 0


class Heartbeats:
    """The sessions of all registered brokers."""

    def __init__(self, session_timeout_ms: int, lost_connection_grace_ms: int) -> None:
        self._session_timeout_ms = session_timeout_ms
        self._grace_ms = lost_connection_grace_ms
        self._sessions: dict[int, BrokerSession] = {}

    def register(self, broker_id: int, fenced: bool, now_ms: int) -> None:
        """Start a new session; the state of an earlier incarnation is dropped."""
        self._sessions[broker_id] = BrokerSession(now_ms + self._session_timeout_ms, fenced=fenced)

    def inherit(self, broker_id: int, fenced: bool, now_ms: int, first_session_ms: int) -> None:
        """Start a session for a broker that was registered with an earlier controller."""
        self._sessions[broker_id] = BrokerSession(
            now_ms + min(first_session_ms, self._session_timeout_ms), fenced=fenced
        )

    def forget(self, broker_id: int) -> None:
        """The broker is no longer registered."""
        self._sessions.pop(broker_id, None)

    def touch(self, broker_id: int, now_ms: int) -> None:
        """The broker sent a heartbeat."""
        session = self._sessions.get(broker_id)
        if session is not None:
            session.deadline_ms = now_ms + self._session_timeout_ms

    def note(self, broker_id: int, fenced: bool, metadata_offset: int) -> None:
        """Update whether a broker is fenced, and how far it has read the metadata log. Fencing ends its shutdown."""
        session = self._sessions[broker_id]
        session.fenced = fenced
        session.metadata_offset = max(metadata_offset, session.metadata_offset)
        if fenced:
            session.controlled_shutdown_offset = -1

    def begin_controlled_shutdown(self, broker_id: int, offset: int) -> None:
        """A broker wants to stop; its leaderships were handed over by records up to `offset`. More may follow."""
        session = self._sessions[broker_id]
        session.controlled_shutdown_offset = max(offset, session.controlled_shutdown_offset)

    def shutting_down(self, broker_id: int) -> bool:
        """Whether a broker's controlled shutdown is in progress."""
        session = self._sessions.get(broker_id)
        return session is not None and session.shutting_down

    def may_go(self, broker_id: int) -> bool:
        """Whether every active broker has read the records of a broker's controlled shutdown."""
        offset = self._sessions[broker_id].controlled_shutdown_offset
        return all(
            session.metadata_offset >= offset
            for session in self._sessions.values()
            if not session.fenced and not session.shutting_down
        )

    def connection_lost(self, broker_id: int, now_ms: int) -> None:
        """The connection of a broker's heartbeats broke."""
        session = self._sessions.get(broker_id)
        if session is not None:
            session.deadline_ms = min(session.deadline_ms, now_ms + self._grace_ms)

    def extend(self, lost_ms: int) -> None:
        """The controller did not run for a while; no broker's session may end because of that."""
        for session in self._sessions.values():
            session.deadline_ms += lost_ms

    def fencing(self, broker_id: int, under_way: bool) -> None:
        """A broker whose session expired is being fenced, or no longer is: meanwhile it is not reported again."""
        session = self._sessions.get(broker_id)
        if session is not None:
            session.being_fenced = under_way

    def going(self) -> list[int]:
        """The brokers that are being fenced."""
        return [broker_id for broker_id, session in self._sessions.items() if session.being_fenced]

    def has_valid_session(self, broker_id: int, now_ms: int) -> bool:
        """Whether a broker is unfenced and its session has not expired."""
        session = self._sessions.get(broker_id)
        return session is not None and not session.fenced and session.deadline_ms >= now_ms

    def stale_brokers(self, now_ms: int) -> list[int]:
        """Unfenced brokers whose session has expired, the longest silent one first."""
        stale = [
            (session.deadline_ms, broker_id)
            for broker_id, session in self._sessions.items()
            if not session.fenced and not session.being_fenced and session.deadline_ms < now_ms
        ]
        return [broker_id for _, broker_id in sorted(stale)]

    def next_check_ms(self) -> int | None:
        """When the next session expires if no heartbeat arrives; None when every broker is fenced."""
        watched = [one for one in self._sessions.values() if not one.fenced and not one.being_fenced]
        deadlines = [session.deadline_ms for session in watched]
        return min(deadlines) + 1 if deadlines else None
