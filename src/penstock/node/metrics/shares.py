"""Share groups whose partitions are led here: sessions, acknowledgements, records in flight, dead letters, delays."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.core.metrics.sheet import Sheet, counter, gauge
from penstock.core.share.acknowledgements import AckType
from penstock.core.share.runs import RecordState
from penstock.node.metrics.collector import GROUPS, each
from penstock.runtime.share.partitions import SharePartitions

SESSIONS = gauge("kafka_server_sharesessioncache_sharesessionscount", "Sessions of members of share groups.")
PARTITIONS = gauge("kafka_server_sharesessioncache_sharepartitionscount", "Share-partitions that are loaded here.")
ACKNOWLEDGEMENTS = counter(
    "kafka_server_sharegroupmetrics_recordacknowledgements_total",
    "Records that members accepted, released, rejected, or renewed their locks of.",
    ("acktype",),
)
LOADS = counter("penstock_share_partition_loads_total", "Share-partitions whose state was loaded.")
LOAD_SECONDS = counter("penstock_share_partition_load_seconds_total", "How long that took, altogether.")
LETTERS = counter("kafka_server_sharegroupmetrics_deadletterqueuerecordcount_total", "Dead letters that were written.")
LETTER_REQUESTS = counter(
    "kafka_server_sharegroupmetrics_deadletterqueuetotalproducerequests_total", "Requests to write dead letters."
)
LETTER_FAILURES = counter(
    "kafka_server_sharegroupmetrics_deadletterqueuefailedproducerequests_total",
    "Times that dead letters could not be written; they wait, and are tried again.",
)
LETTERS_WAITING = gauge(
    "penstock_share_dead_letters_waiting", "Records that were given up and whose dead letters are not written."
)
DELAYED = gauge("penstock_share_delayed_records", "Delayed records that groups wait for.")
DUE = counter("penstock_share_delayed_records_due_total", "Delayed records that became due.")

BY_PARTITION = ("group", "topic", "partition")
IN_FLIGHT = gauge(
    "kafka_server_sharepartitionmetrics_inflightmessagecount",
    "Records that members hold, that came back, or that wait to become dead letters.",
    BY_PARTITION,
    GROUPS,
)
IN_FLIGHT_BATCHES = gauge(
    "kafka_server_sharepartitionmetrics_inflightbatchcount",
    "Runs of such records that share a state.",
    BY_PARTITION,
    GROUPS,
)
LOCK_TIMEOUTS = counter(
    "kafka_server_sharepartitionmetrics_acquisitionlocktimeout_total",
    "Records that came back because a lock ended.",
    BY_PARTITION,
    GROUPS,
)
DELAYED_BY_PARTITION = gauge(
    "penstock_share_partition_delayed_records", "Delayed records that a group waits for.", BY_PARTITION, GROUPS
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
        sheet.add(DUE, counters.admitted)
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
