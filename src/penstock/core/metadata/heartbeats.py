"""Which brokers are alive, as the active controller sees it. Nothing here is in the log.

Every heartbeat extends a broker's session by the session timeout, on a monotonic clock. A controller that has just
become active has received no heartbeats yet, so every broker starts with a session. When the connection of a broker's
heartbeats breaks, its process is most likely gone: its session is shortened to a grace period for reconnecting. Brokers
send a heartbeat to a new controller at once, so one that stays silent has most likely died with the old controller,
often in the same process: the first session is a short one too.

Who is registered and who is fenced is in the image, and only there. A broker that is in it has a session when it is
looked at, and a session belongs to one incarnation: nothing depends on whether a request that registered or unfenced
a broker came to its end.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.core.metadata.image import Image


@dataclass(slots=True)
class BrokerSession:
    """The session of one incarnation of a broker."""

    broker_epoch: int
    deadline_ms: int
    metadata_offset: int = -1
    # The log's end offset when its controlled shutdown began; others must have read up to here before it may stop.
    controlled_shutdown_offset: int = -1
    being_fenced: bool = False


class Heartbeats:
    """The sessions of all registered brokers."""

    def __init__(self, image: Image, session_timeout_ms: int, lost_connection_grace_ms: int) -> None:
        self._image = image
        self._session_timeout_ms = session_timeout_ms
        self._grace_ms = lost_connection_grace_ms
        self._sessions: dict[int, BrokerSession] = {}

    def _known(self, broker_id: int) -> BrokerSession | None:
        """The session of a broker's current incarnation, if it has one."""
        session, broker = self._sessions.get(broker_id), self._image.brokers.get(broker_id)
        return session if session is not None and broker is not None and session.broker_epoch == broker.epoch else None

    def _session(self, broker_id: int, now_ms: int) -> BrokerSession | None:
        """The same; a registered broker that has none gets one."""
        if broker_id in self._image.brokers and self._known(broker_id) is None:
            self._begin(broker_id, now_ms + self._session_timeout_ms)
        return self._known(broker_id)

    def _begin(self, broker_id: int, deadline_ms: int) -> None:
        self._sessions[broker_id] = BrokerSession(self._image.brokers[broker_id].epoch, deadline_ms)

    def _unfenced(self) -> list[int]:
        return [broker.broker_id for broker in self._image.brokers.values() if not broker.fenced]

    def register(self, broker_id: int, now_ms: int) -> None:
        """Start a new session of a registered broker; the state of an earlier one is dropped."""
        self._begin(broker_id, now_ms + self._session_timeout_ms)

    def inherit(self, broker_id: int, now_ms: int, first_session_ms: int) -> None:
        """Start a session for a broker that was registered with an earlier controller."""
        self._begin(broker_id, now_ms + min(first_session_ms, self._session_timeout_ms))

    def forget(self, broker_id: int) -> None:
        """The broker is no longer registered."""
        self._sessions.pop(broker_id, None)

    def touch(self, broker_id: int, now_ms: int) -> None:
        """The broker sent a heartbeat."""
        session = self._session(broker_id, now_ms)
        if session is not None:
            session.deadline_ms = now_ms + self._session_timeout_ms

    def note(self, broker_id: int, metadata_offset: int) -> None:
        """Update how far a broker has read the metadata log."""
        session = self._known(broker_id)
        if session is not None:
            session.metadata_offset = max(metadata_offset, session.metadata_offset)

    def begin_controlled_shutdown(self, broker_id: int, offset: int) -> None:
        """A broker wants to stop; its leaderships were handed over by records up to `offset`. More may follow."""
        session = self._known(broker_id)
        if session is not None:
            session.controlled_shutdown_offset = max(offset, session.controlled_shutdown_offset)

    def shutting_down(self, broker_id: int) -> bool:
        """Whether a broker's controlled shutdown is in progress; when it is fenced it has ended."""
        session = self._known(broker_id)
        is_begun = session is not None and session.controlled_shutdown_offset >= 0
        return is_begun and not self._image.brokers[broker_id].fenced

    def may_go(self, broker_id: int) -> bool:
        """Whether every active broker has read the records of a broker's controlled shutdown."""
        own = self._known(broker_id)
        others = [self._known(one) for one in self._unfenced() if not self.shutting_down(one)]
        return own is not None and all(
            other is not None and other.metadata_offset >= own.controlled_shutdown_offset for other in others
        )

    def connection_lost(self, broker_id: int, now_ms: int) -> None:
        """The connection of a broker's heartbeats broke."""
        session = self._session(broker_id, now_ms)
        if session is not None:
            session.deadline_ms = min(session.deadline_ms, now_ms + self._grace_ms)

    def extend(self, lost_ms: int) -> None:
        """The controller did not run for a while; no broker's session may end because of that."""
        for session in self._sessions.values():
            session.deadline_ms += lost_ms

    def fencing(self, broker_id: int, under_way: bool) -> None:
        """A broker whose session expired is being fenced, or no longer is: meanwhile it is not reported again."""
        session = self._known(broker_id)
        if session is not None:
            session.being_fenced = under_way

    def going(self) -> list[int]:
        """The brokers that are being fenced."""
        return [broker_id for broker_id in self._unfenced() if (one := self._known(broker_id)) and one.being_fenced]

    def has_valid_session(self, broker_id: int, now_ms: int) -> bool:
        """Whether a broker is unfenced and its session has not expired."""
        session = self._session(broker_id, now_ms)
        is_valid = session is not None and session.deadline_ms >= now_ms
        return is_valid and not self._image.brokers[broker_id].fenced

    def stale_brokers(self, now_ms: int) -> list[int]:
        """Unfenced brokers whose session has expired, the longest silent one first."""
        sessions = [(broker_id, self._session(broker_id, now_ms)) for broker_id in self._unfenced()]
        stale = [
            (session.deadline_ms, broker_id)
            for broker_id, session in sessions
            if session is not None and not session.being_fenced and session.deadline_ms < now_ms
        ]
        return [broker_id for _, broker_id in sorted(stale)]

    def next_check_ms(self, now_ms: int) -> int:
        """When to look at the sessions again: the next one expires if no heartbeat arrives, or a new one might."""
        sessions = [self._known(broker_id) for broker_id in self._unfenced()]
        deadlines = [one.deadline_ms + 1 for one in sessions if one is not None and not one.being_fenced]
        return min(deadlines, default=now_ms + self._session_timeout_ms)
