"""Messages of the FindCoordinator API.

Generated from definitions/find_coordinator.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class FindCoordinatorRequest(NamedTuple):
    """Versions 0-6, flexible from 3."""

    key: str = ""
    key_type: int = 0
    coordinator_keys: Sequence[str] = ()

    def response_class(self) -> type[FindCoordinatorResponse]:
        return FindCoordinatorResponse


class Coordinator(NamedTuple):
    key: str = ""
    node_id: int = 0
    host: str = ""
    port: int = 0
    error_code: int = 0
    error_message: str | None = ""


class FindCoordinatorResponse(NamedTuple):
    """Versions 0-6, flexible from 3."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    node_id: int = 0
    host: str = ""
    port: int = 0
    coordinators: Sequence[Coordinator] = ()
