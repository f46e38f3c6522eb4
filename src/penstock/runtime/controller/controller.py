"""The controller's operations. The active one decides and commits; any other rejects with NOT_CONTROLLER."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from penstock.config.properties import ConfigError
from penstock.config.topic import TopicSettings, check_topic_overrides
from penstock.core.metadata import (
    alter_partition,
    brokers,
    configs,
    directories,
    elections,
    features,
    producer_ids,
    reassignment,
    restore,
    topics,
)
from penstock.core.metadata.election_rules import ElectionRules
from penstock.core.metadata.elections import ElectionType, PartitionKey
from penstock.core.metadata.image import Image, ResourceType, Topic
from penstock.core.metadata.result import Result
from penstock.core.metadata.topic_names import check_tierable
from penstock.core.metadata.topic_policy import TopicPolicy
from penstock.core.placement.stripe import PlacementError, UsableBroker, place
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import METADATA_TOPIC_ID, ZERO_UUID, Uuid
from penstock.runtime.controller.duties import RECORDS_PER_DECISION, ControllerSettings, DecisionQueue, Duties
from penstock.runtime.controller.links import LinkDecisions
from penstock.runtime.controller.security import SecurityDecisions
from penstock.runtime.env import Env
from penstock.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)
from penstock.wire.messages.alter_partition_reassignments import ReassignableTopic, ReassignableTopicResponse
from penstock.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponseDirectoryData,
)
from penstock.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from penstock.wire.messages.broker_registration import BrokerRegistrationRequest
from penstock.wire.messages.controller_registration import ControllerRegistrationRequest
from penstock.wire.messages.elect_leaders import ReplicaElectionResult, TopicPartitions
from penstock.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsTopics,
    OngoingTopicReassignment,
)
from penstock.wire.messages.metadata_records import ControllerEndpoint, ControllerFeature, RegisterControllerRecord

# How much one administrative request may change; Kafka's limit.
RECORDS_PER_REQUEST_MAX = 10_000

# Called with the partitions that a request creates or deletes; raises ApiError if its client may not.
Charge = Callable[[int], None]


def _free(partitions: int) -> None:
    """No quota is charged."""


class Controller:
    """Decides on changes to the cluster; every future completes once the change is committed."""

    def __init__(
        self,
        env: Env,
        raft: DecisionQueue,
        defaults: topics.TopicDefaults,
        broker: Callable[[], TopicSettings],
        *,
        cluster_id: str = "",
        settings: ControllerSettings | None = None,
        supported_features: Mapping[str, tuple[int, int]] = features.SUPPORTED_FEATURES,
        voters: Callable[[], Sequence[int]] = tuple,
        kraft_version: Callable[[], int] = int,
        next_offset: Callable[[], int],
        policy: Callable[[], TopicPolicy] = TopicPolicy,
    ):
        self._env = env
        self._raft = raft
        self._defaults = defaults
        self._broker = broker
        self._cluster_id = cluster_id
        self._settings = settings or ControllerSettings()
        self._supported_features = supported_features
        self._voters = voters
        self._kraft_version = kraft_version
        self._next_offset = next_offset
        self._policy = policy
        self.security = SecurityDecisions(env, raft)
        self.links = LinkDecisions(
            env,
            raft,
            cluster_id,
            next_offset,
            self._placer,
            self._check_topic_configs,
            self._check_new_topic,
            lambda name, partitions: self._policy().check_growth(name, partitions),
            self._new_topic_id,
            lambda image: features.enable_links(image, self._supported_features, self._voters()),
        )
        self._duties: Duties | None = None
        # The connection of each broker's last heartbeat; the end of any other connection is ignored.
        self._heartbeat_connection: dict[int, object] = {}

    def on_leadership(self, is_leader: bool) -> None:
        """Start or stop the duties of the active controller; called by the quorum."""
        if self._duties is not None:
            self._duties.stop()
            self._duties = None
            self._heartbeat_connection.clear()
        self.links.forget_claims()
        if is_leader:
            self._duties = Duties(self._env, self._raft, self._settings, self._rules, self._next_offset)
            self._duties.start()

    def stop(self) -> None:
        """The node stops."""
        self.on_leadership(False)

    def _active(self) -> Duties:
        if self._duties is None:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "this node is not the active controller")
        return self._duties

    def _rules(self) -> ElectionRules:
        topic = self._broker()
        return ElectionRules(topic.min_insync_replicas, topic.unclean_leader_election_enable)

    async def register_broker(self, request: BrokerRegistrationRequest) -> int:
        """Register a broker, or a new incarnation of one; returns its epoch. Raises ApiError."""
        duties, broker_id = self._active(), request.broker_id
        await duties.begun.wait()
        image = self._raft.image

        def alive() -> bool:
            return duties.heartbeats.has_valid_session(broker_id, self._env.monotonic_ms())

        def decision(image: Image, found: Sequence[PartitionKey]) -> Result[int]:
            return brokers.register(
                image, request, self._cluster_id, self._next_offset(), alive(), self._rules(), found
            )

        brokers.check_registration(image, request, self._cluster_id, alive())
        if brokers.is_new_incarnation(image, broker_id, request.incarnation_id):
            clean = brokers.shut_down_cleanly(image, broker_id, request.previous_broker_epoch)
            intact = brokers.intact_directories(image, request)
            epoch = await duties.depart(broker_id, not clean, decision, intact)
        else:
            epoch = await self._raft.decide(lambda image: decision(image, ()))
        broker = self._raft.image.brokers.get(broker_id)
        if broker is not None and broker.epoch == epoch:
            duties.heartbeats.register(broker_id, self._env.monotonic_ms())
            duties.watch()
        return epoch

    async def heartbeat(self, request: BrokerHeartbeatRequest, connection: object = None) -> brokers.HeartbeatReply:
        """Process a broker's heartbeat, which may ask to be unfenced, fenced or released. Raises ApiError.

        `connection` is the one it arrived on, if its end matters; see `connection_lost`.
        """
        duties, broker_id = self._active(), request.broker_id
        brokers.check_broker_epoch(self._raft.image, broker_id, request.broker_epoch)
        # Before it waits for its turn: a busy controller is no reason to consider a broker dead.
        duties.heartbeats.touch(broker_id, self._env.monotonic_ms())
        self._heartbeat_connection[broker_id] = connection
        was_fenced = self._raft.image.brokers[broker_id].fenced
        end = -1

        def decision(image: Image) -> Result[brokers.HeartbeatReply]:
            nonlocal end
            result = brokers.heartbeat(image, duties.heartbeats, request, self._rules(), RECORDS_PER_DECISION)
            end = self._next_offset() + len(result.records) - 1
            return result

        while (reply := await self._raft.decide(decision)).is_partial:
            pass
        self._note_heartbeat(duties, request, reply, was_fenced, end)
        return reply

    def _note_heartbeat(
        self,
        duties: Duties,
        request: BrokerHeartbeatRequest,
        reply: brokers.HeartbeatReply,
        was_fenced: bool,
        end: int,
    ) -> None:
        broker = self._raft.image.brokers.get(request.broker_id)
        if broker is None or broker.epoch != request.broker_epoch or duties is not self._duties:
            return
        broker_id, heartbeats = request.broker_id, duties.heartbeats
        heartbeats.note(broker_id, request.current_metadata_offset)
        if broker.in_controlled_shutdown and not broker.fenced:
            if not heartbeats.shutting_down(broker_id):
                heartbeats.begin_controlled_shutdown(broker_id, end)
            duties.evacuate(broker_id)
        if was_fenced and not reply.is_fenced and self._raft.image.leaderless:
            duties.sweep()
        if brokers.wants_fence(broker, request) and not reply.is_fenced:
            duties.fence(broker_id)
        duties.watch()

    def connection_lost(self, broker_id: int, connection: object) -> None:
        """A connection of a broker's heartbeats broke: unless it has another one, the broker is gone."""
        if self._duties is not None and self._heartbeat_connection.get(broker_id) is connection:
            self._duties.connection_lost(broker_id)

    async def unregister_broker(self, broker_id: int) -> None:
        """Remove a broker's registration. Raises ApiError when it is unknown, or alive and in sync somewhere."""
        duties = self._active()
        # Once more when it is decided: the broker may return before its turn comes.
        brokers.check_unregistration(self._raft.image, broker_id)
        await duties.depart(
            broker_id, False, lambda image, found: brokers.unregister(image, broker_id, self._rules(), found)
        )
        duties.heartbeats.forget(broker_id)

    def register_controller(self, request: ControllerRegistrationRequest) -> Future[None]:
        """Record a controller's addresses and supported feature levels."""
        record = RegisterControllerRecord(
            controller_id=request.controller_id,
            incarnation_id=request.incarnation_id,
            zk_migration_ready=False,
            end_points=[ControllerEndpoint(*listener) for listener in request.listeners],
            features=[ControllerFeature(*feature) for feature in request.features],
        )
        return self._raft.decide(lambda _: Result([record], None))

    def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> Future[range]:
        """Allocate a block of producer ids."""
        return self._raft.decide(lambda image: producer_ids.allocate(image, broker_id, broker_epoch))

    def assign_replicas_to_directories(
        self, request: AssignReplicasToDirsRequest
    ) -> Future[list[AssignReplicasToDirsResponseDirectoryData]]:
        """Record the log directory of each replica of a broker."""
        return self._raft.decide(lambda image: directories.assign_replicas(image, request, self._rules()))

    async def alter_partition(self, request: AlterPartitionRequest) -> list[AlterPartitionResponseTopicData]:
        """Change the in-sync replicas of partitions, as their leader requests."""
        rows: dict[Uuid, list[AlterPartitionResponsePartitionData]] = {}
        for piece in alter_partition.pieces(request, RECORDS_PER_DECISION):
            for topic in await self._raft.decide(partial(self._alter_partition, piece)):
                rows.setdefault(topic.topic_id, []).extend(topic.partitions)
        return [AlterPartitionResponseTopicData(topic_id, found) for topic_id, found in rows.items()]

    def _alter_partition(
        self, request: AlterPartitionRequest, image: Image
    ) -> Result[list[AlterPartitionResponseTopicData]]:
        return alter_partition.alter_partition(image, request, self._rules())

    def elect_leaders(
        self, kind: ElectionType, wanted: Sequence[TopicPartitions] | None
    ) -> Future[list[ReplicaElectionResult]]:
        """Hold elections for some partitions, or for all that need one."""
        return self._raft.decide(
            lambda image: elections.elect_leaders(image, kind, wanted, self._rules(), RECORDS_PER_REQUEST_MAX)
        )

    def alter_reassignments(
        self,
        wanted: Sequence[ReassignableTopic],
        *,
        records_max: int = RECORDS_PER_REQUEST_MAX,
        allow_replication_factor_change: bool = True,
    ) -> Future[list[ReassignableTopicResponse]]:
        """Start or cancel reassignments."""
        return self._raft.decide(
            lambda image: reassignment.alter_reassignments(
                image,
                wanted,
                self._rules(),
                records_max,
                allow_replication_factor_change=allow_replication_factor_change,
            )
        )

    def list_reassignments(
        self, wanted: Sequence[ListPartitionReassignmentsTopics] | None
    ) -> Future[list[OngoingTopicReassignment]]:
        """The reassignments in progress, including everything decided so far."""
        return self._raft.decide(lambda image: Result((), reassignment.list_reassignments(image, wanted)))

    def update_features(
        self, updates: Sequence[features.FeatureUpdate], *, validate_only: bool = False
    ) -> Future[None]:
        """Change feature levels of the cluster, all of them or none."""

        def decision(image: Image) -> Result[None]:
            minimum = self._rules().min_insync_replicas
            result = features.update_features(
                image, updates, self._supported_features, minimum, self._voters(), self._kraft_version()
            )
            return Result((), None) if validate_only else result

        return self._raft.decide(decision)

    def create_topics(
        self,
        wanted: Sequence[topics.NewTopic],
        charge: Charge = _free,
        *,
        validate_only: bool = False,
        partitions_max: int = topics.PARTITIONS_PER_REQUEST_MAX,
    ) -> Future[list[topics.TopicOutcome]]:
        """Create topics, or only validate the request, which is charged all the same."""

        def admit(name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]) -> None:
            self._policy().check_new(name, partitions, replication_factor, configs, self._broker())
            charge(partitions)

        def decision(image: Image) -> Result[list[topics.TopicOutcome]]:
            result = topics.create_topics(
                image,
                wanted,
                self._defaults,
                self._placer(image),
                self._check_topic_configs,
                self._new_topic_id,
                admit,
                partitions_max,
            )
            if validate_only:
                return Result((), [outcome._replace(topic_id=ZERO_UUID) for outcome in result.response])
            return result

        return self._raft.decide(decision)

    def restore_topics(
        self, wanted: Sequence[restore.RestoredTopic], next_producer_id: int
    ) -> Future[list[restore.RestoreOutcome]]:
        """Bring back topics of a lost cluster, whose records are in object storage."""
        return self._raft.decide(
            lambda image: restore.restore_topics(
                image, wanted, next_producer_id, self._placer(image), self._check_topic_configs, self._check_new_topic
            )
        )

    def delete_topics(self, choose: Callable[[Image], Topic], charge: Charge = _free) -> Future[Topic]:
        """Delete the topic that `choose` picks from the image; it raises ApiError when there is none."""

        def decision(image: Image) -> Result[Topic]:
            topic = choose(image)
            charge(len(topic.partitions))
            return Result(topics.delete_topic(topic), topic)

        return self._raft.decide(decision)

    def create_partitions(
        self,
        name: str,
        total: int,
        assignments: Sequence[Sequence[int]] | None,
        charge: Charge = _free,
        *,
        validate_only: bool = False,
    ) -> Future[None]:
        """Grow a topic."""

        def decision(image: Image) -> Result[None]:
            known = image.topics.get(name)
            if known is not None:
                image.links.check_not_mirroring(known.topic_id, name)
            records = topics.add_partitions(image, name, total, assignments, self._placer(image))
            self._policy().check_growth(name, total)
            charge(len(records))
            return Result(() if validate_only else records, None)

        return self._raft.decide(decision)

    def change_configs(
        self,
        kind: ResourceType,
        name: str,
        change: Callable[[Mapping[str, str]], Mapping[str, str]],
        *,
        validate_only: bool = False,
        share: configs.GroupShare | None = None,
    ) -> Future[None]:
        """Replace a resource's settings by the result of `change`, which raises ApiError to reject the request.

        `share` limits how many groups have settings.
        """

        def decision(image: Image) -> Result[None]:
            if kind is ResourceType.TOPIC and name not in image.topics:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
            before = image.overrides(kind, name)
            after = change(before)
            if kind is ResourceType.TOPIC:
                check_tierable(name, after)
                self._check_topic_configs(after)
                self._policy().check_change(name, before, after, self._broker())
            if kind is ResourceType.BROKER and not image.cordoned_directories_enabled:
                configs.check_not_cordoned(before, after)
            configs.check_room(image, kind, name, after, share)
            records = configs.change_configs(image, kind, name, after)
            return Result(() if validate_only else records, None)

        return self._raft.decide(decision)

    def record(self, records: Callable[[Image], Sequence[object]]) -> Future[None]:
        """Commit records that only depend on the image."""
        return self._raft.decide(lambda image: Result(records(image), None))

    def _placer(self, image: Image) -> topics.PlaceReplicas:
        def chosen(partitions: int, replication_factor: int) -> list[tuple[int, ...]]:
            if replication_factor == -1:
                replication_factor = self._defaults.replication_factor
            brokers = [
                UsableBroker(broker.broker_id, broker.registration.rack, broker.fenced)
                for broker in image.brokers.values()
                if not (broker.in_controlled_shutdown or broker.is_cordoned)
            ]
            try:
                return place(partitions, replication_factor, brokers, self._env.random)
            except PlacementError as error:
                raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, str(error)) from error

        return chosen

    def _check_new_topic(self, name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]) -> None:
        self._policy().check_new(name, partitions, replication_factor, configs, self._broker())

    def _check_topic_configs(self, overrides: Mapping[str, str]) -> None:
        try:
            check_topic_overrides(overrides, self._broker())
        except ConfigError as error:
            raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from error

    def _new_topic_id(self) -> Uuid:
        # Ids that begin with a dash confuse command lines, so Kafka never creates one; nor do we.
        while True:
            topic_id: Uuid = self._env.random.randbytes(16)
            if topic_id[0] >> 2 != 62 and topic_id not in (ZERO_UUID, METADATA_TOPIC_ID):
                return topic_id
