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
from penstock.core.security.connections import ConnectionQuotas, ConnectionRules
from penstock.core.security.quotas import Windows
from penstock.node.failures import CannotStart
from penstock.server.connection import RequestSession
from penstock.server.limits import ConnectionLimits
from penstock.server.request_memory import RequestMemory
from penstock.server.shared_limits import SharedLimits

PROTOCOL_CODES = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}


class Accepting(Protocol):
    """A listening address; `server.listener.Listener` is the one for sockets."""

    name: str
    host: str
    port: int
    # Called with a peer's host and the reason if TLS could not be agreed with it.
    on_handshake_failure: Callable[[str, str], None] | None

    async def bind(self) -> None: ...

    def start(self, make_session: Callable[[tuple[str, int]], RequestSession]) -> None: ...

    def limit(self, limits: ConnectionLimits) -> None: ...

    async def stop(self, drain_s: float) -> None: ...


Tls = Callable[[], ssl.SSLContext] | None
MakeListener = Callable[[str, str, int, ConnectionLimits, int, Tls], Accepting]
MakeSession = Callable[[Dispatcher, str, tuple[str, int]], RequestSession]


class Endpoints:
    """All listeners of one node."""

    def __init__(
        self,
        settings: NodeSettings,
        make_listener: MakeListener,
        tls_of: Callable[[str], Tls],
        make_session: MakeSession,
        rate_of_ip: Callable[[str], float | None] = lambda _: None,
        handshake_failed: Callable[[str, str, str], None] = lambda *_: None,
    ) -> None:
        """`tls_of` returns each listener's TLS context, `make_session` creates the session of a connection.

        `rate_of_ip` returns how many connections a second an address may open, None for any number;
        `handshake_failed` is called with listener, host and reason when TLS cannot be agreed with a peer.
        """
        self._settings = settings
        bytes_max = settings.queued_max_request_bytes
        self._request_memory = RequestMemory(bytes_max) if bytes_max > 0 else None
        windows = Windows(settings.quota_window_num, settings.quota_window_size_seconds * 1000)
        self._shared_by_brokers = SharedLimits(ConnectionQuotas(windows, rate_of_ip=rate_of_ip))
        self._shared_by_controllers = SharedLimits(ConnectionQuotas(windows, rate_of_ip=rate_of_ip))
        self._set_rules(settings)
        self._make_listener = make_listener
        self._tls_of = tls_of
        self._make_session = make_session
        self._handshake_failed = handshake_failed
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
        self._set_rules(settings)
        for listener in self.listeners:
            listener.limit(self._limits(settings, listener.name))

    def _set_rules(self, settings: NodeSettings) -> None:
        rules = ConnectionRules(
            settings.max_connections,
            settings.max_connection_creation_rate,
            settings.max_connections_per_ip,
            settings.max_connections_per_ip_overrides,
        )
        self._shared_by_controllers.quotas.rules = rules
        # Brokers must reach each other, however many clients there are; with one listener they cannot be told apart.
        is_protected = len(settings.broker_listeners) > 1
        protected = settings.inter_broker_listener_name if is_protected else None
        self._shared_by_brokers.quotas.rules = rules._replace(protected=protected)

    def _limits(self, settings: NodeSettings, name: str) -> ConnectionLimits:
        is_controllers = name in settings.controller_listener_names
        return ConnectionLimits(
            request_bytes_max=settings.socket_request_max_bytes,
            connections_max=settings.listener_number(name, "max.connections", settings.max_connections),
            creation_rate_max=settings.listener_number(
                name, "max.connection.creation.rate", settings.max_connection_creation_rate
            ),
            shared=self._shared_by_controllers if is_controllers else self._shared_by_brokers,
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
            self._limits(settings, wanted.name),
            settings.socket_listen_backlog_size,
            self._tls_of(wanted.name),
        )
        listener.on_handshake_failure = partial(self._handshake_failed, wanted.name)
        try:
            await listener.bind()
        except OSError as error:
            raise _cannot_listen(wanted.host, wanted.port, error) from error
        return listener

    def serve_controllers(self, dispatcher: Dispatcher) -> None:
        """Open the controller listeners; raises CannotStart."""
        self._serve(self._controllers, dispatcher)

    def serve_brokers(self, dispatcher: Dispatcher) -> None:
        """Open the listeners of clients and of other brokers; raises CannotStart."""
        self._serve(self._brokers, dispatcher)

    def _serve(self, listeners: list[Accepting], dispatcher: Dispatcher) -> None:
        for listener in listeners:
            try:
                listener.start(partial(self._make_session, dispatcher, listener.name))
            except OSError as error:
                # Two processes may bind a port as long as neither listens; the second to listen comes here.
                raise _cannot_listen(listener.host, listener.port, error) from error

    async def stop_brokers(self, drain_s: float) -> None:
        """Accept no more connections, finish what was accepted, close the rest."""
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
            # With port 0 the system picks a free port; that one is advertised.
            port = wanted.port if wanted and wanted.port else listener.port
            rows.append((listener.name, host, port, protocols[listener.name]))
        return rows


def _cannot_listen(host: str, port: int, error: OSError) -> CannotStart:
    return CannotStart(
        f"cannot listen on {host or '*'}:{port}: {error.strerror}. "
        "Choose another port in listeners, or stop what uses this one"
    )
