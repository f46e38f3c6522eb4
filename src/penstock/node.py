"""The composition root of one process: the only place that wires rooms together.

`Node` is one broker and controller on an event loop. `serve` runs one until a signal stops it.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from penstock.api.dispatch import Dispatcher
from penstock.api.table import FEATURES, METADATA_VERSION_LEVELS, VERSIONS, Services, make_handlers
from penstock.config.listeners import Listener as ListenerSettings
from penstock.config.node import NodeSettings
from penstock.core.metadata.image import METADATA_VERSION, Image
from penstock.core.metadata.topics import TopicDefaults
from penstock.core.replica.fetch_session import SessionCache
from penstock.model.ids import Uuid, format_uuid
from penstock.runtime.cleaner import Cleaner
from penstock.runtime.controller import Controller
from penstock.runtime.env import Env, SystemEnv
from penstock.runtime.groups import Groups
from penstock.runtime.housekeeping import Housekeeping
from penstock.runtime.lag import LagView
from penstock.runtime.live_settings import LiveSettings
from penstock.runtime.log_directories import LogDirectory, format_directory, lock_directory, open_directory
from penstock.runtime.metadata_log import DamagedMetadata
from penstock.runtime.partitions import Partitions
from penstock.runtime.producer_ids import ProducerIds
from penstock.runtime.raft_driver import DIRECTORY as METADATA_DIRECTORY
from penstock.runtime.raft_driver import RaftDriver
from penstock.server.limits import ConnectionLimits
from penstock.server.listener import Listener
from penstock.storage.files import File, StorageError
from penstock.storage.metadata_files import MetadataFileError, read_meta_properties
from penstock.storage.settings import LogSettings
from penstock.wire.messages.metadata_records import (
    BrokerEndpoint,
    BrokerFeature,
    FeatureLevelRecord,
    RegisterBrokerRecord,
)

DRAIN_S = 5.0
PROTOCOL_CODES = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}

logger = logging.getLogger("penstock.node")


class CannotStart(Exception):
    """The node cannot start; the message says why and what to do."""


class Node:
    """One broker with its controller."""

    def __init__(self, settings: NodeSettings, env: Env) -> None:
        self._settings = settings
        self._env = env
        self._listeners: list[Listener] = []
        self._raft: RaftDriver
        self._partitions: Partitions
        self._groups: Groups
        self._housekeeping: Housekeeping
        self._broker_epoch = -1
        # Keep other processes out of the data directories as long as they are held.
        self._locks: list[File] = []
        self.cluster_id = ""

    @property
    def addresses(self) -> dict[str, str]:
        """Each broker listener's name and the address it advertises."""
        return {name: f"{host}:{port}" for name, host, port in self._advertised()}

    async def start(self) -> None:
        """Recover, lead, register, then accept clients. Raises CannotStart with a sentence for people."""
        settings, env = self._settings, self._env
        self._check_supported()
        # Before anything is written: whoever cannot serve here leaves the data as it was.
        await self._bind()
        directories = self._open_directories()
        self._raft = RaftDriver(
            env,
            Path(settings.metadata_log_dir),
            settings.node_id,
            (settings.node_id,),
            settings.metadata_log_max_record_bytes_between_snapshots,
            LogSettings(segment_bytes=settings.metadata_log_segment_bytes, segment_ms=settings.metadata_log_segment_ms),
        )
        await self._raft.start()
        image = self._raft.image
        live = LiveSettings(settings, image)
        defaults = TopicDefaults(settings.num_partitions, settings.default_replication_factor)
        controller = Controller(env, self._raft, defaults, live.topic_defaults)
        await controller.record(lambda image: self._registration(image, directories))
        self._partitions = Partitions(
            env, settings.node_id, image, live.topic_defaults, directories, settings.socket_request_max_bytes
        )
        self._partitions.open_all()
        self._raft.on_commit(live.follow)
        self._raft.on_commit(self._partitions.follow)
        self._groups = Groups(env, image, controller, self._partitions, settings)
        self._raft.on_commit(self._groups.follow)
        self._housekeeping = Housekeeping(env, self._partitions, settings)
        await self._housekeeping.watch_disks()
        self._housekeeping.start()
        Cleaner(env, self._partitions, settings).start()
        services = Services(
            env=env,
            image=image,
            controller=controller,
            partitions=self._partitions,
            producer_ids=ProducerIds(controller, settings.node_id, self._broker_epoch),
            sessions=SessionCache(settings.max_incremental_fetch_session_cache_slots, env.random),
            settings=live,
            cluster_id=self.cluster_id,
            controller_id=lambda: settings.node_id,
            settle_deletions=self._housekeeping.settle_deletions,
            groups=self._groups,
            lag=LagView(env, self._partitions),
        )
        self._accept(Dispatcher(make_handlers(services), VERSIONS))

    async def stop(self) -> None:
        """Finish what was accepted, close every log, and say that the stop was clean."""
        # Members that wait for a rebalance would wait longer than we drain.
        self._groups.close()
        draining = asyncio.gather(*(listener.stop(DRAIN_S) for listener in self._listeners))
        await asyncio.sleep(0)
        self._partitions.wake_readers()
        await draining
        await self._partitions.close_all()
        try:
            await self._raft.stop()
        except StorageError as error:
            logger.error("the metadata log could not be closed, the next start checks it: %s", error)
        self._housekeeping.finish(self._broker_epoch)
        self._locks.clear()

    async def give_up(self) -> None:
        """Let go of ports and directories after `start` failed; nothing is written."""
        await asyncio.gather(*(listener.stop(0) for listener in self._listeners))
        self._locks.clear()

    # Starting.

    def _check_supported(self) -> None:
        settings = self._settings
        if not (settings.is_broker and settings.is_controller):
            raise CannotStart("broker and controller run in one process so far: set process.roles=broker,controller")
        voters = {voter.node_id for voter in settings.controller_quorum_voters}
        if voters and voters != {settings.node_id}:
            raise CannotStart(
                f"controller.quorum.voters names the nodes {sorted(voters)}; a quorum has one voter so far, "
                f"node {settings.node_id} alone"
            )
        for listener in settings.broker_listeners:
            if listener.security_protocol != "PLAINTEXT":
                raise CannotStart(
                    f"listener {listener.name} wants {listener.security_protocol}; only PLAINTEXT is served so far"
                )

    def _open_directories(self) -> list[LogDirectory]:
        settings, env = self._settings, self._env
        paths = [Path(path) for path in settings.log_dirs]
        metadata_path = Path(settings.metadata_log_dir)
        self._locks = [lock_directory(env, path) for path in dict.fromkeys((*paths, metadata_path))]
        known = [read_meta_properties(env.filesystem, path) for path in (*paths, metadata_path)]
        self.cluster_id = next((found.cluster_id for found in known if found), None) or new_cluster_id(env)
        opened = []
        for path in paths:
            found = format_directory(env, path, self.cluster_id, settings.node_id)
            opened.append(open_directory(env, path, found.directory_id))
        if metadata_path not in paths:
            format_directory(env, metadata_path, self.cluster_id, settings.node_id)
        held = sorted(str(name) for directory in opened for name in directory.found)
        if held and not env.filesystem.exists(metadata_path / METADATA_DIRECTORY):
            raise CannotStart(
                f"{metadata_path / METADATA_DIRECTORY} is missing, and without it nobody knows what {held[0]} and "
                "other partitions here belong to. Restore it from a backup, or correct metadata.log.dir"
            )
        return opened

    async def _bind(self) -> None:
        settings = self._settings
        limits = ConnectionLimits(
            request_bytes_max=settings.socket_request_max_bytes,
            connections_max=settings.max_connections,
            connections_per_ip_max=settings.max_connections_per_ip,
            connections_per_ip_overrides=settings.max_connections_per_ip_overrides,
            idle_ms_max=settings.connections_max_idle_ms,
            request_read_ms_max=settings.penstock_request_read_timeout_ms,
            write_stall_ms_max=settings.penstock_write_stall_timeout_ms,
            write_buffer_bytes_max=settings.penstock_connection_write_buffer_bytes,
        )
        for wanted in settings.broker_listeners:
            listener = Listener(wanted.name, wanted.host, wanted.port, limits, settings.socket_listen_backlog_size)
            try:
                await listener.bind()
            except OSError as error:
                raise CannotStart(
                    f"cannot listen on {wanted.host or '*'}:{wanted.port}: {error.strerror}. "
                    "Choose another port in listeners, or stop what uses this one"
                ) from error
            self._listeners.append(listener)

    def _accept(self, dispatcher: Dispatcher) -> None:
        for listener in self._listeners:
            listener.start(partial(dispatcher.session, listener.name))

    def _advertised(self) -> list[tuple[str, str, int]]:
        advertised: dict[str, ListenerSettings] = {one.name: one for one in self._settings.advertised_listeners}
        rows = []
        for listener in self._listeners:
            wanted = advertised.get(listener.name)
            host = (wanted.host if wanted else listener.host) or socket.gethostname()
            # Port 0 asks the system for a free port; what it gave is what is advertised.
            port = wanted.port if wanted and wanted.port else listener.port
            rows.append((listener.name, host, port))
        return rows

    def _registration(self, image: Image, directories: list[LogDirectory]) -> list[Any]:
        settings = self._settings
        records: list[Any] = []
        if METADATA_VERSION not in image.features:
            records.append(FeatureLevelRecord(name=METADATA_VERSION, feature_level=METADATA_VERSION_LEVELS[1]))
        # Kafka counts a broker's incarnations by the offset of their registration.
        self._broker_epoch = self._raft.log.end_offset + len(records)
        protocols = {one.name: PROTOCOL_CODES[one.security_protocol] for one in settings.broker_listeners}
        records.append(
            RegisterBrokerRecord(
                broker_id=settings.node_id,
                incarnation_id=self._env.random.randbytes(16),
                broker_epoch=self._broker_epoch,
                end_points=[
                    BrokerEndpoint(name, host, port, protocols[name]) for name, host, port in self._advertised()
                ],
                features=[BrokerFeature(name, low, high) for name, (low, high) in FEATURES.items()],
                rack=settings.broker_rack,
                fenced=False,
                log_dirs=[directory.directory_id for directory in directories],
            )
        )
        return records


def new_cluster_id(env: Env) -> str:
    """A cluster id as Kafka makes them; never one that begins with a dash."""
    while True:
        raw: Uuid = env.random.randbytes(16)
        text = format_uuid(raw)
        if not text.startswith("-"):
            return text


def serve(settings: NodeSettings, *, ready: Callable[[dict[str, Any]], None] | None = None) -> int:
    """Run a node until SIGTERM or SIGINT; returns the process's exit code."""
    runner = asyncio.Runner(loop_factory=_loop_factory(settings.penstock_loop))
    with runner:
        return runner.run(_serve(settings, ready))


async def _serve(settings: NodeSettings, ready: Callable[[dict[str, Any]], None] | None) -> int:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    env = SystemEnv()
    node = Node(settings, env)
    try:
        await node.start()
    except (CannotStart, DamagedMetadata, MetadataFileError, StorageError) as error:
        sys.stderr.write(f"Penstock cannot start: {error}\n")
        await node.give_up()
        await env.close()
        return 1
    logger.info("node %d of cluster %s serves %s", settings.node_id, node.cluster_id, node.addresses)
    if ready is not None:
        ready({"listeners": node.addresses, "node_id": settings.node_id, "cluster_id": node.cluster_id})
    await stopped.wait()
    logger.info("stopping: finishing what was accepted")
    await node.stop()
    await env.close()
    logger.info("stopped cleanly")
    return 0


def _loop_factory(wanted: str) -> Callable[[], asyncio.AbstractEventLoop] | None:
    if wanted == "asyncio":
        return None
    try:
        import uvloop
    except ImportError:
        if wanted == "uvloop":
            raise
        return None
    return uvloop.new_event_loop
