"""Messages of the ControllerRegistration API.

Generated from definitions/controller_registration.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.ids import ZERO_UUID


class Listener(NamedTuple):
    name: str = ""
    host: str = ""
    port: int = 0
    security_protocol: int = 0


class Feature(NamedTuple):
    name: str = ""
    min_supported_version: int = 0
    max_supported_version: int = 0


class ControllerRegistrationRequest(NamedTuple):
    """Version 0, flexible from 0."""

    controller_id: int = 0
    incarnation_id: bytes = ZERO_UUID
    zk_migration_ready: bool = False
    listeners: Sequence[Listener] = ()
    features: Sequence[Feature] = ()

    def response_class(self) -> type[ControllerRegistrationResponse]:
        return ControllerRegistrationResponse


class ControllerRegistrationResponse(NamedTuple):
    """Version 0, flexible from 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
