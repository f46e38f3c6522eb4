"""Traffic: messages and bytes in and out, batches, how well they were compressed, what replication moves."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.core.metrics.counters import ReplicaCounters
from penstock.core.metrics.histogram import Histogram
from penstock.core.metrics.sheet import Metric, Sheet, counter, histogram, summary
from penstock.node.metrics.collector import ROWS_PER_TURN, TOPICS, Summaries
from penstock.runtime.replication.partitions import Partitions

# Batches of 2**6 bytes and of 2**24: smaller and larger ones are rare.
SMALLEST, LARGEST = 6, 24
# The size of records is estimated from at most this many logs of a topic.
LOGS_LOOKED_AT_MAX = 64


def _by_topic(name: str, text: str) -> Metric:
    return counter(name, text, detail_labels=("topic",))


MESSAGES_IN = _by_topic("kafka_server_brokertopicmetrics_messagesin_total", "Records that were appended as leader.")
BYTES_IN = _by_topic(
    "kafka_server_brokertopicmetrics_bytesin_total", "Bytes that were appended as leader, as they came."
)
BYTES_OUT = _by_topic("kafka_server_brokertopicmetrics_bytesout_total", "Bytes that consumers fetched.")
MESSAGES_OUT = _by_topic(
    "penstock_messages_out_total",
    "Records that consumers fetched; estimated from the bytes and the size of the records in those logs.",
)
REPLICATION_IN = _by_topic(
    "kafka_server_brokertopicmetrics_replicationbytesin_total", "Bytes that were appended as follower."
)
REPLICATION_OUT = _by_topic(
    "kafka_server_brokertopicmetrics_replicationbytesout_total", "Bytes that followers fetched."
)
SAVED_BYTES_IN = _by_topic(
    "penstock_compression_saved_bytes_total",
    "Bytes that compression saved: the ratio is (bytes in + saved) / bytes in.",
)
BATCH_SIZE = histogram("penstock_batch_size_bytes", "Sizes of the batches that were appended as leader.")
IN_SYNC_SHRINKS = _by_topic(
    "kafka_server_replicamanager_isrshrinks_total", "How often a partition that is led here lost an in-sync replica."
)
IN_SYNC_EXPANDS = _by_topic(
    "kafka_server_replicamanager_isrexpands_total", "How often a partition that is led here got an in-sync replica."
)
FLUSHES = histogram("penstock_log_flush_duration_seconds", "Seconds that a log's sync to disk took.")
FLUSH_TIME = summary(
    "kafka_log_logflushstats_logflushrateandtimems",
    "Milliseconds of the same; the quantiles are of the last five minutes.",
)

_FIELDS = (
    (MESSAGES_IN, "messages_in"),
    (BYTES_IN, "bytes_in"),
    (BYTES_OUT, "bytes_out"),
    (REPLICATION_IN, "replicated_bytes_in"),
    (REPLICATION_OUT, "replicated_bytes_out"),
    (SAVED_BYTES_IN, "saved_bytes_in"),
    (IN_SYNC_SHRINKS, "in_sync_shrinks"),
    (IN_SYNC_EXPANDS, "in_sync_expansions"),
)


class TopicCollector:
    """Collects the traffic of this broker's partitions."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions
        self._counters: ReplicaCounters = partitions.counters
        # By topic, the bytes out that were converted to messages so far, and those messages.
        self._counted: dict[str, tuple[int, float]] = {}
        self._messages_out = 0.0
        self._summaries = Summaries()

    def __call__(self, sheet: Sheet) -> Iterator[None]:
        counters = self._counters
        for metric, field in _FIELDS:
            sheet.add(metric, counters.total(field))
            yield
        yield from self._count_messages_out()
        sheet.add(MESSAGES_OUT, int(self._messages_out))
        sheet.histogram(BATCH_SIZE, _batch_sizes(counters))
        sheet.histogram(FLUSHES, counters.flushes)
        self._summaries.add(sheet, FLUSH_TIME, counters.flushes)
        if TOPICS in sheet.details:
            yield from self._each_topic(sheet)

    def _each_topic(self, sheet: Sheet) -> Iterator[None]:
        for number, (name, topic) in enumerate(sorted(self._counters.topics.items())):
            for metric, field in _FIELDS:
                sheet.add(metric, getattr(topic, field), name)
            sheet.add(MESSAGES_OUT, int(self._counted.get(name, (0, 0.0))[1]), name)
            if number % ROWS_PER_TURN == ROWS_PER_TURN - 1:
                yield

    def _count_messages_out(self) -> Iterator[None]:
        """Convert the bytes that went out since the last scrape into messages."""
        for number, (name, topic) in enumerate(list(self._counters.topics.items())):
            counted_bytes, messages = self._counted.get(name, (0, 0.0))
            new_bytes = topic.bytes_out - counted_bytes
            if new_bytes < 0:
                # The topic was deleted and created again since.
                new_bytes, messages = topic.bytes_out, 0.0
            if new_bytes:
                new_messages = new_bytes * self._messages_per_byte(name)
                self._messages_out += new_messages
                self._counted[name] = topic.bytes_out, messages + new_messages
            if number % ROWS_PER_TURN == ROWS_PER_TURN - 1:
                yield

    def _messages_per_byte(self, topic: str) -> float:
        """The estimated messages per byte of a topic, from as many of its logs as needed."""
        known = self._partitions.image.topics.get(topic)
        messages = size_bytes = looked_at = 0
        for index in range(len(known.partitions) if known is not None else 0):
            partition = self._partitions.get(topic, index)
            if partition is None or not (size := partition.log.size_bytes):
                continue
            messages += partition.log.end_offset - partition.log.start_offset
            size_bytes += size
            looked_at += 1
            if looked_at == LOGS_LOOKED_AT_MAX:
                break
        return messages / size_bytes if size_bytes else 0.0


def _batch_sizes(counters: ReplicaCounters) -> Histogram:
    sizes = counters.batch_sizes
    histogram = Histogram([1 << power for power in range(SMALLEST, LARGEST + 1)])
    histogram.counts = [
        sum(sizes[: SMALLEST + 1]),
        *sizes[SMALLEST + 1 : LARGEST + 1],
        sum(sizes[LARGEST + 1 :]),
    ]
    histogram.sum = counters.total("bytes_in")
    return histogram
