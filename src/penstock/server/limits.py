"""The limits of one listener for its peers. Every one of them has a setting behind it."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.core.security.connections import UNLIMITED
from penstock.server.request_memory import RequestMemory
from penstock.server.shared_limits import SharedLimits


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What a peer may ask of us before it is slowed down or closed."""

    request_bytes_max: int = 100 * 1024 * 1024
    connections_max: int = UNLIMITED
    # New connections in a second.
    creation_rate_max: int = UNLIMITED
    idle_ms_max: int = 600_000
    # A frame must be complete within this time, however slowly its bytes arrive.
    request_read_ms_max: int = 30_000
    # A peer that has not signed in within this time is disconnected.
    sign_in_ms_max: int = 30_000
    # A peer that accepts no reply bytes for this long is disconnected.
    write_stall_ms_max: int = 30_000
    # Above this many unsent reply bytes we stop reading new requests from the peer.
    write_buffer_bytes_max: int = 4 * 1024 * 1024
    # Above this many unanswered requests we stop reading new ones from the peer.
    requests_in_flight_max: int = 500
    # Shared by all listeners of a process; None for no bound.
    request_memory: RequestMemory | None = None
    # Shared by all listeners of a broker, or of a controller; None for a listener on its own.
    shared: SharedLimits | None = None
    # The kernel's buffers of each connection; -1 leaves them to the system.
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1
