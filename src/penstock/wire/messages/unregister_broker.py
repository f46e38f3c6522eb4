"""Messages of the UnregisterBroker API.

Generated from definitions/unregister_broker.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from typing import NamedTuple


class UnregisterBrokerRequest(NamedTuple):
    """Version 0, flexible from 0."""

    broker_id: int = 0

    def response_class(self) -> type[UnregisterBrokerResponse]:
        return UnregisterBrokerResponse


class UnregisterBrokerResponse(NamedTuple):
    """Version 0, flexible from 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
