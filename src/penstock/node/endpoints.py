"""The listeners of a node: bound before anything is written, opened when there is something to serve."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Protocol

from penstock.api.dispatch import Dispatcher
from penstock.config.listeners import Listener as ListenerSettings
from penstock.config.node import NodeSettings
from penstock.node.failures import CannotStart
from penstock.server.connection import Session
from penstock.server.limits import ConnectionLimits
from penstock.server.request_memory import RequestMemory

PROTOCOL_CODES = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}


class Accepting(Protocol):
    """A listening address; `server.listener.Listener` is the one for sockets."""

    name: str
    host: str
    port: int

    async def bind(self) -> None: ...

    def start(self, make_session: Callable[[tuple[str, int]], Session]) -> None: ...

    def limit(self, limits: ConnectionLimits) -> None: ...

    async def stop(self, drain_s: float) -> None: ...


Tls = Callable[[], ssl.SSLContext] | None
MakeListener = Callable[[str, str, int, ConnectionLimits, int, Tls], Accepting]
MakeSession = Callable[[Dispatcher, str, tuple[str, int]], Session]


class Endpoints:
    """All listeners of one node."""

    def __init__(
        self,
        settings: NodeSettings,
        make_listener: MakeListener,
        tls_of: Callable[[str], Tls],
        make_session: MakeSession,
    ) -> None:
        """`tls_of` returns each listener's TLS context, `make_session` creates the session of a connection."""
        self._settings = settings
        bytes_max = settings.queued_max_request_bytes
        self._request_memory = RequestMemory(bytes_max) if bytes_max > 0 else None
        self._make_listener = make_listener
        self._tls_of = tls_of
        self._make_session = make_session
        self._brokers: list[Accepting] = []
        self._controllers: list[Accepting] = []

    async def bind(self) -> None:
        """Bind every port; raises CannotStart."""
        settings = self._settings
        if settings.is_broker:
            self._brokers = [await self._bound(wanted) for wanted in settings.broker_listeners]
        if settings.is_controller:
            self._controllers = [await self._bound(wanted) for wanted in settings.controller_listeners]

    def limit(self, settings: NodeSettings) -> None:
        """Apply the limits of these settings from now on."""
        for listener in self.listeners:
            listener.limit(self._limits(settings))

    def _limits(self, settings: NodeSettings) -> ConnectionLimits:
        return ConnectionLimits(
            request_bytes_max=settings.socket_request_max_bytes,
            connections_max=settings.max_connections,
            connections_per_ip_max=settings.max_connections_per_ip,
            connections_per_ip_overrides=settings.max_connections_per_ip_overrides,
            idle_ms_max=settings.connections_max_idle_ms,
            request_read_ms_max=settings.penstock_request_read_timeout_ms,
            write_stall_ms_max=settings.penstock_write_stall_timeout_ms,
            write_buffer_bytes_max=settings.penstock_connection_write_buffer_bytes,
            request_memory=self._request_memory,
            send_buffer_bytes=settings.socket_send_buffer_bytes,
            receive_buffer_bytes=settings.socket_receive_buffer_bytes,
        )

    async def _bound(self, wanted: ListenerSettings) -> Accepting:
        settings = self._settings
        listener = self._make_listener(
            wanted.name,
            wanted.host,
            wanted.port,
            self._limits(settings),
            settings.socket_listen_backlog_size,
            self._tls_of(wanted.name),
        )
        try:
            await listener.bind()
        except OSError as error:
            raise CannotStart(
                f"cannot listen on {wanted.host or '*'}:{wanted.port}: {error.strerror}. "
                "Choose another port in listeners, or stop what uses this one"
            ) from error
        return listener

    def serve_controllers(self, dispatcher: Dispatcher) -> None:
        """Open the controller listeners."""
        for listener in self._controllers:
            listener.start(partial(self._make_session, dispatcher, listener.name))

    def serve_brokers(self, dispatcher: Dispatcher) -> None:
        """Open the listeners of clients and of other brokers."""
        for listener in self._brokers:
            listener.start(partial(self._make_session, dispatcher, listener.name))

    async def stop_brokers(self, drain_s: float) -> None:
        """Accept nobody, finish what was accepted, close the rest."""
        await asyncio.gather(*(listener.stop(drain_s) for listener in self._brokers))

    async def stop_controllers(self, drain_s: float) -> None:
        """The same for the controller listeners."""
        await asyncio.gather(*(listener.stop(drain_s) for listener in self._controllers))

    @property
    def listeners(self) -> list[Accepting]:
        """Every bound address."""
        return [*self._brokers, *self._controllers]

    def broker_addresses(self) -> list[tuple[str, str, int, int]]:
        """Name, host, port and protocol code of the broker listeners, for clients."""
        return self._advertised(self._brokers, self._settings.broker_listeners)

    def controller_addresses(self) -> list[tuple[str, str, int, int]]:
        """Name, host, port and protocol code of the controller listeners."""
        return self._advertised(self._controllers, self._settings.controller_listeners)

    def _advertised(
        self, listeners: list[Accepting], settings: tuple[ListenerSettings, ...]
    ) -> list[tuple[str, str, int, int]]:
        advertised = {one.name: one for one in self._settings.advertised_listeners}
        protocols = {one.name: PROTOCOL_CODES[one.security_protocol] for one in settings}
        rows = []
        for listener in listeners:
            wanted = advertised.get(listener.name)
            host = (wanted.host if wanted else listener.host) or socket.gethostname()
            # Port 0 asks the system for a free port; that one is advertised.
            port = wanted.port if wanted and wanted.port else listener.port
            rows.append((listener.name, host, port, protocols[listener.name]))
        return rows
