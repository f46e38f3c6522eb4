"""How much load one gateway accepts, and how long callers may take."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.gateway.named_limits import NamedLimits


@dataclass(frozen=True, slots=True)
class Limits(NamedLimits):
    """Limits of HTTP on both ports. Each of them can be set with `--limit`."""

    body_bytes_max: int = 20 * 1024 * 1024
    requests_max: int = 2000
    requests_per_caller_max: int = 1000
    query_fields_max: int = 100
    # The request line and headers.
    head_bytes_max: int = 64 * 1024
    # Body bytes beyond the first 64 KiB of each body, received or being processed, in total.
    large_bodies_bytes_max: int = 256 * 1024 * 1024
    large_bodies_bytes_per_caller_max: int = 128 * 1024 * 1024
    connections_max: int = 4000
    connections_per_caller_max: int = 1000
    # From connecting, or from a request's first byte, to the end of its head.
    head_timeout_s: float = 10.0
    # After this time a body must have arrived at `bytes_per_s_min` on average.
    body_timeout_s: float = 20.0
    # Between two requests.
    idle_timeout_s: float = 60.0
    # Within this time a caller must have read `bytes_per_s_min` of a response that waits for it.
    reader_timeout_s: float = 30.0
    bytes_per_s_min: int = 2048
