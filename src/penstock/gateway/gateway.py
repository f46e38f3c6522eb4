"""The composition root of a gateway: its parts, its two ports, and an orderly start and stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from math import ceil
from typing import Any, NamedTuple

import uvicorn
from starlette.types import ASGIApp

from penstock.client.operations.topics import describe_cluster
from penstock.config.listeners import is_loopback
from penstock.gateway.callers.broker_sign_in import BrokerSignIn
from penstock.gateway.callers.callers import Callers
from penstock.gateway.callers.gateway_apps import GatewayApps, shared_session_apps, sign_in_apps
from penstock.gateway.callers.session import CallerSession
from penstock.gateway.kafka.broker_requests import BrokerWire
from penstock.gateway.kafka.consumer_instances import instance_quota
from penstock.gateway.kafka.idempotency import IdempotencyKeys
from penstock.gateway.kafka.live_tails import tail_quota
from penstock.gateway.kafka.memory import share_arenas, trim_memory
from penstock.gateway.kafka.reader import ReaderThreads
from penstock.gateway.kafka.shared_idempotency import SharedKeys
from penstock.gateway.metrics import HOT_PATH, GatewayMetrics, Gauges
from penstock.gateway.registry.analysis import analyze
from penstock.gateway.registry.analysis_cache import AnalysisCache
from penstock.gateway.registry.service import Registry, ensure_schemas
from penstock.gateway.rest.native.hot_publish import HotPublish
from penstock.gateway.rest.services import RestServices
from penstock.gateway.rest.values.record_json import v2_records
from penstock.gateway.services import SharedParts
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.web.access import Access, AccessGuard
from penstock.gateway.web.application import Load
from penstock.gateway.web.body_reader import BodyReader
from penstock.gateway.web.connection import HttpConnection, plain_protocol
from penstock.gateway.web.connection_policy import ConnectionPolicy
from penstock.gateway.web.hot_path import hot_protocol
from penstock.gateway.web.limits import Limits
from penstock.gateway.web.socket_connection import SocketConnection
from penstock.gateway.web.tls import HANDSHAKE_TIMEOUT_S, HttpTls, is_on
from penstock.gateway.work.pool import WorkerPool
from penstock.node.process_limits import allow_open_files

log = logging.getLogger(__name__)

SHUTDOWN_TIMEOUT_S = 5
BACKLOG = 2048
# Clients of tails send nothing.
SOCKET_MESSAGE_BYTES_MAX = 4096
CHECK_TICKS = 3
NAMES_TIMEOUT_S = 2.0
# File descriptors needed besides callers' connections: libraries, logs, pipes, and connections to brokers.
OTHER_FILES = 1000

# Sent with every response: browsers must neither guess its type nor show it in frames.
HEADERS = [("x-content-type-options", "nosniff"), ("x-frame-options", "DENY")]

Ready = Callable[[dict[str, Any]], None]
Connected = Callable[[str], None]


class _Port(NamedTuple):
    """A port's application, and the class of its connections."""

    application: ASGIApp
    port: int
    connections: type[HttpConnection]


class _Server(uvicorn.Server):
    """One of several servers; the gateway handles signals. `up` is set once it listens.

    It checks the deadlines of its connections.
    """

    def __init__(self, config: uvicorn.Config, tls: ssl.SSLContext | None) -> None:
        super().__init__(config)
        self._tls = tls
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """uvicorn's, with a deadline for TLS handshakes."""
        assert sockets is not None
        config = self.config
        port_connections: Any = config.http_protocol_class
        make_connection = partial(
            port_connections, config=config, server_state=self.server_state, app_state=self.lifespan.state
        )
        loop = asyncio.get_running_loop()
        self.servers = [
            await loop.create_server(
                make_connection,
                sock=bound,
                backlog=BACKLOG,
                ssl=self._tls,
                ssl_handshake_timeout=None if self._tls is None else HANDSHAKE_TIMEOUT_S,
            )
            for bound in sockets
        ]
        self.started = True
        self.up.set()

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second."""
        if counter % CHECK_TICKS == 0:
            now = asyncio.get_running_loop().time()
            for connection in list(self.server_state.connections):
                assert isinstance(connection, HttpConnection | SocketConnection)
                try:
                    connection.check_deadlines(now)
                except Exception:
                    log.exception("checking a connection failed; closing it")
                    connection.transport.abort()
        return await super().on_tick(counter)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def serve(settings: GatewaySettings, ready: Ready, connected: Connected = lambda _: None) -> int:
    """Run a gateway until SIGTERM or SIGINT; returns the process's exit code.

    `connected` is called with the cluster's id once the brokers answered, `ready` with the addresses once it serves.
    """
    share_arenas()
    try:
        import uvloop
    except ImportError:
        return asyncio.run(run(settings, ready, connected))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run(settings, ready, connected))


async def run(settings: GatewaySettings, ready: Ready, connected: Connected = lambda _: None) -> int:
    """Run a gateway on the current loop until a signal arrives."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    tls = HttpTls(settings.tls_properties()) if is_on(settings.http_properties) else None
    async with contextlib.AsyncExitStack() as stack:
        brokers = BrokerWire(settings)
        stack.push_async_callback(brokers.stop)
        # The first operation waits for the brokers.
        cluster_id = (await brokers.run(describe_cluster)).cluster_id
        connected(cluster_id)
        for work, name in [(trim_memory(), "memory"), *([] if tls is None else [(tls.keep_current(), "certificates")])]:
            task = asyncio.create_task(work, name=f"gateway-{name}")
            stack.callback(task.cancel)
        parts = await _shared_parts(settings, cluster_id, brokers, stack)
        own = CallerSession(parts, settings)
        stack.push_async_callback(own.stop)
        services = await own.open()
        apps = _make_apps(parts, own, services, stack)
        metrics = GatewayMetrics(cluster_id, services.admin, apps.details_for)
        metrics.start()
        stack.push_async_callback(metrics.stop)
        metrics.gauges = Gauges(
            {"rest": lambda: parts.rest_load.under_way.count, "registry": lambda: parts.registry_load.under_way.count},
            {
                "consumer instances": lambda: parts.instances.taken,
                "tails": lambda: parts.tails.taken,
                "callers": apps.callers_count,
            },
        )
        access = Access([settings.host, *await _machine_names(), *settings.allowed_hosts], settings.allowed_origins)
        certificate_of = tls.principal_of if tls is not None else lambda _: None
        policy = ConnectionPolicy(_affordable(settings.limits), access, settings.trusted_proxies, certificate_of)

        def guarded(application: ASGIApp, name: str) -> ASGIApp:
            counters = metrics.port(name)
            return AccessGuard(
                metrics.measured(application, name), access, lambda status: counters.answered("refused", status, 0)
            )

        hot = HotPublish(apps.publisher_of, parts.rest_load.under_way)
        connections = hot_protocol(hot.routes, partial(metrics.port("rest").answered, HOT_PATH), policy)
        ports = {
            "rest": _Port(guarded(apps.rest, "rest"), settings.rest_port, connections),
            "registry": _Port(guarded(apps.registry, "registry"), settings.registry_port, plain_protocol(policy)),
        }
        await _listen(settings, ports, ready, stopping, apps.end_streams, None if tls is None else tls.context)
    return 0


def _make_apps(
    parts: SharedParts, own: CallerSession, services: RestServices, stack: contextlib.AsyncExitStack
) -> GatewayApps:
    """The applications that serve the ports, with or without sign-in."""
    settings = parts.settings
    if not settings.sign_in_methods:
        return shared_session_apps(parts, own, services)
    callers = Callers(parts, BrokerSignIn(settings, services.wire))
    callers.start()
    stack.push_async_callback(callers.stop)
    return sign_in_apps(parts, own, services, callers)


async def _shared_parts(
    settings: GatewaySettings, cluster_id: str, brokers: BrokerWire, stack: contextlib.AsyncExitStack
) -> SharedParts:
    """The parts that all callers share; each is stopped when the stack is left."""
    pools = _pools(settings, stack)
    await ensure_schemas(brokers)
    registry = Registry(settings.client(), pools["the registry"], AnalysisCache(settings.budgets))
    await registry.start()
    stack.push_async_callback(registry.stop)
    shared_keys = SharedKeys(settings, brokers)
    stack.push_async_callback(shared_keys.stop)
    readers = ReaderThreads(settings)
    stack.push_async_callback(readers.stop)
    return SharedParts(
        settings=settings,
        cluster_id=cluster_id,
        registry=registry,
        pools=pools,
        keys=IdempotencyKeys(settings.idempotency_keys_max, settings.idempotency_s, shared_keys),
        readers=readers,
        instances=instance_quota(settings),
        tails=tail_quota(settings),
        rest_load=Load(settings.limits),
        registry_load=Load(settings.limits),
        bodies=BodyReader(pools["REST"], settings.budgets),
        registry_bodies=BodyReader(pools["the registry"], settings.budgets),
    )


def _pools(settings: GatewaySettings, stack: contextlib.AsyncExitStack) -> dict[str, WorkerPool]:
    """Each part has its own workers, so that overload of one does not stop the others."""
    values = (v2_records.__module__,)
    modules = {"the console": values, "REST": values, "the registry": (analyze.__module__,)}
    pools = {name: WorkerPool(name, settings.budgets, loaded) for name, loaded in modules.items()}
    for pool in pools.values():
        stack.push_async_callback(pool.stop)
    return pools


async def _listen(
    settings: GatewaySettings,
    ports: dict[str, _Port],
    ready: Ready,
    stopping: asyncio.Event,
    end_streams: Callable[[], None],
    tls: ssl.SSLContext | None,
) -> None:
    scheme = "http" if tls is None else "https"
    sockets = {name: _bind(settings.host, port.port) for name, port in ports.items()}
    servers = [
        _Server(
            uvicorn.Config(
                port.application,
                http=port.connections,
                log_config=None,
                access_log=False,
                lifespan="off",
                server_header=False,
                date_header=False,
                proxy_headers=bool(settings.trusted_proxies),
                forwarded_allow_ips=list(settings.trusted_proxies),
                ws=SocketConnection,
                ws_max_size=SOCKET_MESSAGE_BYTES_MAX,
                # Compression contexts cost memory for each client, and the loop's time for each record.
                ws_per_message_deflate=False,
                headers=HEADERS,
                # Connection closes idle ones itself.
                timeout_keep_alive=ceil(settings.limits.idle_timeout_s) + 1,
                timeout_graceful_shutdown=SHUTDOWN_TIMEOUT_S,
            ),
            tls,
        )
        for port in ports.values()
    ]
    tasks = [
        asyncio.create_task(server.serve([bound]), name=f"gateway-{name}")
        for server, (name, bound) in zip(servers, sockets.items(), strict=True)
    ]
    for server in servers:
        await server.up.wait()
    addresses = {name: f"{scheme}://{_address(bound)}" for name, bound in sockets.items()}
    for name, address in addresses.items():
        log.info("%s at %s", name, address)
    for why in open_to_network(settings):
        log.warning("the gateway is open to the network: %s (docs/security.md)", why)
    ready(addresses)
    waiter = asyncio.create_task(stopping.wait(), name="gateway-stop")
    await asyncio.wait([waiter, *tasks], return_when=asyncio.FIRST_COMPLETED)
    waiter.cancel()
    end_streams()
    for server in servers:
        server.should_exit = True
    await asyncio.gather(*tasks)


def open_to_network(settings: GatewaySettings) -> list[str]:
    """The warnings about a gateway that other machines can reach; empty if there is none."""
    if is_loopback(settings.host):
        return []
    reasons = []
    if not settings.sign_in_methods:
        reasons.append("any client that reaches it acts as the gateway's user; turn on --auth")
    if not is_on(settings.http_properties):
        reasons.append("it does not use TLS; set --http ssl.keystore.location")
    return reasons


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    bound.bind((host, port))
    return bound


def _address(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def _machine_names() -> list[str]:
    """This machine's names. The full name comes from a resolver, which may be slow."""
    name = socket.gethostname()
    try:
        return [name, await asyncio.wait_for(asyncio.to_thread(socket.getfqdn), NAMES_TIMEOUT_S)]
    except TimeoutError:
        return [name]


def _affordable(limits: Limits) -> Limits:
    """Limit connections to the number of files that may be open: if those run out, accepting fails for all clients."""
    files = allow_open_files()
    connections_max = max(1, min(limits.connections_max, max(files - OTHER_FILES, files // 2)))
    if connections_max == limits.connections_max:
        return limits
    log.warning("only %d files may be open (ulimit -n), so at most %d connections are accepted", files, connections_max)
    each_max = min(limits.connections_per_caller_max, max(1, connections_max // 2))
    return replace(limits, connections_max=connections_max, connections_per_caller_max=each_max)
