"""Messages of the BrokerRegistration API.

Generated from definitions/broker_registration.txt by penstock.wire.generate; edit the definition instead.
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


class BrokerRegistrationRequest(NamedTuple):
    """Versions 0-4, flexible from 0."""

    broker_id: int = 0
    cluster_id: str = ""
    incarnation_id: bytes = ZERO_UUID
    listeners: Sequence[Listener] = ()
    features: Sequence[Feature] = ()
    rack: str | None = ""
    is_migrating_zk_broker: bool = False
    log_dirs: Sequence[bytes] = ()
    previous_broker_epoch: int = -1
    intact_broker_epoch: int = -1
    intact_log_dirs: Sequence[bytes] = ()

    def response_class(self) -> type[BrokerRegistrationResponse]:
        return BrokerRegistrationResponse


class BrokerRegistrationResponse(NamedTuple):
    """Versions 0-4, flexible from 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    broker_epoch: int = -1
