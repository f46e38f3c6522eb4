"""The composition root of a gateway: its parts, its two ports, start and stop in good order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import uvicorn
from confluent_kafka.admin import AdminClient
from starlette.types import ASGIApp

from penstock.gateway.kafka.admin import Admin
from penstock.gateway.kafka.groups import Groups
from penstock.gateway.kafka.idempotency import IdempotencyKeys
from penstock.gateway.kafka.instances import Instances
from penstock.gateway.kafka.publisher import Publisher
from penstock.gateway.kafka.reader import Readers
from penstock.gateway.kafka.shared_keys import SharedKeys
from penstock.gateway.kafka.subscriptions import Subscriptions
from penstock.gateway.kafka.tails import Tails
from penstock.gateway.metrics import HOT_PATH, GatewayMetrics, Gauges
from penstock.gateway.registry.analysis import answer
from penstock.gateway.registry.api.application import registry_application
from penstock.gateway.registry.facts import SchemaFacts
from penstock.gateway.registry.service import Registry
from penstock.gateway.rest.application import RestServices, rest_application
from penstock.gateway.rest.console_wire import BrokerWire
from penstock.gateway.rest.hot_publish import HotPublish
from penstock.gateway.rest.record_texts import v2_records
from penstock.gateway.rest.schema_codec import SchemaCodec
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.web.body_work import Bodies
from penstock.gateway.web.hot_path import JsonProtocol, hot_protocol
from penstock.gateway.work.pool import WorkerPool

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 15.0
SHUTDOWN_TIMEOUT_S = 5
BACKLOG = 2048

Ready = Callable[[dict[str, Any]], None]
Connected = Callable[[str], None]


class _Port(NamedTuple):
    """What listens on a port: the application, and the class of its connections."""

    application: ASGIApp
    port: int
    connections: type[asyncio.Protocol] = JsonProtocol


class _Server(uvicorn.Server):
    """A server among several: signals are the gateway's business. `up` is set once it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def serve(settings: GatewaySettings, ready: Ready, connected: Connected = lambda _: None) -> int:
    """Run a gateway until SIGTERM or SIGINT; the process's exit code.

    `connected` gets the cluster's id when the brokers have answered, `ready` the addresses once the gateway serves.
    """
    try:
        import uvloop
    except ImportError:
        return asyncio.run(run(settings, ready, connected))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run(settings, ready, connected))


async def run(settings: GatewaySettings, ready: Ready, connected: Connected = lambda _: None) -> int:
    """Run a gateway on the present loop until a signal comes."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    cluster_id = await asyncio.to_thread(_cluster_id, settings)
    connected(cluster_id)
    async with contextlib.AsyncExitStack() as stack:
        pools = _pools(settings, stack)
        facts = SchemaFacts(settings.budgets)
        registry = Registry(settings.client(), pools["the registry"], facts)
        await registry.start()
        stack.push_async_callback(registry.stop)
        services = await _services(settings, registry, pools, cluster_id, stack)
        metrics = GatewayMetrics(cluster_id, services.admin, services.groups)
        metrics.start()
        stack.push_async_callback(metrics.stop)
        rest = rest_application(services, settings.limits)
        schemas = registry_application(
            registry, cluster_id, settings.limits, Bodies(pools["the registry"], settings.budgets).read
        )
        metrics.gauges = Gauges(
            {"rest": lambda: rest.under_way.count, "registry": lambda: schemas.under_way.count},
            {"consumer instances": lambda: len(services.instances), "tails": lambda: len(services.tails)},
        )
        hot = HotPublish(services.publisher, rest.under_way)
        connections = hot_protocol(hot.routes, partial(metrics.port("rest").answered, HOT_PATH))
        ports = {
            "rest": _Port(metrics.measured(rest, "rest"), settings.rest_port, connections),
            "registry": _Port(metrics.measured(schemas, "registry"), settings.registry_port),
        }
        await _listen(settings, ports, ready, stopping, services.tails.end)
    return 0


def _pools(settings: GatewaySettings, stack: contextlib.AsyncExitStack) -> dict[str, WorkerPool]:
    """Workers for each part, so that whoever keeps those of one busy does not stop the others."""
    values = (v2_records.__module__,)
    modules = {"the console": values, "REST": values, "the registry": (answer.__module__,)}
    pools = {name: WorkerPool(name, settings.budgets, loaded) for name, loaded in modules.items()}
    for pool in pools.values():
        stack.push_async_callback(pool.stop)
    return pools


async def _services(
    settings: GatewaySettings,
    registry: Registry,
    pools: dict[str, WorkerPool],
    cluster_id: str,
    stack: contextlib.AsyncExitStack,
) -> RestServices:
    """The parts of the REST side; each is stopped when the stack is left."""
    client = AdminClient(settings.client())
    admin = Admin(client)
    publisher = Publisher(settings, admin)
    stack.push_async_callback(publisher.stop)
    readers = Readers(settings)
    stack.push_async_callback(readers.stop)
    instances = Instances(settings)
    instances.start()
    stack.push_async_callback(instances.stop)
    wire = BrokerWire(settings)
    stack.push_async_callback(wire.stop)
    tails = Tails(settings)
    stack.push_async_callback(tails.stop)
    shared = SharedKeys(settings)
    stack.push_async_callback(shared.stop)
    return RestServices(
        admin=admin,
        publisher=publisher,
        readers=readers,
        groups=Groups(client),
        instances=instances,
        subscriptions=Subscriptions(instances, settings),
        tails=tails,
        keys=IdempotencyKeys(settings.idempotency_keys_max, settings.idempotency_s, shared),
        registry=registry,
        wire=wire,
        cluster_id=cluster_id,
        settings=settings,
        codec=SchemaCodec(registry, pools["REST"], settings.budgets),
        console_codec=SchemaCodec(registry, pools["the console"], settings.budgets),
        bodies=Bodies(pools["REST"], settings.budgets),
    )


async def _listen(
    settings: GatewaySettings,
    ports: dict[str, _Port],
    ready: Ready,
    stopping: asyncio.Event,
    end_streams: Callable[[], None],
) -> None:
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
                proxy_headers=False,
                ws="websockets-sansio",
                timeout_graceful_shutdown=SHUTDOWN_TIMEOUT_S,
                backlog=BACKLOG,
            )
        )
        for port in ports.values()
    ]
    tasks = [
        asyncio.create_task(server.serve([bound]), name=f"gateway-{name}")
        for server, (name, bound) in zip(servers, sockets.items(), strict=True)
    ]
    for server in servers:
        await server.up.wait()
    addresses = {name: f"http://{_address(bound)}" for name, bound in sockets.items()}
    for name, address in addresses.items():
        log.info("%s at %s", name, address)
    ready(addresses)
    waiter = asyncio.create_task(stopping.wait(), name="gateway-stop")
    await asyncio.wait([waiter, *tasks], return_when=asyncio.FIRST_COMPLETED)
    waiter.cancel()
    end_streams()
    for server in servers:
        server.should_exit = True
    await asyncio.gather(*tasks)


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


def _cluster_id(settings: GatewaySettings) -> str:
    """The cluster's id; the first word with the brokers, so it waits for them."""
    metadata = AdminClient(settings.client()).list_topics(timeout=CONNECT_TIMEOUT_S)
    return str(metadata.cluster_id or "")
