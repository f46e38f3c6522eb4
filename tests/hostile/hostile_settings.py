"""The limits of the broker that these tests misbehave towards: real ones, only smaller and shorter."""

from __future__ import annotations

REQUEST_BYTES_MAX = 16 * 1024 * 1024
WRITE_BUFFER_BYTES = 256 * 1024
READ_TIMEOUT_MS = 600
STALL_TIMEOUT_MS = 1500

SETTINGS = {
    "socket.request.max.bytes": str(REQUEST_BYTES_MAX),
    "penstock.request.read.timeout.ms": str(READ_TIMEOUT_MS),
    "penstock.write.stall.timeout.ms": str(STALL_TIMEOUT_MS),
    "penstock.connection.write.buffer.bytes": str(WRITE_BUFFER_BYTES),
}
