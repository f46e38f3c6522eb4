"""The broker of a node: its partitions, coordinators and handlers, and its membership in the cluster."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any

from penstock.api.context import Client, RequestContext, settled
from penstock.api.declaration import BrokerServices
from penstock.api.dispatch import Dispatcher, RequestLimits
from penstock.api.forwarding import Forwarding
from penstock.api.groups.streams_internal_topics import StreamsInternalTopics
from penstock.api.table import BROKER_VERSIONS, broker_handlers
from penstock.api.transactions.write_txn_markers import answer_markers
from penstock.client.protocol import Call
from penstock.config.node import NodeSettings
from penstock.core.metrics.counters import ReplicaCounters, RequestCounters
from penstock.core.replica.fetch_session import SessionCache
from penstock.core.replica.throttle import Throttle
from penstock.model.ids import NO_LEADER, Uuid
from penstock.node.directories import Directories
from penstock.node.disks import move_replicas, watch_failures
from penstock.node.endpoints import Endpoints
from penstock.node.failures import CannotStart
from penstock.node.metrics.clients import ClientCollector
from penstock.node.metrics.collector import Collector
from penstock.node.metrics.coordinators import CoordinatorCollector
from penstock.node.metrics.damage import DamageCollector
from penstock.node.metrics.health import Check
from penstock.node.metrics.links import LinkCollector
from penstock.node.metrics.replicas import ReplicaCollector
from penstock.node.metrics.rules import RulesCollector
from penstock.node.metrics.shares import ShareCollector
from penstock.node.metrics.tenants import TenantCollector
from penstock.node.metrics.tier import TierCollector
from penstock.node.metrics.topics import TopicCollector
from penstock.node.registration import broker_registration
from penstock.node.security import NodeSecurity
from penstock.node.tiering import open_tier
from penstock.runtime.brokers import Brokers
from penstock.runtime.controller.broker_lifecycle import BrokerLifecycle, RegistrationRefused
from penstock.runtime.controller.client import ControllerClient
from penstock.runtime.controller.controller import Controller
from penstock.runtime.coordinator.backpressure import BackPressure
from penstock.runtime.coordinator.groups import Groups
from penstock.runtime.coordinator.lag import LagView
from penstock.runtime.coordinator.marker_writer import MarkerWriter
from penstock.runtime.coordinator.markers import TransactionMarkers
from penstock.runtime.coordinator.producer_ids import ProducerIds
from penstock.runtime.coordinator.shards import partition_for
from penstock.runtime.coordinator.transaction_guard import TransactionGuard
from penstock.runtime.coordinator.transaction_verifier import TransactionVerifier, is_verification_enabled
from penstock.runtime.coordinator.transactions import TRANSACTION_TOPIC, Transactions
from penstock.runtime.env import Env
from penstock.runtime.hot_keys.counting import HotKeys
from penstock.runtime.link.groups import GroupSync
from penstock.runtime.link.links import Links
from penstock.runtime.live_settings import LiveSettings
from penstock.runtime.logs.cleaner import Cleaner
from penstock.runtime.logs.housekeeping import Housekeeping
from penstock.runtime.logs.scrubber import Scrubber
from penstock.runtime.peer import Peer
from penstock.runtime.raft.driver import RaftDriver
from penstock.runtime.replication.fetchers import (
    FOLLOWER_RATE,
    LEADER_RATE,
    ReplicaFetchers,
    fetcher_settings,
    throttled_rate,
)
from penstock.runtime.replication.follower_fetch import FollowerFetch
from penstock.runtime.replication.isr import IsrManager
from penstock.runtime.replication.leadership import Leadership
from penstock.runtime.replication.partitions import Partitions
from penstock.runtime.replication.produce_work import ProduceWork
from penstock.runtime.schemas.guard import SchemaGuard
from penstock.runtime.schemas.registry_client import registry_client
from penstock.runtime.security.access_control import OPEN
from penstock.runtime.security.audit_topic import AuditTopic
from penstock.runtime.security.tenants import Tenants
from penstock.runtime.share.dead_letter_topics import DeadLetterTopics
from penstock.runtime.share.end_offsets import EndOffsets
from penstock.runtime.share.partitions import SharePartitions
from penstock.runtime.share.persister import Persister
from penstock.runtime.share.share_groups import ShareGroupCoordinator
from penstock.runtime.share.states import ShareStates
from penstock.runtime.telemetry import Telemetry
from penstock.wire.apis import APIS, ApiKey

DRAIN_S = 5.0
# A broker whose leaderships no other can take over stops after this time.
LEAVE_MS_MAX = 30_000
# By this version the audit trail's own produces name their topic.
AUDIT_PRODUCE_VERSION = 9

logger = logging.getLogger("penstock.node")


class BrokerRole:
    """One broker of the cluster.

    `make_controller_client` creates a client of the active controller. There are several, so that a heartbeat or a
    change of the in-sync replicas never waits behind another request.
    """

    def __init__(
        self,
        env: Env,
        settings: NodeSettings,
        raft: RaftDriver,
        live: LiveSettings,
        directories: Directories,
        endpoints: Endpoints,
        make_controller_client: Callable[[], ControllerClient],
        counters: RequestCounters,
        security: NodeSecurity,
    ) -> None:
        self._env = env
        self._security = security
        self._settings = settings
        self._raft = raft
        self._live = live
        self._directories = directories
        self._endpoints = endpoints
        self._counters = counters
        self._requests = make_controller_client()
        # Links report in the background, and never delay requests of clients.
        self._link_reports = make_controller_client()
        self._proposals = make_controller_client()
        self._lifecycle = BrokerLifecycle(
            env,
            make_controller_client().ask,
            lambda: raft.applied_offset - 1,
            settings.broker_heartbeat_interval_ms,
            settings.broker_session_timeout_ms,
            directories.offline_ids,
            self._cordoned_directories,
        )
        # Called with a reason when this broker is of no more use.
        self.on_give_up: Callable[[str], None] = logger.critical
        self._fetchers: ReplicaFetchers
        self._groups: Groups
        self._housekeeping: Housekeeping
        self.partitions: Partitions

    async def start(self, controller: Controller, unreachable: Controller) -> None:
        """Register, catch up with the metadata, open every replica, accept clients, and wait to be unfenced."""
        settings, env, raft = self._settings, self._env, self._raft
        registration = broker_registration(settings, self._directories, self._endpoints, env.random)
        self._directories.note_registering(registration.incarnation_id)
        try:
            await self._lifecycle.register(registration, settings.initial_broker_registration_timeout_ms)
        except RegistrationRefused as error:
            raise CannotStart(str(error)) from error
        self._directories.note_epoch(self._lifecycle.broker_epoch)
        await raft.applied(self._lifecycle.broker_epoch + 1)
        self._live.on_change(self._cordon)
        self.partitions = Partitions(
            env,
            settings.node_id,
            raft.image,
            self._live.topic_defaults,
            self._directories.log_directories,
            settings.socket_request_max_bytes,
            lag_ms_max=settings.replica_lag_time_max_ms,
            counters=ReplicaCounters(is_on=settings.penstock_metrics_counting),
            producer_ids_max=settings.penstock_partition_producer_ids_max,
        )
        self._schema_guard = SchemaGuard(env, registry_client(env, settings))
        self.partitions.on_change(self._schema_guard.note)
        self.partitions.on_directory_failed(lambda _: self._directories.note_epoch(self._lifecycle.broker_epoch))
        self._directories.on_failure = self.partitions.fail_directory
        await self.partitions.begin_use()
        raft.on_commit(self.partitions.follow)
        await self.partitions.open_gradually()
        if self.partitions.are_all_open:
            self._directories.note_checked(self._lifecycle.broker_epoch)
        self._tier = await open_tier(
            env,
            raft,
            self._live,
            self.partitions,
            self._requests,
            self._brokers(),
            self._directories.cluster_id,
        )
        self._coordinate()
        await self._keep_logs()
        keeper = self._replicate()
        self._tenants = Tenants(
            env,
            self._brokers(),
            self.partitions,
            self._security.quotas,
            settings.penstock_tenant_usage_interval_ms,
            self._tier.only_there_bytes if self._tier is not None else lambda _: 0,
        )
        self._tenants.start()
        raft.on_commit(self._tenants.follow)
        self._links = Links(
            env,
            settings.node_id,
            raft.image,
            self.partitions,
            self._link_reports.ask,
            self._broker_epoch,
            GroupSync(raft.image, self._groups, self._brokers(), EndOffsets(self._brokers(), self._leader_of)),
        )
        raft.on_commit(self._links.follow)
        self._telemetry = Telemetry(env, raft.image, settings)
        raft.on_commit(self._telemetry.follow)
        self._endpoints.serve_brokers(self._dispatcher(keeper, controller, unreachable))
        raft.on_commit(self._report_during_shutdowns)
        raft.on_leader(lambda leader_id: self._lifecycle.heartbeat_now() if leader_id >= 0 else None)
        self._lifecycle.start()
        await self._lifecycle.active()
        if self._tier is not None:
            self._tier.start()
        self._links.start()
        self._keep_audit_trail()
        if self._some_broker() != settings.node_id:
            # Clients get topics from the metadata, which follows the controller's answer.
            shown = asyncio.Event()
            raft.on_commit(lambda _: shown.set() if self._some_broker() == settings.node_id else None)
            await shown.wait()

    async def _keep_logs(self) -> None:
        """Start keeping logs within their limits, compacting them, and moving them between directories."""
        env = self._env
        self._housekeeping = Housekeeping(env, self.partitions, self._live.current, self._tier)
        await self._housekeeping.watch_disks()
        self._housekeeping.start()
        self._cleaner = Cleaner(env, self.partitions, self._live.current)
        self._cleaner.start()
        patience_ms = self._settings.log_dir_failure_timeout_ms
        watch_failures(env, self.partitions, self._lifecycle, patience_ms, lambda why: self.on_give_up(why))
        ask, image = self._proposals.ask, self._raft.image
        self._moves, self._damaged = move_replicas(env, image, self.partitions, ask, self._broker_epoch)
        self._scrubber = Scrubber(env, self.partitions, self._live.current)
        self._scrubber.start()

    def _coordinate(self) -> None:
        """Start coordinating groups and transactions, on the partitions of their topics that this broker leads."""
        settings, env, raft = self._settings, self._env, self._raft
        self._lag = LagView(env, self.partitions)
        self._groups = Groups(env, raft.image, self._requests, self.partitions, settings)
        raft.on_commit(self._groups.follow)
        self._backpressure = BackPressure(env, self._brokers(), raft.image, self._groups, self._live.current)
        self.partitions.on_change(self._backpressure.note)
        self.partitions.on_removed(self._backpressure.forget)
        for partition in self.partitions:
            self._backpressure.note(partition)
        self._producer_ids = ProducerIds(self._requests.ask, settings.node_id, self._broker_epoch)
        self._marker_writer = MarkerWriter(env, self.partitions, self._groups)
        leaders = self._brokers(lambda request: answer_markers(self._marker_writer.write, request))
        markers = TransactionMarkers(env, leaders, self._leader_of)
        self._transactions = Transactions(
            env, raft.image, self._requests, self.partitions, self._producer_ids.take, markers, settings
        )
        self._verifier = TransactionVerifier(
            env,
            self._brokers(),
            self._coordinator_of,
            retry_ms=settings.add_partitions_to_txn_retry_backoff_ms,
            retry_max_ms=settings.add_partitions_to_txn_retry_backoff_max_ms,
        )

        self._share_states = ShareStates(
            env,
            raft.image,
            self._requests,
            self.partitions,
            settings,
            lambda moved: self._housekeeping.settle_deletions(moved),
        )
        raft.on_commit(self._share_states.follow)
        self._persister = Persister(
            env, self._brokers(), self._share_states.leader_of, settings.share_coordinator_write_timeout_ms
        )
        ends = EndOffsets(self._brokers(), self._leader_of)
        self._share_groups = ShareGroupCoordinator(env, raft.image, self._groups, self._persister, ends)
        dead_letters = DeadLetterTopics(
            self._brokers(), raft.image, self._requests, self._producer_ids.take, self._live.current
        )
        self._shares = SharePartitions(
            env, raft.image, self.partitions, self._persister, dead_letters, self._live.current, self._tier
        )

    async def _ask_itself(self, request: Any) -> object:
        """Answer a request of this broker's own, in the newest version."""
        key = ApiKey(Call(request).api_key)
        here = RequestContext(APIS[key].last_version, None, Client(("127.0.0.1", 0), ""))
        return await settled(self._own_handlers[key](request, here))

    def _replicate(self) -> IsrManager:
        """Start following leaders, and maintaining the in-sync replicas of partitions led here."""
        settings, env, raft = self._settings, self._env, self._raft
        keeper = IsrManager(
            env, self.partitions, self._proposals.ask, self._broker_epoch, settings.replica_lag_time_max_ms
        )
        keeper.start()
        self._fetchers = ReplicaFetchers(
            env,
            self.partitions,
            self._make_peer,
            fetcher_settings(settings),
            self._broker_epoch,
            Throttle(throttled_rate(raft.image, settings.node_id, FOLLOWER_RATE)),
            self._tier.history if self._tier is not None else None,
        )
        self._fetchers.start()
        self._live.on_change(self._fetchers.spread)
        return keeper

    def _dispatcher(self, keeper: IsrManager, controller: Controller, unreachable: Controller) -> Dispatcher:
        settings, env, raft = self._settings, self._env, self._raft
        sessions = SessionCache(
            settings.max_incremental_fetch_session_cache_slots, env.random, settings.penstock_fetch_sessions_bytes_max
        )
        follower_fetch = FollowerFetch(
            env,
            self.partitions,
            sessions,
            settings.fetch_max_bytes,
            keeper.propose,
            Throttle(throttled_rate(raft.image, settings.node_id, LEADER_RATE)),
        )
        sessions.on_closed = follower_fetch.end_session
        self.partitions.on_leader(follower_fetch.invite)
        self.partitions.leadership = Leadership(env, raft.is_current, follower_fetch)

        async def decide(key: ApiKey, request: Any, context: RequestContext) -> Any:
            response = await forwarding.decide(handlers, key, request, context)
            self._security.audit.changed(context.client, key, request, response)
            return response

        services = BrokerServices(
            env=env,
            image=raft.image,
            raft=raft,
            controller=controller,
            decide=decide,
            partitions=self.partitions,
            produce_work=ProduceWork(env),
            producer_ids=self._producer_ids,
            sessions=sessions,
            follower_fetch=follower_fetch,
            moves=self._moves,
            settings=self._live,
            cluster_id=self._directories.cluster_id,
            access=self._security.access,
            quotas=self._security.quotas,
            tokens=self._security.tokens,
            controller_id=self._some_broker,
            settle_deletions=self._housekeeping.settle_deletions,
            groups=self._groups,
            share_groups=self._share_groups,
            streams_topics=StreamsInternalTopics(env, decide),
            lag=self._lag,
            transactions=self._transactions,
            verify=self._verifier.verify,
            transaction_guard=TransactionGuard(env, self._verifier.verify, lambda: is_verification_enabled(self._live)),
            schema_guard=self._schema_guard,
            backpressure=self._backpressure,
            tenants=self._tenants,
            telemetry=self._telemetry,
            hot_keys=HotKeys(env),
            write_marker=self._marker_writer.write,
            ask_controller=self._requests.ask,
            links=self._links,
            share_states=self._share_states,
            shares=self._shares,
            tier=self._tier,
            counters=self._counters,
        )
        handlers = broker_handlers(services)
        refusing = broker_handlers(replace(services, controller=unreachable))
        # Requests of this broker itself are allowed, whatever access lists say.
        self._own_handlers = broker_handlers(replace(services, access=OPEN))
        forwarding = Forwarding(self._requests, lambda: raft.is_leader, refusing)
        return Dispatcher(
            handlers,
            BROKER_VERSIONS,
            forwarding,
            self._counters,
            quotas=self._security.quotas,
            audit=self._security.audit,
            is_exempt=self._security.is_exempt,
            limits=RequestLimits(
                self._settings.penstock_request_bytes_max, self._settings.penstock_request_entries_max
            ),
        )

    def _keep_audit_trail(self) -> None:
        """Start writing the audit trail, as requests of this broker's own."""
        settings, raft = self._settings, self._raft
        if not settings.penstock_audit_enable:
            self._security.audit.start()
            return
        here = RequestContext(AUDIT_PRODUCE_VERSION, None, Client(("127.0.0.1", 0), ""))
        leaders = self._brokers(lambda request: settled(self._own_handlers[ApiKey.PRODUCE](request, here)))
        topic = AuditTopic(leaders, raft.image, self._requests, settings.penstock_audit_retention_ms)
        self._security.audit.start(topic.write)

    async def leave(self) -> None:
        """Hand over every leadership, if there are other brokers."""
        if not self._settings.controlled_shutdown_enable:
            return
        others = [
            broker
            for broker in self._raft.image.brokers.values()
            if broker.broker_id != self._settings.node_id and not broker.fenced
        ]
        if others and not await self._lifecycle.leave(LEAVE_MS_MAX):
            logger.warning("not all leaderships could be handed over; stopping anyway")

    async def stop(self) -> None:
        """Finish what was accepted and close every log."""
        await self._security.audit.stop()
        # Members that wait for a rebalance would wait longer than we drain.
        self._transactions.close()
        self._groups.close()
        self._share_states.close()
        self._shares.close()
        self._links.close()
        draining = asyncio.ensure_future(self._endpoints.stop_brokers(DRAIN_S))
        await asyncio.sleep(0)
        self.partitions.wake_readers()
        await draining
        self._fetchers.stop()
        await self._moves.stop()
        await self.partitions.close_all()

    async def mark_clean(self) -> None:
        """The last step of a clean shutdown: the clean-shutdown marker."""
        await self._housekeeping.finish(self._broker_epoch())

    def _report_during_shutdowns(self, _: object) -> None:
        """A broker in controlled shutdown may stop once the others know the new leaders: report that at once."""
        brokers = self._raft.image.brokers.values()
        if any(broker.in_controlled_shutdown and broker.broker_id != self._settings.node_id for broker in brokers):
            self._lifecycle.heartbeat_now()

    def collectors(self) -> list[Collector]:
        """The collectors of this broker, once it has started."""
        return [
            TopicCollector(self.partitions),
            ReplicaCollector(self._env, self.partitions, self._fetchers, self._cleaner, self._moves),
            DamageCollector(self._damaged, self._scrubber),
            CoordinatorCollector(self._env, self._groups, self._transactions, self._lag),
            ShareCollector(self._shares),
            RulesCollector(self._security.audit, self._backpressure),
            TenantCollector(self._raft.image, self._tenants),
            ClientCollector(self._telemetry),
            LinkCollector(self._links),
            *([TierCollector(self._tier)] if self._tier is not None else ()),
        ]

    def checks(self) -> Iterator[Check]:
        """What must be true for this broker to serve."""
        if self._lifecycle.broker_epoch < 0:
            yield Check("registered", False, "the controllers have not registered this broker yet")
            return
        yield Check("registered", True)
        own = self._raft.image.brokers.get(self._settings.node_id)
        is_unfenced = own is not None and not own.fenced and not self._lifecycle.is_fenced
        yield Check("unfenced", is_unfenced, "" if is_unfenced else "the controller keeps this broker fenced")
        failed = [one for one in self._directories.log_directories if one.failure is not None]
        works = len(failed) < len(self._directories.log_directories)
        yield Check("log directories", works, "; ".join(f"{one.path} failed: {one.failure}" for one in failed))

    def _broker_epoch(self) -> int:
        return self._lifecycle.broker_epoch

    def _cordoned_directories(self) -> list[Uuid] | None:
        if not self._raft.image.cordoned_directories_enabled:
            return None
        return [one.directory_id for one in self._directories.log_directories if one.is_cordoned]

    def _cordon(self, settings: NodeSettings) -> None:
        if self._directories.cordon(settings.cordoned_log_dirs):
            self._lifecycle.heartbeat_now()

    def _some_broker(self) -> int:
        """Clients send requests for the controller to any active broker, which forwards them."""
        brokers = self._raft.image.brokers
        own = brokers.get(self._settings.node_id)
        if own is not None and not own.fenced:
            return own.broker_id
        return next((broker.broker_id for broker in brokers.values() if not broker.fenced), -1)

    def _leader_of(self, topic: str, partition: int) -> int | None:
        state = self._raft.image.partition(topic, partition)
        return None if state is None else state.leader

    def _coordinator_of(self, transactional_id: str) -> int:
        topic = self._raft.image.topics.get(TRANSACTION_TOPIC)
        if topic is None:
            return NO_LEADER
        return topic.partitions[partition_for(transactional_id, len(topic.partitions))].leader

    def _brokers(self, ask_itself: Callable[[Any], Awaitable[Any]] | None = None) -> Brokers:
        """All brokers, over connections that are not shared."""
        return Brokers(self._settings.node_id, self._make_peer, ask_itself or self._ask_itself)

    def _make_peer(self, broker_id: int) -> Peer:
        def address() -> tuple[str, int] | None:
            broker = self._raft.image.brokers.get(broker_id)
            name = self._settings.inter_broker_listener_name
            return broker.endpoint(name) if broker is not None and name is not None else None

        client_id = f"broker-{self._settings.node_id}"
        return Peer(self._env, address, client_id, self._settings.replica_socket_timeout_ms, self._security.to_brokers)
