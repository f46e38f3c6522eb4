"""One process of a cluster, put together from its parts."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

from penstock.api.dispatch import Dispatcher
from penstock.api.table import FEATURES, METADATA_VERSION_LEVELS, VERSIONS, Services, make_handlers
from penstock.config.node import NodeSettings
from penstock.core.metadata.image import METADATA_VERSION, Image
from penstock.core.metadata.topics import TopicDefaults
from penstock.core.replica.fetch_session import SessionCache
from penstock.node.directories import Directories
from penstock.node.endpoints import Endpoints, MakeListener
from penstock.node.failures import CannotStart
from penstock.runtime.cleaner import Cleaner
from penstock.runtime.controller import Controller
from penstock.runtime.env import Env
from penstock.runtime.groups import Groups
from penstock.runtime.housekeeping import Housekeeping
from penstock.runtime.lag import LagView
from penstock.runtime.live_settings import LiveSettings
from penstock.runtime.partitions import Partitions
from penstock.runtime.producer_ids import ProducerIds
from penstock.runtime.raft_driver import RaftDriver
from penstock.server.listener import Listener
from penstock.storage.files import StorageError
from penstock.storage.settings import LogSettings
from penstock.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from penstock.wire.messages.metadata_records import (
    BrokerEndpoint,
    BrokerFeature,
    FeatureLevelRecord,
    RegisterBrokerRecord,
)

DRAIN_S = 5.0

logger = logging.getLogger("penstock.node")


class Node:
    """One broker with its controller."""

    def __init__(self, settings: NodeSettings, env: Env, make_listener: MakeListener = Listener) -> None:
        self._settings = settings
        self._env = env
        self._endpoints = Endpoints(settings, make_listener)
        self._directories = Directories(env, settings)
        self._raft: RaftDriver
        self._partitions: Partitions
        self._groups: Groups
        self._housekeeping: Housekeeping
        self._broker_epoch = -1

    @property
    def cluster_id(self) -> str:
        """The cluster this node belongs to."""
        return self._directories.cluster_id

    @property
    def addresses(self) -> dict[str, str]:
        """Each broker listener's name and the address it advertises."""
        return {name: f"{host}:{port}" for name, host, port, _ in self._endpoints.broker_addresses()}

    async def start(self) -> None:
        """Recover, lead, register, then accept clients. Raises CannotStart with a sentence for people."""
        settings, env = self._settings, self._env
        self._check_supported()
        # Before anything is written: whoever cannot serve here leaves the data as it was.
        await self._endpoints.bind()
        self._directories.claim()
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
        await controller.record(self._registration)
        self._partitions = Partitions(
            env,
            settings.node_id,
            image,
            live.topic_defaults,
            self._directories.log_directories,
            settings.socket_request_max_bytes,
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

        async def allocate(request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse:
            block = await controller.allocate_producer_ids(request.broker_id, request.broker_epoch)
            return AllocateProducerIdsResponse(producer_id_start=block.start, producer_id_len=len(block))

        services = Services(
            env=env,
            image=image,
            controller=controller,
            partitions=self._partitions,
            producer_ids=ProducerIds(allocate, settings.node_id, lambda: self._broker_epoch),
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
        draining = asyncio.ensure_future(self._endpoints.stop_brokers(DRAIN_S))
        await asyncio.sleep(0)
        self._partitions.wake_readers()
        await draining
        await self._endpoints.stop_controllers(DRAIN_S)
        await self._partitions.close_all()
        try:
            await self._raft.stop()
        except StorageError as error:
            logger.error("the metadata log could not be closed, the next start checks it: %s", error)
        self._housekeeping.finish(self._broker_epoch)
        self._directories.release()

    async def give_up(self) -> None:
        """Let go of ports and directories after `start` failed; nothing is written."""
        await self._endpoints.stop_brokers(0)
        await self._endpoints.stop_controllers(0)
        self._directories.release()

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

    def _accept(self, dispatcher: Dispatcher) -> None:
        self._endpoints.serve_brokers(dispatcher)

    def _registration(self, image: Image) -> list[Any]:
        settings = self._settings
        records: list[Any] = []
        if METADATA_VERSION not in image.features:
            records.append(FeatureLevelRecord(name=METADATA_VERSION, feature_level=METADATA_VERSION_LEVELS[1]))
        # Kafka counts a broker's incarnations by the offset of their registration.
        self._broker_epoch = self._raft.log.end_offset + len(records)
        records.append(
            RegisterBrokerRecord(
                broker_id=settings.node_id,
                incarnation_id=self._env.random.randbytes(16),
                broker_epoch=self._broker_epoch,
                end_points=[BrokerEndpoint(*address) for address in self._endpoints.broker_addresses()],
                features=[BrokerFeature(name, low, high) for name, (low, high) in FEATURES.items()],
                rack=settings.broker_rack,
                fenced=False,
                log_dirs=[directory.directory_id for directory in self._directories.log_directories],
            )
        )
        return records
