"""One caller's own connections to the brokers, and the services that use them."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import KafkaException

from penstock.client.settings import Credentials
from penstock.gateway.callers.rights import BrokerRights
from penstock.gateway.kafka.broker_requests import BrokerWire
from penstock.gateway.kafka.errors import problem_of
from penstock.gateway.registry.api.services import CallerRegistry
from penstock.gateway.registry.rights import ALL_RIGHTS, SubjectRights
from penstock.gateway.rest.services import RestServices
from penstock.gateway.services import SharedParts, open_services
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.web.problem import Problem

log = logging.getLogger(__name__)

# A request of a caller that brokers throttle waits up to this long; beyond that it gets 429 with Retry-After.
THROTTLE_WAIT_S = 1.0
THROTTLED = 42905


class CallerSession:
    """One caller. `principal` is empty for the only caller of a gateway without sign-in."""

    def __init__(
        self,
        parts: SharedParts,
        settings: GatewaySettings,
        principal: str = "",
        credentials: Credentials | None = None,
    ) -> None:
        self.principal = principal
        self.settings = settings
        self.active = 0
        self.used_at = time.monotonic()
        self.is_closed = False
        self._parts = parts
        self._stack = contextlib.AsyncExitStack()
        self._wire = BrokerWire(settings, credentials)
        self._stack.push_async_callback(self._wire.stop)
        self._broker_rights = BrokerRights(principal, self._wire) if principal else None
        self._rights: SubjectRights = self._broker_rights or ALL_RIGHTS
        self._services: RestServices | None = None
        self._throttled_until = 0.0

    @property
    def services(self) -> RestServices | None:
        """The caller's parts behind the REST port; None until they are open."""
        return self._services

    async def open(self) -> RestServices:
        """Open the caller's parts behind the REST port, unless they are open; returns them."""
        if self._services is None:
            try:
                self._services = await open_services(
                    self._parts,
                    self.settings,
                    self._stack,
                    wire=self._wire,
                    rights=self._rights,
                    check_read=self._broker_rights.check_read if self._broker_rights is not None else None,
                    owner=self.principal,
                )
            except KafkaException as error:
                raise problem_of(error) from None
        return self._services

    async def registry(self) -> CallerRegistry:
        """The caller's services on the registry's port."""
        return CallerRegistry(self._parts.registry, self._rights, self._parts.cluster_id)

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep the session open while a request is served."""
        self.active += 1
        try:
            yield
        finally:
            self.active -= 1
            self.used_at = time.monotonic()

    def throttled(self, event: Any) -> None:
        """Handle librdkafka's report that a broker throttles this caller."""
        self._throttled_until = max(self._throttled_until, time.monotonic() + event.throttle_time)

    @property
    def is_throttled(self) -> bool:
        """Whether brokers throttle this caller now."""
        return self._throttled_for_s() > 0

    def wait_s(self) -> float:
        """How long a request must wait because brokers throttle this caller; 429 if that is too long."""
        left_s = self._throttled_for_s()
        if left_s > THROTTLE_WAIT_S:
            seconds = math.ceil(left_s)
            raise Problem(
                THROTTLED,
                f"{self.principal} has exceeded its quota at the brokers",
                f"try again in {seconds} s",
                headers={"Retry-After": str(seconds)},
            )
        return left_s

    def _throttled_for_s(self) -> float:
        return max(0.0, max(self._throttled_until, self._wire.throttled_until) - time.monotonic())

    async def renew(self, credentials: Credentials) -> None:
        """Use newer credentials of the same caller for sign-ins from now on."""
        await self._wire.renew(self.settings, credentials)

    def end(self) -> None:
        """Serve no further request, and close the streams."""
        self.is_closed = True
        if self._services is not None:
            self._services.tails.end()

    async def stop(self) -> None:
        """Close all of the caller's connections."""
        self.end()
        try:
            await self._stack.aclose()
        except KafkaException as error:
            log.warning("closing the connections of %s: %s", self.principal or "the gateway", error)


def caller_settings(
    settings: GatewaySettings, credentials: Credentials, callbacks: Mapping[str, object]
) -> GatewaySettings:
    """The settings of librdkafka's clients that act as a caller."""
    properties = {"sasl.mechanisms": credentials.mechanism}
    if "oauth_cb" not in callbacks:
        properties |= {"sasl.username": credentials.username, "sasl.password": credentials.password}
    return settings.for_callers(properties, callbacks)
