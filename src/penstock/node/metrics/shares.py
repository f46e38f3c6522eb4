"""Share groups whose partitions are led here: sessions, acknowledgements, records in flight, dead letters, delays."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.core.metrics.sheet import Metric, Sheet
from penstock.core.share.acknowledgements import AckType
from penstock.core.share.runs import RecordState
from penstock.node.metrics.collector import GROUPS, each
from penstock.runtime.share.partitions import SharePartitions

SESSIONS = Metric("kafka_server_sharesessioncache_sharesessionscount", "gauge", "Sessions of members of share groups.")
PARTITIONS = Metric(
    "kafka_server_sharesessioncache_sharepartitionscount", "gauge", "Share-partitions that are loaded here."
)
ACKNOWLEDGEMENTS = Metric(
    "kafka_server_sharegroupmetrics_recordacknowledgements_total",
    "counter",
    "Records that members accepted, released, rejected, or renewed their locks of.",
    ("acktype",),
)
LOADS = Metric("penstock_share_partition_loads_total", "counter", "Share-partitions whose state was loaded.")
LOAD_SECONDS = Metric("penstock_share_partition_load_seconds_total", "counter", "How long that took, altogether.")
LETTERS = Metric(
    "kafka_server_sharegroupmetrics_deadletterqueuerecordcount_total", "counter", "Dead letters that were written."
)
LETTER_REQUESTS = Metric(
    "kafka_server_sharegroupmetrics_deadletterqueuetotalproducerequests_total",
    "counter",
    "Requests to write dead letters.",
)
LETTER_FAILURES = Metric(
    "kafka_server_sharegroupmetrics_deadletterqueuefailedproducerequests_total",
    "counter",
    "Times that dead letters could not be written; they wait, and are tried again.",
)
LETTERS_WAITING = Metric(
    "penstock_share_dead_letters_waiting", "gauge", "Records that were given up and whose dead letters are not written."
)
DELAYED = Metric("penstock_share_delayed_records", "gauge", "Delayed records that groups wait for.")
DUE = Metric("penstock_share_delayed_records_due_total", "counter", "Delayed records that became due.")

BY_PARTITION = ("group", "topic", "partition")
IN_FLIGHT = Metric(
    "kafka_server_sharepartitionmetrics_inflightmessagecount",
    "gauge",
    "Records that members hold, that came back, or that wait to become dead letters.",
    BY_PARTITION,
    GROUPS,
)
IN_FLIGHT_BATCHES = Metric(
    "kafka_server_sharepartitionmetrics_inflightbatchcount",
    "gauge",
    "Runs of such records that share a state.",
    BY_PARTITION,
    GROUPS,
)
LOCK_TIMEOUTS = Metric(
    "kafka_server_sharepartitionmetrics_acquisitionlocktimeout_total",
    "counter",
    "Records that came back because a lock ended.",
    BY_PARTITION,
    GROUPS,
)
DELAYED_BY_PARTITION = Metric(
    "penstock_share_partition_delayed_records", "gauge", "Delayed records that a group waits for.", BY_PARTITION, GROUPS
)

METRICS = (
    SESSIONS,
    PARTITIONS,
    ACKNOWLEDGEMENTS,
    LOADS,
    LOAD_SECONDS,
    LETTERS,
    LETTER_REQUESTS,
    LETTER_FAILURES,
    LETTERS_WAITING,
    DELAYED,
    DUE,
    IN_FLIGHT,
    IN_FLIGHT_BATCHES,
    LOCK_TIMEOUTS,
    DELAYED_BY_PARTITION,
)


class ShareCollector:
    """Collects what a broker does for share groups."""

    def __init__(self, shares: SharePartitions) -> None:
        self._shares = shares

    def __call__(self, sheet: Sheet) -> Iterator[None]:
        counters = self._shares.counters
        sheet.add(SESSIONS, len(self._shares.sessions))
        for kind, count in counters.acknowledged.items():
            if kind is not AckType.GAP:
                sheet.add(ACKNOWLEDGEMENTS, count, kind.name.capitalize())
        sheet.add(LOADS, counters.loads)
        sheet.add(LOAD_SECONDS, counters.load_ms / 1000)
        sheet.add(LETTERS, counters.letters)
        sheet.add(LETTER_REQUESTS, counters.letter_requests)
        sheet.add(LETTER_FAILURES, counters.letter_failures)
        sheet.add(DUE, counters.let_in)
        loaded = letters = delayed = 0
        for led in each(lambda: [*self._shares.led()]):
            if led is None:
                yield
                continue
            share, labels = led.share, (led.key.group, *led.partition.name)
            runs = share.runs()
            loaded += 1
            letters += sum(run.size for run in runs if run.state is RecordState.ARCHIVING)
            delayed += share.delays.count
            if GROUPS in sheet.details:
                sheet.add(IN_FLIGHT, share.in_flight, *labels)
                sheet.add(IN_FLIGHT_BATCHES, len(runs), *labels)
                sheet.add(LOCK_TIMEOUTS, led.lock_timeouts, *labels)
                sheet.add(DELAYED_BY_PARTITION, share.delays.count, *labels)
        sheet.add(PARTITIONS, loaded)
        sheet.add(LETTERS_WAITING, letters)
        sheet.add(DELAYED, delayed)
        yield
