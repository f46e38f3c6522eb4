"""Partitions: who leads them, who is in sync, how far followers are behind, how large the logs are, the disks."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.core.metrics.sheet import Sheet, counter, gauge, histogram, label_block
from penstock.node.metrics.collector import PARTITIONS, ROWS_PER_TURN
from penstock.runtime.env import Env
from penstock.runtime.logs.cleaner import Cleaner
from penstock.runtime.replication.directory_moves import DirectoryMoves
from penstock.runtime.replication.fetchers import ReplicaFetchers
from penstock.runtime.replication.partition import Partition
from penstock.runtime.replication.partitions import Partitions
from penstock.storage.files import StorageError

BY_PARTITION = ("topic", "partition")

PARTITION_COUNT = gauge("kafka_server_replicamanager_partitioncount", "Replicas on this broker.")
LEADER_COUNT = gauge("kafka_server_replicamanager_leadercount", "Partitions that are led here.")
UNDER_REPLICATED = gauge(
    "kafka_server_replicamanager_underreplicatedpartitions",
    "Partitions led here with fewer replicas in sync than they should have.",
)
UNDER_MIN_ISR = gauge(
    "kafka_server_replicamanager_underminisrpartitioncount",
    "Partitions led here with fewer replicas in sync than min.insync.replicas: acks=all is refused.",
)
AT_MIN_ISR = gauge(
    "kafka_server_replicamanager_atminisrpartitioncount",
    "Partitions led here with exactly min.insync.replicas in sync.",
)
OFFLINE_REPLICAS = gauge("kafka_server_replicamanager_offlinereplicacount", "Replicas here whose log cannot be used.")
REASSIGNING = gauge(
    "kafka_server_replicamanager_reassigningpartitions", "Partitions led here whose replicas are moving."
)
FOLLOWER_LAG_MAX = gauge(
    "penstock_replication_lag_records_max",
    "Records that the follower which is furthest behind lacks, of all partitions led here.",
)
FOLLOWER_LAG_SECONDS_MAX = gauge(
    "penstock_replication_lag_seconds_max",
    "Seconds since a follower last had everything, the longest of all partitions led here.",
)
MAX_LAG = gauge(
    "kafka_server_replicafetchermanager_maxlag",
    "Records that this broker knows to be committed and does not have, of the partition furthest behind.",
    ("clientid",),
)
TAKEOVERS = histogram(
    "penstock_leader_takeover_duration_seconds",
    "Seconds from the former leader's last answer to the moment that this broker led, a partition each; "
    "for so long no client could write to it.",
)
LOG_BYTES = gauge("penstock_log_size_bytes", "Bytes in all logs of this broker.")
LOG_SEGMENTS = gauge("penstock_log_segments", "Segments in all logs of this broker.")
DIRECTORIES_OFFLINE = gauge("kafka_log_logmanager_offlinelogdirectorycount", "Data directories that failed.")
DIRECTORY_ONLINE = gauge("penstock_log_directory_online", "1 for a data directory that works.", ("directory",))
DIRECTORY_USED = gauge(
    "penstock_log_directory_used_ratio", "How full the disk under a data directory is.", ("directory",)
)
DIRECTORY_FULL_IN = gauge(
    "penstock_log_directory_full_in_seconds",
    "When the disk under a data directory will be full at the rate of the last hours; absent if it does not fill.",
    ("directory",),
)
DIRECTORY_CORDONED = gauge(
    "penstock_log_directory_cordoned", "1 for a data directory that gets no new replicas.", ("directory",)
)
MOVING = gauge("penstock_replica_moves", "Replicas on their way to another data directory of the broker.")
MOVED = counter("penstock_replica_moves_total", "Replicas that were moved to another data directory.")
MOVED_BYTES = counter("penstock_replica_moved_bytes_total", "Bytes copied between data directories.")
CLEANER_RUNS = counter("penstock_cleaner_runs_total", "Compactions of a log.")
CLEANER_SECONDS = counter("penstock_cleaner_seconds_total", "Seconds that compactions took.")
CLEANER_READ = counter("penstock_cleaner_read_bytes_total", "Bytes that compactions read.")
CLEANER_WRITTEN = counter("penstock_cleaner_written_bytes_total", "Bytes that compactions kept.")
UNCLEANABLE = gauge("penstock_cleaner_uncleanable_partitions", "Logs that are not compacted any more.")
LOG_SIZE = gauge("kafka_log_log_size", "Bytes in the log of a partition.", BY_PARTITION, PARTITIONS)
LOG_START = gauge(
    "kafka_log_log_logstartoffset", "The first offset in the log of a partition.", BY_PARTITION, PARTITIONS
)
LOG_END = gauge("kafka_log_log_logendoffset", "The offset behind the log of a partition.", BY_PARTITION, PARTITIONS)
PARTITION_UNDER_REPLICATED = gauge(
    "kafka_cluster_partition_underreplicated",
    "1 for a partition led here with too few replicas in sync.",
    BY_PARTITION,
    PARTITIONS,
)
IN_SYNC_COUNT = gauge(
    "kafka_cluster_partition_insyncreplicascount", "Replicas in sync of a partition led here.", BY_PARTITION, PARTITIONS
)
REPLICA_COUNT = gauge(
    "kafka_cluster_partition_replicascount", "Replicas of a partition led here.", BY_PARTITION, PARTITIONS
)
FOLLOWER_LAG = gauge(
    "penstock_replication_lag_records",
    "Records that a follower of a partition led here lacks.",
    (*BY_PARTITION, "follower"),
    PARTITIONS,
)


class _Sums:
    """The totals of one pass over all partitions."""

    def __init__(self) -> None:
        self.led = 0
        self.under_replicated = 0
        self.under_min_isr = 0
        self.at_min_isr = 0
        self.offline = 0
        self.reassigning = 0
        self.lag = 0
        self.lag_ms = 0
        self.size_bytes = 0
        self.segments = 0


class ReplicaCollector:
    """Collects the metrics of all partitions of this broker."""

    def __init__(
        self, env: Env, partitions: Partitions, fetchers: ReplicaFetchers, cleaner: Cleaner, moves: DirectoryMoves
    ) -> None:
        self._env = env
        self._moves = moves
        self._partitions = partitions
        self._fetchers = fetchers
        self._cleaner = cleaner

    def __call__(self, sheet: Sheet) -> Iterator[None]:
        sums = _Sums()
        now_ms = self._env.monotonic_ms()
        partitions = list(self._partitions)
        for number, partition in enumerate(partitions):
            block = ""
            if PARTITIONS in sheet.details:
                block = label_block(BY_PARTITION, partition.name)
                sheet.put(LOG_SIZE, block, partition.log.size_bytes)
                sheet.put(LOG_START, block, partition.log.start_offset)
                sheet.put(LOG_END, block, partition.log.end_offset)
            self._look_at(partition, sums, now_ms, sheet, block)
            if number % ROWS_PER_TURN == ROWS_PER_TURN - 1:
                yield
        sheet.add(PARTITION_COUNT, len(partitions))
        sheet.add(LEADER_COUNT, sums.led)
        sheet.add(UNDER_REPLICATED, sums.under_replicated)
        sheet.add(UNDER_MIN_ISR, sums.under_min_isr)
        sheet.add(AT_MIN_ISR, sums.at_min_isr)
        sheet.add(OFFLINE_REPLICAS, sums.offline + self._partitions.unopened_count)
        sheet.add(REASSIGNING, sums.reassigning)
        sheet.add(FOLLOWER_LAG_MAX, sums.lag)
        sheet.add(FOLLOWER_LAG_SECONDS_MAX, sums.lag_ms / 1000)
        sheet.add(MAX_LAG, self._fetchers.lag_max, "Replica")
        sheet.histogram(TAKEOVERS, self._fetchers.takeovers)
        sheet.add(LOG_BYTES, sums.size_bytes)
        sheet.add(LOG_SEGMENTS, sums.segments)
        yield
        self._disks(sheet)
        cleaned = self._cleaner.counters
        sheet.add(CLEANER_RUNS, cleaned.runs)
        sheet.add(CLEANER_SECONDS, cleaned.seconds)
        sheet.add(CLEANER_READ, cleaned.bytes_read)
        sheet.add(CLEANER_WRITTEN, cleaned.bytes_written)
        sheet.add(UNCLEANABLE, len(self._cleaner.uncleanable))

    def _look_at(self, partition: Partition, sums: _Sums, now_ms: int, sheet: Sheet, block: str) -> None:
        log = partition.log
        sums.size_bytes += log.size_bytes
        sums.segments += log.segment_count
        sums.offline += log.is_failed
        leading = partition.leading
        if leading is None:
            return
        sums.led += 1
        in_sync, replicas = len(leading.in_sync_replicas), len(partition.replicas)
        known = self._partitions.image.partition(*partition.name)
        is_reassigning = known is not None and known.is_reassigning
        is_under_replicated = in_sync < replicas and not is_reassigning
        sums.reassigning += is_reassigning
        sums.under_replicated += is_under_replicated
        sums.under_min_isr += in_sync < leading.min_in_sync
        sums.at_min_isr += in_sync == leading.min_in_sync
        if block:
            sheet.put(PARTITION_UNDER_REPLICATED, block, int(is_under_replicated))
            sheet.put(IN_SYNC_COUNT, block, in_sync)
            sheet.put(REPLICA_COUNT, block, replicas)
        if replicas == 1:
            return
        for replica in partition.replicas:
            follower = leading.follower(replica)
            if follower is None:
                continue
            lag = max(0, log.end_offset - max(follower.end_offset, log.start_offset))
            sums.lag = max(sums.lag, lag)
            if lag and follower.caught_up_at_ms >= 0:
                sums.lag_ms = max(sums.lag_ms, now_ms - follower.caught_up_at_ms)
            if block:
                sheet.add(FOLLOWER_LAG, lag, *partition.name, replica)

    def _disks(self, sheet: Sheet) -> None:
        directories = self._partitions.directories
        sheet.add(MOVING, len(self._moves))
        sheet.add(MOVED, self._moves.moved_count)
        sheet.add(MOVED_BYTES, self._moves.moved_bytes)
        sheet.add(DIRECTORIES_OFFLINE, sum(one.failure is not None for one in directories))
        for directory in directories:
            path = str(directory.path)
            sheet.add(DIRECTORY_ONLINE, int(directory.failure is None), path)
            sheet.add(DIRECTORY_CORDONED, int(directory.is_cordoned), path)
            if directory.full_in_ms is not None:
                sheet.add(DIRECTORY_FULL_IN, directory.full_in_ms / 1000, path)
            try:
                used = self._env.filesystem.disk_space(directory.path).used_fraction
            except (StorageError, OSError):
                continue
            sheet.add(DIRECTORY_USED, used, path)
