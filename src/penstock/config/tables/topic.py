"""Topic properties, and the broker properties that give their defaults, first match first."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.config.properties import LONG_MAX, Property, index
from penstock.config.tables.log import COMPRESSION_TYPES, LOG_ROWS, TIMESTAMP_TYPES
from penstock.config.tables.vocabulary import (
    ACCEPTED,
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    LONG,
    PLANNED,
    STRING,
)

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
_PREALLOCATE = "Segment files grow as records arrive; Linux file systems allocate in large extents by themselves."

_NAMING = "io.confluent.kafka.serializers.subject."
SUBJECT_NAME_STRATEGIES = tuple(
    f"{_NAMING}{name}" for name in ("TopicNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy")
)
_SCHEMA_CHECKS = tuple(
    row
    for part in ("key", "value")
    for row in (
        Property(
            f"confluent.{part}.schema.validation",
            BOOLEAN,
            False,
            f"Refuse records whose {part} does not begin with the id of a schema that its subject has; "
            "needs confluent.schema.registry.url.",
        ),
        Property(
            f"confluent.{part}.subject.name.strategy",
            STRING,
            SUBJECT_NAME_STRATEGIES[0],
            f"How the subject of a {part}'s schema is named: after the topic, the record, or both.",
            choices=SUBJECT_NAME_STRATEGIES,
        ),
    )
)

TOPIC_PROPERTIES = index(
    (
        Property(
            "cleanup.policy",
            LIST,
            ("delete",),
            "What happens to old records: delete drops whole segments by age or size, compact keeps each key's last.",
            choices=("compact", "delete"),
        ),
        Property(
            "compression.gzip.level",
            INT,
            -1,
            "How hard gzip works when the broker compresses; -1 is the library's own choice.",
            minimum=1,
            maximum=9,
            exceptions=(-1,),
        ),
        Property(
            "compression.lz4.level", INT, 9, "How hard lz4 works when the broker compresses.", minimum=1, maximum=17
        ),
        Property(
            "compression.type",
            STRING,
            "producer",
            "The codec of stored batches; producer keeps whatever the producer chose.",
            choices=COMPRESSION_TYPES,
        ),
        Property(
            "compression.zstd.level",
            INT,
            3,
            "How hard zstd works when the broker compresses.",
            minimum=-131072,
            maximum=22,
        ),
        *_SCHEMA_CHECKS,
        Property(
            "delete.retention.ms",
            LONG,
            86_400_000,
            "How long a compacted topic still shows a deletion, so that slow readers learn of it.",
            minimum=0,
        ),
        Property(
            "file.delete.delay.ms",
            LONG,
            60_000,
            "How long a dropped segment's files stay on disk, so that reads under way can finish.",
            minimum=0,
        ),
        Property("flush.messages", LONG, LONG_MAX, "Sync the log to disk after this many records.", minimum=1),
        Property("flush.ms", LONG, LONG_MAX, "Sync the log to disk when records have waited this long.", minimum=0),
        Property(
            "follower.replication.throttled.replicas",
            LIST,
            (),
            "Followers whose catching up is throttled: * for all, or partition:broker pairs.",
        ),
        Property("index.interval.bytes", INT, 4096, "Bytes of log between two entries of the offset index.", minimum=0),
        Property(
            "internal.segment.bytes",
            INT,
            None,
            "A segment size without the lower limit of segment.bytes, for tests.",
            internal=True,
        ),
        Property(
            "leader.replication.throttled.replicas",
            LIST,
            (),
            "Leaders whose followers are fed at a throttled rate: * for all, or partition:broker pairs.",
        ),
        Property(
            "local.retention.bytes",
            LONG,
            -2,
            "Bytes kept on the broker's own disk when older ones are in object storage; -2 follows retention.bytes.",
            minimum=-2,
            effect=PLANNED,
        ),
        Property(
            "local.retention.ms",
            LONG,
            -2,
            "Age kept on the broker's own disk when older records are in object storage; -2 follows retention.ms.",
            minimum=-2,
            effect=PLANNED,
        ),
        Property(
            "max.compaction.lag.ms",
            LONG,
            LONG_MAX,
            "A record is open to compaction at the latest after this long.",
            minimum=1,
        ),
        Property(
            "max.message.bytes",
            INT,
            1_048_588,
            "The largest record batch, as compressed by the producer, that the topic takes.",
            minimum=0,
        ),
        Property(
            "message.timestamp.after.max.ms",
            LONG,
            3_600_000,
            "How far ahead of the broker's clock a producer's timestamp may lie.",
            minimum=0,
        ),
        Property(
            "message.timestamp.before.max.ms",
            LONG,
            LONG_MAX,
            "How far behind the broker's clock a producer's timestamp may lie.",
            minimum=0,
        ),
        Property(
            "message.timestamp.type",
            STRING,
            "CreateTime",
            "Whose clock stamps records: the producer's (CreateTime) or the broker's (LogAppendTime).",
            choices=TIMESTAMP_TYPES,
        ),
        Property(
            "min.cleanable.dirty.ratio",
            DOUBLE,
            0.5,
            "Compact once this share of the log has not been compacted yet.",
            minimum=0,
            maximum=1,
        ),
        Property("min.compaction.lag.ms", LONG, 0, "A record stays uncompacted for at least this long.", minimum=0),
        Property(
            "min.insync.replicas",
            INT,
            1,
            "Replicas that must be in sync for a write with acks=all to be taken.",
            minimum=1,
        ),
        Property(
            "preallocate",
            BOOLEAN,
            False,
            "Whether a new segment file is allocated at full size.",
            effect=ACCEPTED,
            reason=_PREALLOCATE,
        ),
        Property(
            "remote.log.copy.disable",
            BOOLEAN,
            False,
            "Stop copying segments to object storage; what is there stays readable.",
            effect=PLANNED,
        ),
        Property(
            "remote.log.delete.on.disable",
            BOOLEAN,
            False,
            "Remove what is in object storage when remote.storage.enable is turned off.",
            effect=PLANNED,
        ),
        Property("remote.storage.enable", BOOLEAN, False, "Keep old segments in object storage.", effect=PLANNED),
        Property(
            "retention.bytes", LONG, -1, "Drop the oldest segments once a partition is larger than this; -1 never does."
        ),
        Property(
            "retention.ms",
            LONG,
            604_800_000,
            "Drop segments whose records are older than this; -1 never does.",
            minimum=-1,
        ),
        Property("segment.bytes", INT, 1_073_741_824, "Start a new segment file at this size.", minimum=1_048_576),
        Property("segment.index.bytes", INT, 10_485_760, "The largest size of a segment's index file.", minimum=4),
        Property(
            "segment.jitter.ms",
            LONG,
            0,
            "Roll segments up to this much earlier, at random, so that they don't all roll at once.",
            minimum=0,
        ),
        Property(
            "segment.ms", LONG, 604_800_000, "Start a new segment file after this long even if it is small.", minimum=1
        ),
        Property(
            "unclean.leader.election.enable",
            BOOLEAN,
            False,
            "Let a replica that missed records lead when no other is left; records can be lost.",
        ),
    )
)

REMOVED_TOPIC_PROPERTIES = {
    "message.format.version": "records are always stored in the current format; leave it out",
    "message.downconversion.enable": "old record formats are no longer served; leave it out",
    "message.timestamp.difference.max.ms": ("use message.timestamp.before.max.ms and message.timestamp.after.max.ms"),
}


@dataclass(frozen=True, slots=True)
class Synonym:
    """A broker property that gives a topic property's default; its value times `multiplier` is the topic's value."""

    row: Property
    multiplier: int = 1

    @property
    def name(self) -> str:
        return self.row.name


_LOG_ROWS_BY_NAME = index(LOG_ROWS)


def _synonyms(*names: str) -> tuple[Synonym, ...]:
    return tuple(
        Synonym(_LOG_ROWS_BY_NAME[name], {"hours": HOUR_MS, "minutes": MINUTE_MS}.get(name.rsplit(".", 1)[-1], 1))
        for name in names
    )


TOPIC_SYNONYMS: dict[str, tuple[Synonym, ...]] = {
    "cleanup.policy": _synonyms("log.cleanup.policy"),
    "compression.gzip.level": _synonyms("compression.gzip.level"),
    "compression.lz4.level": _synonyms("compression.lz4.level"),
    "compression.type": _synonyms("compression.type"),
    "compression.zstd.level": _synonyms("compression.zstd.level"),
    "delete.retention.ms": _synonyms("log.cleaner.delete.retention.ms"),
    "file.delete.delay.ms": _synonyms("log.segment.delete.delay.ms"),
    "flush.messages": _synonyms("log.flush.interval.messages"),
    "flush.ms": _synonyms("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    "index.interval.bytes": _synonyms("log.index.interval.bytes"),
    "local.retention.bytes": _synonyms("log.local.retention.bytes"),
    "local.retention.ms": _synonyms("log.local.retention.ms"),
    "max.compaction.lag.ms": _synonyms("log.cleaner.max.compaction.lag.ms"),
    "max.message.bytes": _synonyms("message.max.bytes"),
    "message.timestamp.after.max.ms": _synonyms("log.message.timestamp.after.max.ms"),
    "message.timestamp.before.max.ms": _synonyms("log.message.timestamp.before.max.ms"),
    "message.timestamp.type": _synonyms("log.message.timestamp.type"),
    "min.cleanable.dirty.ratio": _synonyms("log.cleaner.min.cleanable.ratio"),
    "min.compaction.lag.ms": _synonyms("log.cleaner.min.compaction.lag.ms"),
    "min.insync.replicas": _synonyms("min.insync.replicas"),
    "preallocate": _synonyms("log.preallocate"),
    "retention.bytes": _synonyms("log.retention.bytes"),
    "retention.ms": _synonyms("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "segment.bytes": _synonyms("log.segment.bytes"),
    "segment.index.bytes": _synonyms("log.index.size.max.bytes"),
    "segment.jitter.ms": _synonyms("log.roll.jitter.ms", "log.roll.jitter.hours"),
    "segment.ms": _synonyms("log.roll.ms", "log.roll.hours"),
    "unclean.leader.election.enable": _synonyms("unclean.leader.election.enable"),
}

_GROUP_NUMBERS = (
    Property(name, INT, default, doc, minimum=minimum, effect=PLANNED)
    for name, default, minimum, doc in (
        ("consumer.heartbeat.interval.ms", 5000, 1, "How often members of this consumer group report."),
        ("consumer.session.timeout.ms", 45_000, 1, "Silence after which a member of this consumer group is removed."),
        ("share.heartbeat.interval.ms", 5000, 1, "How often members of this share group report."),
        ("share.record.lock.duration.ms", 30_000, 1000, "How long a member of this share group holds a record."),
        ("share.session.timeout.ms", 45_000, 1, "Silence after which a member of this share group is removed."),
        ("streams.heartbeat.interval.ms", 5000, 1, "How often members of this streams group report."),
        ("streams.num.standby.replicas", 0, 0, "Warm copies of each task in this streams group."),
        ("streams.session.timeout.ms", 45_000, 1, "Silence after which a member of this streams group is removed."),
    )
)
GROUP_PROPERTIES = index(
    (
        *_GROUP_NUMBERS,
        Property(
            "share.auto.offset.reset",
            STRING,
            "latest",
            "Where a new share group starts: earliest, latest or by_duration:<ISO 8601 duration>.",
            effect=PLANNED,
        ),
        Property(
            "share.isolation.level",
            STRING,
            "read_uncommitted",
            "Whether a share group sees records of open or aborted transactions.",
            choices=("read_committed", "read_uncommitted"),
            effect=PLANNED,
        ),
    )
)

CLIENT_METRICS_PROPERTIES = index(
    (
        Property(
            "interval.ms",
            INT,
            300_000,
            "How often clients of this subscription push metrics.",
            minimum=100,
            maximum=3_600_000,
            effect=PLANNED,
        ),
        Property("match", LIST, (), "Which clients push: attribute=regular expression pairs.", effect=PLANNED),
        Property("metrics", LIST, (), "Prefixes of the metric names to push; * for all.", effect=PLANNED),
    )
)
