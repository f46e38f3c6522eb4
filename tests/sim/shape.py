"""What a simulated cluster looks like, and the settings that its nodes and topics have for it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sim.consumer import READ_COMMITTED, READ_UNCOMMITTED
from sim.disk import DATA, KEYS_PATH, MORE_DATA
from sim.workers import DELIVERIES_MAX, LETTERS, LOCK_S

BROKER_PORT = 9092
CONTROLLER_PORT = 9093
KEEP, COMPACT, RETAIN = "keep", "compact", "retain"

GUARDED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # These clients do not sign in.
    "super.users": "User:ANONYMOUS",
    "delegation.token.secret.key": "simulated",
}
# Times that let more happen in a short run.
SHORT_TIMES = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "3000",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}


@dataclass(frozen=True, slots=True)
class Shape:
    """What a simulated cluster looks like. None stands for what nodes come with."""

    nodes: int = 3
    # 0 where the brokers are controllers, too.
    controllers: int = 0
    partitions: int = 2
    producers: int = 2
    consumers: int = 1
    # Members of a group of the consumer protocol, and of one of the classic protocol.
    members: int = 2
    classic_members: int = 0
    replication_factor: int = 3
    min_insync_replicas: int = 2
    produce_pause_s: float = 0.1
    admin_pause_s: float = 2.0
    # How long messages take at most.
    delay_ms_max: int = 1
    # Whether nodes have the timings that they come with, instead of shorter ones.
    default_times: bool = False
    # Transactional ids of writers and of copiers; readers get committed records where there are any.
    writers: int = 0
    copiers: int = 0
    # Of batches in transactions, the part that arrives after its producer gave it up.
    late_part: float = 0.03
    # Of all other batches, the part that arrives twice, the second time late.
    repeated_part: float = 0.0
    transaction_timeouts_ms: tuple[int, ...] = (2_000, 5_000, 8_000)
    # The topics' flush.ms; without it nodes sync when they see fit.
    flush_ms: int | None = None
    # When the topics' segments, and those of coordinators, are full or old.
    segment_bytes: int | None = None
    segment_ms: int | None = None
    index_interval_bytes: int | None = None
    # How often nodes note recovery points, high watermarks and log starts.
    checkpoint_ms: int | None = None
    # How much metadata there is between two snapshots, and in a segment of its log.
    snapshot_bytes: int | None = None
    snapshot_ms: int | None = None
    metadata_segment_bytes: int | None = None
    # What becomes of old records: they are kept, superseded by newer ones with their key, or deleted.
    policy: str = KEEP
    retention_ms: int | None = None
    retention_bytes: int | None = None
    # How many keys producers use, and the part of their records that deletes what a key has.
    keys: int = 8
    tombstone_part: float = 0.0
    # Whether a replica that is not in sync may lead where there is no other.
    elects_uncleanly: bool = False
    # Whether an administrator moves the logs' starts.
    deletes_records: bool = False
    cleaner_pause_ms: int | None = None
    # Members of groups that send no heartbeat for so long are expelled.
    session_ms: int = 5_000
    # How long members live; then they vanish without a word, and another one comes.
    member_lifetime_s: float | None = None
    # Of streams that end with bytes under way, the part whose bytes are dropped.
    reset_part: float = 1.0
    # Whether access lists decide, and an administrator changes them, users, quotas and tokens.
    guarded: bool = False
    # Members of a share group on the first partition, how long they live, and what becomes of records they release.
    workers: int = 0
    worker_lifetime_s: float = 3.0
    # Workers of a gateway, which are one member together.
    takers: int = 0
    retry_backoff_ms: int = 0
    # Of all records, the part that is delayed.
    delayed_part: float = 0.0
    # How many updates of the group's state come between two snapshots.
    updates_per_snapshot: int = 500
    # Old segments go to object storage, and so much stays on disk.
    local_bytes: int | None = None
    # How they are compressed there, and whether they are encrypted.
    tier_compression: str = "none"
    tier_encrypts: bool = False
    # How much older than their batches records are, as when a history is copied, and when idle producers are forgotten.
    record_age_ms: int = 0
    producer_expiration_ms: int | None = None
    # How fast nodes search closed segments for damage; 0 where they do not.
    scrub_bytes_per_second: int = 0
    # Whether nodes have two data directories, and how long the pause is between two moves of replicas.
    moves_pause_s: float | None = None
    # How long the pause is between two changes of an operator, and whether those include eligible leader replicas.
    operator_pause_s: float | None = None
    switches_eligible: bool = False

    @property
    def isolation_level(self) -> int:
        return READ_COMMITTED if self.writers or self.copiers else READ_UNCOMMITTED


# What can be left out of a drawn shape, to see whether it matters.
DIMENSIONS: dict[str, tuple[str, ...]] = {
    "replicas": ("replication_factor", "min_insync_replicas"),
    "segments": ("segment_bytes", "segment_ms", "index_interval_bytes"),
    "checkpoints": ("checkpoint_ms",),
    "snapshots": ("snapshot_bytes", "snapshot_ms", "metadata_segment_bytes"),
    "policy": ("policy", "retention_ms", "retention_bytes", "deletes_records"),
    "cleaner": ("cleaner_pause_ms",),
    "classic": ("classic_members",),
    "lifetimes": ("member_lifetime_s",),
    "late": ("reset_part",),
    "security": ("guarded",),
    "moves": ("moves_pause_s",),
    "operator": ("operator_pause_s",),
    "takers": ("takers",),
    "ages": ("record_age_ms", "producer_expiration_ms"),
}


def without_dimensions(shape: Shape, names: list[str]) -> Shape:
    """The shape with some of its dimensions as they are by default."""
    usual = Shape()
    changes = {field: getattr(usual, field) for name in names for field in DIMENSIONS.get(name, ())}
    if "replicas" in names:
        factor = min(usual.replication_factor, shape.nodes)
        changes |= {"replication_factor": factor, "min_insync_replicas": min(usual.min_insync_replicas, factor)}
    return replace(shape, **changes)


def node_properties(node_id: int, roles: list[str], voters: str, shape: Shape) -> dict[str, str]:
    """Settings of a small node with short patience."""
    listeners = []
    if "broker" in roles:
        listeners.append(f"PLAINTEXT://n{node_id}:{BROKER_PORT}")
    if "controller" in roles:
        listeners.append(f"CONTROLLER://n{node_id}:{CONTROLLER_PORT}")
    return {
        "node.id": str(node_id),
        "process.roles": ",".join(roles),
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "controller.quorum.voters": voters,
        "listeners": ",".join(listeners),
        "log.dirs": f"/{DATA}" if shape.moves_pause_s is None else f"/{DATA},/{MORE_DATA}",
        "auto.create.topics.enable": "false",
        "penstock.log.scrub.bytes.per.second": str(shape.scrub_bytes_per_second),
        "penstock.log.scrub.interval.ms": "1000",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": str(shape.replication_factor),
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": str(shape.replication_factor),
        "transaction.state.log.min.isr": str(shape.min_insync_replicas),
        "min.insync.replicas": str(shape.min_insync_replicas),
        "default.replication.factor": str(shape.replication_factor),
        "log.cleaner.enable": "false" if shape.cleaner_pause_ms is None else "true",
        **({} if shape.default_times else SHORT_TIMES),
        **(GUARDED if shape.guarded else {}),
        **(_share_properties(shape) if shape.workers else {}),
        **(_tier_properties(shape) if shape.local_bytes is not None else {}),
        **_given(
            {
                "group.consumer.session.timeout.ms": None if shape.default_times else shape.session_ms,
                "producer.id.expiration.ms": shape.producer_expiration_ms,
                "producer.id.expiration.check.interval.ms": shape.producer_expiration_ms and 500,
                "log.cleaner.backoff.ms": shape.cleaner_pause_ms,
                "log.retention.check.interval.ms": 300
                if shape.policy != KEEP or shape.local_bytes is not None
                else None,
                "log.flush.offset.checkpoint.interval.ms": shape.checkpoint_ms,
                "metadata.log.max.record.bytes.between.snapshots": shape.snapshot_bytes,
                "metadata.log.max.snapshot.interval.ms": shape.snapshot_ms,
                "internal.metadata.log.segment.bytes": shape.metadata_segment_bytes,
            }
        ),
    }


def _share_properties(shape: Shape) -> dict[str, str]:
    return {
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": str(shape.replication_factor),
        "share.coordinator.state.topic.min.isr": str(shape.min_insync_replicas),
        "share.coordinator.state.topic.prune.interval.ms": "1000",
        "share.coordinator.cold.partition.snapshot.interval.ms": "2000",
        "share.coordinator.snapshot.update.records.per.snapshot": str(shape.updates_per_snapshot),
        "group.share.min.record.lock.duration.ms": "1000",
        "group.share.record.lock.duration.ms": str(int(LOCK_S * 1000)),
        "group.share.delivery.count.limit": str(DELIVERIES_MAX),
        "penstock.share.delay.index.max.records": "100",
    }


def _tier_properties(shape: Shape) -> dict[str, str]:
    return {
        **({"penstock.tier.encryption.keys.file": str(KEYS_PATH)} if shape.tier_encrypts else {}),
        "remote.log.storage.system.enable": "true",
        "penstock.tier.url": "file:///bucket",
        "penstock.tier.request.timeout.ms": "2000",
        "penstock.tier.read.bytes": "4096",
        "penstock.tier.compression": shape.tier_compression,
        "remote.log.manager.task.interval.ms": "200",
        "remote.log.manager.task.retry.backoff.ms": "100",
        "remote.log.manager.task.retry.backoff.max.ms": "1000",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
        "rlmm.config.remote.log.metadata.topic.replication.factor": str(shape.replication_factor),
    }


def group_settings(shape: Shape) -> dict[str, str]:
    """Settings of the share group."""
    return {
        "errors.deadletterqueue.topic.name": LETTERS,
        "errors.deadletterqueue.copy.record.enable": "true",
        "penstock.share.retry.backoff.ms": str(shape.retry_backoff_ms),
    }


def topic_settings(shape: Shape) -> dict[str, str]:
    """Settings of the topics that everybody works on."""
    policies = {KEEP: None, COMPACT: "compact", RETAIN: "delete"}
    return _given(
        {
            "min.insync.replicas": shape.min_insync_replicas,
            "flush.ms": shape.flush_ms,
            "cleanup.policy": policies[shape.policy],
            "retention.ms": -1 if shape.record_age_ms else shape.retention_ms,
            "retention.bytes": shape.retention_bytes,
            "segment.ms": shape.segment_ms,
            "index.interval.bytes": shape.index_interval_bytes,
            "remote.storage.enable": None if shape.local_bytes is None else "true",
            "local.retention.bytes": shape.local_bytes,
            "delete.retention.ms": 4_000 if shape.tombstone_part else None,
            "unclean.leader.election.enable": "true" if shape.elects_uncleanly else None,
            **_small_segments(shape),
        }
    )


def coordinator_topic_settings(shape: Shape) -> dict[str, str]:
    """What is set for the topics of coordinators once they are there."""
    return _given(_small_segments(shape))


def _small_segments(shape: Shape) -> dict[str, object]:
    if shape.segment_bytes is None:
        return {}
    cleans = shape.cleaner_pause_ms is not None
    return {
        "internal.segment.bytes": shape.segment_bytes,
        "min.cleanable.dirty.ratio": 0.1 if cleans else None,
        "file.delete.delay.ms": 500,
    }


def _given(settings: dict[str, object]) -> dict[str, str]:
    return {name: str(value) for name, value in settings.items() if value is not None}
