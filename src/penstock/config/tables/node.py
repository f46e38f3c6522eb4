"""Broker properties about the node: its roles, listeners, connections, the controller quorum and the metadata log."""

from __future__ import annotations

from penstock.config.properties import INT_MAX, REQUIRED, Property
from penstock.config.tables.vocabulary import (
    ACCEPTED,
    BOOLEAN,
    CLUSTER_WIDE,
    DOUBLE,
    INT,
    INTERNAL,
    LIST,
    LONG,
    NO_PURGATORY,
    NO_THREAD_POOLS,
    PER_BROKER,
    PLANNED,
    STRING,
)

_PROTOCOL_MAP = "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"
_REQUEST_QUEUE = (
    "Each connection reads its next request when the last one is answered or parked; there is no shared queue."
)
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

IDENTITY_ROWS = (
    Property(
        "process.roles",
        LIST,
        REQUIRED,
        "What this node is: broker, controller or both.",
        choices=("broker", "controller"),
    ),
    Property("node.id", INT, REQUIRED, "The number of this node, unique in the cluster.", minimum=0),
    Property("broker.id", INT, -1, "The old name of node.id; when both are set they must agree."),
    Property("broker.rack", STRING, None, "Where this broker stands; replicas of a partition go to different racks."),
    # Kafka waits 9 s of silence, with a heartbeat each 2 s. A dead host, whose connections never break, would keep its
    # partitions without a leader for as long; 4 s outlasts three lost heartbeats, and writes go on within 5 s.
    Property(
        "broker.heartbeat.interval.ms",
        INT,
        1000,
        "How often a broker reports to the controller (Kafka: 2000).",
        minimum=1,
    ),
    Property(
        "broker.session.timeout.ms",
        INT,
        4000,
        "Silence after which the controller fences a broker (Kafka: 9000).",
        minimum=1,
    ),
    Property(
        "initial.broker.registration.timeout.ms",
        INT,
        60_000,
        "How long a starting broker tries to register.",
        effect=PLANNED,
    ),
    Property("controlled.shutdown.enable", BOOLEAN, True, "Hand leadership over before stopping."),
    Property(
        "background.threads",
        INT,
        10,
        "Threads for background work.",
        minimum=1,
        update=CLUSTER_WIDE,
        effect=ACCEPTED,
        reason=NO_THREAD_POOLS,
    ),
    Property(
        "num.io.threads",
        INT,
        8,
        "Threads that handle requests.",
        minimum=1,
        update=CLUSTER_WIDE,
        effect=ACCEPTED,
        reason=NO_THREAD_POOLS,
    ),
    Property(
        "num.network.threads",
        INT,
        3,
        "Threads that read and write sockets.",
        minimum=1,
        update=CLUSTER_WIDE,
        effect=ACCEPTED,
        reason=NO_THREAD_POOLS,
    ),
    Property(
        "unstable.api.versions.enable",
        BOOLEAN,
        False,
        "Offer API versions that may still change.",
        internal=True,
        effect=ACCEPTED,
        reason=INTERNAL,
    ),
    Property(
        "unstable.feature.versions.enable",
        BOOLEAN,
        False,
        "Offer features that may still change.",
        internal=True,
        effect=ACCEPTED,
        reason=INTERNAL,
    ),
)

LISTENER_ROWS = (
    Property(
        "listeners",
        STRING,
        "PLAINTEXT://:9092",
        "Addresses to listen on, as NAME://host:port, comma-separated; an empty host is every interface.",
        update=PER_BROKER,
    ),
    Property(
        "advertised.listeners",
        STRING,
        None,
        "Addresses that clients are told to connect to, when they differ from listeners.",
    ),
    Property(
        "listener.security.protocol.map",
        STRING,
        _PROTOCOL_MAP,
        "The security protocol of each listener, as NAME:PROTOCOL pairs.",
        update=PER_BROKER,
    ),
    Property(
        "controller.listener.names", STRING, None, "Listeners that the controllers of the cluster are reached on."
    ),
    Property("inter.broker.listener.name", STRING, None, "The listener that brokers use among themselves."),
    Property(
        "security.inter.broker.protocol",
        STRING,
        "PLAINTEXT",
        "The security protocol among brokers, when inter.broker.listener.name is not set.",
        choices=_PROTOCOLS,
    ),
    Property(
        "early.start.listeners",
        STRING,
        None,
        "Listeners that open before the broker is ready.",
        effect=ACCEPTED,
        reason="Listeners open in the order that the start needs them.",
    ),
    Property("connections.max.idle.ms", LONG, 600_000, "Silence after which a connection is closed."),
    Property(
        "max.connection.creation.rate",
        INT,
        INT_MAX,
        "New connections that are taken in a second.",
        minimum=0,
        update=CLUSTER_WIDE,
    ),
    Property(
        "max.connections", INT, INT_MAX, "Connections that are open at the same time.", minimum=0, update=CLUSTER_WIDE
    ),
    Property(
        "max.connections.per.ip",
        INT,
        INT_MAX,
        "Connections that one address has open at the same time.",
        minimum=0,
        update=CLUSTER_WIDE,
    ),
    Property(
        "max.connections.per.ip.overrides",
        STRING,
        "",
        "Other limits for some addresses, as host:count pairs.",
        update=CLUSTER_WIDE,
    ),
    Property(
        "queued.max.requests",
        INT,
        500,
        "Requests that wait for a handler before reading stops.",
        minimum=1,
        effect=ACCEPTED,
        reason=_REQUEST_QUEUE,
    ),
    Property("queued.max.request.bytes", LONG, -1, "Bytes of waiting requests before reading stops; -1 for no limit."),
    Property(
        "socket.listen.backlog.size", INT, 50, "Connections that the kernel holds until they are taken.", minimum=1
    ),
    Property(
        "socket.receive.buffer.bytes",
        INT,
        102_400,
        "The kernel's receive buffer of a connection; -1 leaves it to the system.",
    ),
    Property("socket.request.max.bytes", INT, 104_857_600, "The largest request that is read.", minimum=1),
    Property(
        "socket.send.buffer.bytes",
        INT,
        102_400,
        "The kernel's send buffer of a connection; -1 leaves it to the system.",
    ),
    Property(
        "socket.connection.setup.timeout.ms",
        LONG,
        10_000,
        "How long an outgoing connection may take to be made.",
        effect=PLANNED,
    ),
    Property(
        "socket.connection.setup.timeout.max.ms",
        LONG,
        30_000,
        "The longest that attempts to connect are backed off.",
        effect=PLANNED,
    ),
    Property("request.timeout.ms", INT, 30_000, "How long a request to another node may take.", effect=PLANNED),
)

REQUEST_ROWS = (
    Property(
        "fetch.max.bytes",
        INT,
        57_671_680,
        "The most that one fetch answers, whatever the client asks for.",
        minimum=1024,
    ),
    Property(
        "max.incremental.fetch.session.cache.slots",
        INT,
        1000,
        "Fetch sessions that are kept at the same time.",
        minimum=0,
    ),
    Property(
        "max.request.partition.size.limit", INT, 2000, "Partitions that one DescribeTopicPartitions answers.", minimum=1
    ),
    Property("telemetry.max.bytes", INT, 1_048_576, "The largest push of client metrics.", minimum=1, effect=PLANNED),
    Property(
        "fetch.purgatory.purge.interval.requests",
        INT,
        1000,
        "How often completed fetches are purged.",
        effect=ACCEPTED,
        reason=NO_PURGATORY,
    ),
    Property(
        "producer.purgatory.purge.interval.requests",
        INT,
        1000,
        "How often completed produces are purged.",
        effect=ACCEPTED,
        reason=NO_PURGATORY,
    ),
    Property(
        "delete.records.purgatory.purge.interval.requests",
        INT,
        1,
        "How often completed record deletions are purged.",
        effect=ACCEPTED,
        reason=NO_PURGATORY,
    ),
    Property(
        "share.fetch.purgatory.purge.interval.requests",
        INT,
        1000,
        "How often completed share fetches are purged.",
        effect=ACCEPTED,
        reason=NO_PURGATORY,
    ),
)

QUORUM_ROWS = (
    Property("controller.quorum.voters", LIST, (), "The fixed set of controllers, as id@host:port."),
    Property(
        "controller.quorum.bootstrap.servers", LIST, (), "Controllers to ask for the set of voters, as host:port."
    ),
    Property(
        "controller.quorum.append.linger.ms",
        INT,
        25,
        "How long the leader gathers metadata records before it writes them.",
        minimum=0,
    ),
    Property(
        "controller.quorum.election.backoff.max.ms", INT, 1000, "The longest wait before another election.", minimum=0
    ),
    Property("controller.quorum.election.timeout.ms", INT, 1000, "How long an election may take.", minimum=0),
    Property(
        "controller.quorum.fetch.timeout.ms",
        INT,
        2000,
        "Silence of the leader after which a voter stands for election.",
        minimum=0,
    ),
    Property(
        "controller.quorum.request.timeout.ms",
        INT,
        2000,
        "How long a request to another controller may take.",
        minimum=0,
    ),
    Property(
        "controller.quorum.retry.backoff.ms",
        INT,
        20,
        "The wait before a request to a controller is tried again.",
        minimum=0,
    ),
    Property(
        "controller.socket.timeout.ms",
        INT,
        30_000,
        "How long a controller's request to a broker may take.",
        effect=ACCEPTED,
        reason="Brokers fetch metadata; controllers send them nothing.",
    ),
    Property(
        "controller.performance.always.log.threshold.ms",
        LONG,
        2000,
        "Controller events slower than this are logged.",
        minimum=0,
        internal=True,
        effect=ACCEPTED,
        reason=INTERNAL,
    ),
    Property(
        "controller.performance.sample.period.ms",
        LONG,
        60_000,
        "How often a slow controller event is logged.",
        minimum=100,
        internal=True,
        effect=ACCEPTED,
        reason=INTERNAL,
    ),
    Property("metadata.log.dir", STRING, None, "Where the metadata log is kept; the first of log.dirs when not set."),
    Property(
        "metadata.log.max.record.bytes.between.snapshots",
        LONG,
        20_971_520,
        "Metadata bytes after which a snapshot is written.",
        minimum=1,
    ),
    Property(
        "metadata.log.max.snapshot.interval.ms",
        LONG,
        3_600_000,
        "The longest time between two snapshots; 0 for no such limit.",
        minimum=0,
    ),
    Property("metadata.log.segment.bytes", INT, 1_073_741_824, "Segment size of the metadata log.", minimum=8_388_608),
    Property("metadata.log.segment.ms", LONG, 604_800_000, "Age at which the metadata log rolls a segment."),
    Property(
        "metadata.max.idle.interval.ms",
        INT,
        500,
        "How often an idle controller leader writes a no-op record; 0 for never.",
        minimum=0,
    ),
    Property(
        "metadata.max.retention.bytes",
        LONG,
        104_857_600,
        "Size of metadata log and snapshots above which old ones are dropped.",
    ),
    Property(
        "metadata.max.retention.ms",
        LONG,
        604_800_000,
        "Age of metadata log and snapshots above which old ones are dropped.",
    ),
    Property(
        "internal.metadata.delete.delay.millis",
        LONG,
        60_000,
        "How long dropped metadata files stay on disk.",
        internal=True,
        effect=ACCEPTED,
        reason=INTERNAL,
    ),
    Property(
        "internal.metadata.log.segment.bytes",
        INT,
        None,
        "A metadata segment size without lower limit, for tests.",
        internal=True,
    ),
    Property(
        "internal.metadata.max.batch.size.in.bytes",
        INT,
        8_388_608,
        "The largest batch of the metadata log.",
        internal=True,
        effect=ACCEPTED,
        reason=INTERNAL,
    ),
    Property(
        "internal.metadata.max.fetch.size.in.bytes",
        INT,
        8_388_608,
        "The largest fetch of the metadata log.",
        internal=True,
        effect=ACCEPTED,
        reason=INTERNAL,
    ),
)

PENSTOCK_ROWS = (
    Property(
        "penstock.sync.on.ack",
        BOOLEAN,
        True,
        "Sync to disk before acknowledging acks=all when a single in-sync replica is left.",
    ),
    Property(
        "penstock.disk.full.percent",
        DOUBLE,
        90.0,
        "Refuse writes while the disk of a log directory is fuller than this.",
        minimum=1,
        maximum=100,
    ),
    Property(
        "penstock.write.stall.timeout.ms",
        INT,
        30_000,
        "Close a connection whose client has taken no bytes of its answers for this long.",
        minimum=1,
    ),
    Property(
        "penstock.connection.write.buffer.bytes",
        INT,
        8_388_608,
        "Unsent answers that a connection may hold before its next request is read.",
        minimum=1024,
    ),
    Property(
        "confluent.schema.registry.url",
        LIST,
        (),
        "Where the schema registry is, for topics with confluent.value.schema.validation; several are tried in turn.",
    ),
    Property(
        "penstock.request.read.timeout.ms",
        INT,
        30_000,
        "Close a connection that takes longer than this to send a request it began.",
        minimum=1,
    ),
    Property(
        "penstock.metrics.listener",
        STRING,
        None,
        "Where Prometheus and health checks are answered, host:port or :port; usually 9644, 0 is a free one.",
    ),
    # What counting costs is measured with it.
    Property(
        "penstock.metrics.counting",
        BOOLEAN,
        True,
        "Whether requests, batches and reads are counted.",
        internal=True,
    ),
    Property(
        "penstock.loop",
        STRING,
        "auto",
        "The event loop; auto takes uvloop when it is installed.",
        choices=("auto", "uvloop", "asyncio"),
    ),
)

NODE_ROWS = (*IDENTITY_ROWS, *LISTENER_ROWS, *REQUEST_ROWS, *QUORUM_ROWS, *PENSTOCK_ROWS)
