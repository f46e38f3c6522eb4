"""One process of a cluster, assembled from its parts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

from penstock.config.node import NodeSettings
from penstock.core.metadata.topics import TopicDefaults
from penstock.core.metrics.counters import RequestCounters
from penstock.core.raft.events import QuorumTimes
from penstock.core.raft.voters import VoterEndpoint
from penstock.node.broker_role import BrokerRole
from penstock.node.controller_role import ControllerRole, register_controller
from penstock.node.directories import Directories
from penstock.node.endpoints import Endpoints, MakeListener
from penstock.node.metrics.health import Check, quorum_checks
from penstock.node.metrics.http_port import MetricsPort
from penstock.node.metrics.quorum import QuorumCollector
from penstock.node.metrics.requests import RequestCollector
from penstock.node.security import NodeSecurity
from penstock.runtime.controller.client import ControllerClient
from penstock.runtime.controller.controller import Controller
from penstock.runtime.controller.decisions import Decisions
from penstock.runtime.controller.duties import ControllerSettings
from penstock.runtime.controller.unreachable import UnreachableQuorum
from penstock.runtime.env import Env
from penstock.runtime.live_settings import LiveSettings
from penstock.runtime.raft.driver import RaftDriver
from penstock.server.listener import Listener
from penstock.storage.files import StorageError
from penstock.storage.settings import LogSettings

DRAIN_S = 5.0

logger = logging.getLogger("penstock.node")


class Node:
    """One broker, one controller, or both in one process, by `process.roles`."""

    def __init__(self, settings: NodeSettings, env: Env, make_listener: MakeListener = Listener) -> None:
        self._settings = settings
        self._env = env
        self._security = NodeSecurity(env, settings)
        self._endpoints = Endpoints(
            settings,
            make_listener,
            self._security.tls,
            self._security.session,
            self._security.quotas.table.ip_limit,
            self._security.audit.handshake_failed,
        )
        self._directories = Directories(env, settings)
        self._ways: list[ControllerClient] = []
        self._raft: RaftDriver
        self._controller_role: ControllerRole | None = None
        self._broker: BrokerRole | None = None
        self._counters = RequestCounters(is_on=settings.penstock_metrics_counting)
        self._metrics: MetricsPort | None = None
        self._is_leaving = False
        # Called when this node has to stop for a reason of its own.
        self.on_doom: Callable[[], object] = lambda: None

    @property
    def cluster_id(self) -> str:
        """The cluster this node belongs to."""
        return self._directories.cluster_id

    @property
    def addresses(self) -> dict[str, str]:
        """Each listener's name and the address it advertises; a broker's own before its controller's."""
        rows = self._endpoints.broker_addresses() or self._endpoints.controller_addresses()
        return {name: f"{host}:{port}" for name, host, port, _ in rows}

    @property
    def metrics_address(self) -> str | None:
        """Where metrics and health are served, host and port; None where they are not."""
        return None if self._metrics is None else self._metrics.address

    @property
    def metrics_url(self) -> str | None:
        """The same with its scheme."""
        return None if self._metrics is None else self._metrics.url

    async def start(self) -> None:
        """Join the quorum, then serve clients. Raises CannotStart with a sentence for people."""
        settings, env = self._settings, self._env
        # Before anything is written: a node that cannot serve here leaves the data as it was.
        await self._endpoints.bind()
        if settings.penstock_metrics_listener is not None:
            self._metrics = MetricsPort(
                env,
                settings.penstock_metrics_listener.host,
                settings.penstock_metrics_listener.port,
                self._checks,
                self._security.metrics_tls,
            )
            await self._metrics.start()
        self._directories.claim()
        self._security.read_bootstrap(Path(settings.metadata_log_dir))
        self._raft = raft = self._quorum()
        raft.on_failure = lambda error: self._give_up(f"the metadata log failed: {error}")
        raft.set_endpoints(VoterEndpoint(*row[:3]) for row in self._endpoints.controller_addresses())
        live = LiveSettings(settings, raft.image)
        raft.on_commit(live.follow)
        raft.on_commit(self._security.committed)
        defaults = TopicDefaults(settings.num_partitions, settings.default_replication_factor)
        decisions = Decisions(raft)
        controller = Controller(
            env,
            decisions,
            defaults,
            live.topic_defaults,
            cluster_id=self.cluster_id,
            settings=self._controller_settings(),
            voters=lambda: raft.quorum.voters.ids,
            kraft_version=lambda: raft.metadata_log.history.kraft_version,
            next_offset=lambda: raft.log.end_offset,
            policy=live.topic_policy,
        )
        raft.on_leadership(decisions.on_leadership)
        raft.on_leadership(controller.on_leadership)
        if self._metrics is not None:
            self._metrics.add_collectors(
                QuorumCollector(raft, decisions.counters, is_controller=settings.is_controller),
                RequestCollector(self._counters, lambda: self._endpoints.listeners),
                node=(settings.node_id, self.cluster_id, "+".join(sorted(settings.roles)), settings.broker_rack or ""),
            )
        await raft.start()
        log = raft.metadata_log
        self._security.start(raft.image, log.records_after(raft.applied_offset) if settings.is_controller else ())
        live.on_change(self._endpoints.limit)
        live.on_change(self._security.settings_changed)
        if settings.is_controller:
            self._controller_role = ControllerRole(
                raft, controller, live, self.cluster_id, self._counters, self._security
            )
            self._endpoints.serve_controllers(self._controller_role.dispatcher)
            if not settings.is_broker:
                self._security.audit.start()
            register_controller(env, settings.node_id, self._way(), self._endpoints.controller_addresses())
        if settings.is_broker:
            self._broker = BrokerRole(
                env, settings, raft, live, self._directories, self._endpoints, self._way, self._counters, self._security
            )
            unreachable = Controller(
                env, UnreachableQuorum(raft.image), defaults, live.topic_defaults, next_offset=lambda: 0
            )
            self._broker.on_give_up = self._give_up
            await self._broker.start(controller, unreachable)
            if self._metrics is not None:
                self._metrics.add_collectors(*self._broker.collectors())

    async def stop(self) -> None:
        """Hand over leaderships, finish accepted requests, close every log, and write the clean-shutdown marker."""
        self._is_leaving = True
        if self._broker is not None:
            await self._broker.leave()
            await self._broker.stop()
        for way in self._ways:
            way.close()
        try:
            await self._raft.stop()
        except StorageError as error:
            logger.error("the metadata log could not be closed, the next start checks it: %s", error)
        await self._endpoints.stop_controllers(DRAIN_S)
        if self._metrics is not None:
            await self._metrics.stop()
        if self._broker is not None:
            await self._broker.mark_clean()
        self._directories.release()

    async def give_up(self) -> None:
        """Release ports and directories after `start` failed; nothing is written."""
        await self._endpoints.stop_brokers(0)
        await self._endpoints.stop_controllers(0)
        if self._metrics is not None:
            await self._metrics.stop()
        self._directories.release()

    def _give_up(self, why: str) -> None:
        logger.critical("this node stops: %s", why)
        self.on_doom()

    def _checks(self) -> Iterator[Check]:
        """What must be true for this node to serve."""
        if self._is_leaving:
            yield Check("staying", False, "this node is shutting down")
        raft: RaftDriver | None = getattr(self, "_raft", None)
        yield from quorum_checks(raft)
        if self._settings.is_broker:
            if self._broker is None:
                yield Check("registered", False, "the broker has not started yet")
            else:
                yield from self._broker.checks()

    def _quorum(self) -> RaftDriver:
        settings = self._settings
        voters = settings.controller_quorum_voters
        return RaftDriver(
            self._env,
            Path(settings.metadata_log_dir),
            settings.node_id,
            tuple(voter.node_id for voter in voters),
            settings.metadata_log_max_record_bytes_between_snapshots,
            LogSettings(segment_bytes=settings.metadata_log_segment_bytes, segment_ms=settings.metadata_log_segment_ms),
            addresses={voter.node_id: voter.endpoint for voter in voters if voter.endpoint.port},
            cluster_id=self.cluster_id,
            times=QuorumTimes(
                election_ms=settings.controller_quorum_election_timeout_ms,
                fetch_ms=settings.controller_quorum_fetch_timeout_ms,
                backoff_max_ms=settings.controller_quorum_election_backoff_max_ms,
                request_ms=settings.controller_quorum_request_timeout_ms,
                retry_ms=settings.controller_quorum_retry_backoff_ms,
            ),
            directory_id=self._directories.metadata_directory_id,
            listener_name=settings.controller_listener_names[0],
            bootstrap=settings.controller_quorum_bootstrap_servers,
            peer_security=self._security.to_controllers,
            snapshot_interval_ms=settings.metadata_log_max_snapshot_interval_ms,
        )

    def _controller_settings(self) -> ControllerSettings:
        settings = self._settings
        return ControllerSettings(
            session_timeout_ms=settings.broker_session_timeout_ms,
            auto_leader_rebalance_enable=settings.auto_leader_rebalance_enable,
            leader_imbalance_check_interval_ms=settings.leader_imbalance_check_interval_seconds * 1000,
            unclean_leader_election_interval_ms=settings.unclean_leader_election_interval_ms,
            token_expiry_check_interval_ms=settings.delegation_token_expiry_check_interval_ms,
            first_records=self._security.bootstrap_records,
        )

    def _way(self) -> ControllerClient:
        """A separate client of the active controller, which may be in this process."""
        settings = self._settings
        way = ControllerClient(
            self._env,
            settings.node_id,
            self._raft,
            self._raft.addresses.of,
            settings.request_timeout_ms,
            self._security.to_controllers,
        )
        if self._controller_role is not None:
            way.serve_locally = self._controller_role.serve
        self._ways.append(way)
        self._raft.on_leader(way.leader_changed)
        return way
