"""Requests by API: how many, how long they took and where, what went wrong, who waits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from penstock.core.metrics.counters import ApiCounters, RequestCounters
from penstock.core.metrics.sheet import Sheet, counter, gauge, histogram, summary
from penstock.model.errors import error_name
from penstock.node.metrics.collector import Summaries
from penstock.server.listener import Listener

# The APIs of the data path, which have histograms of where their time goes.
DATA_PATH = ("Produce", "FetchConsumer", "FetchFollower")

REQUESTS = counter("kafka_network_requestmetrics_requests_total", "Requests that were answered.", ("request",))
ERRORS = counter(
    "kafka_network_requestmetrics_errors_total",
    "Errors in answers; an answer can hold several, one for each of its partitions.",
    ("request", "error"),
)
TOTAL_TIME = summary(
    "kafka_network_requestmetrics_totaltimems",
    "Milliseconds from a whole request to its answer; the quantiles are of the last five minutes.",
    ("request",),
)
LOCAL_TIME = summary(
    "kafka_network_requestmetrics_localtimems", "Milliseconds of that which were spent working on it.", ("request",)
)
REMOTE_TIME = summary(
    "kafka_network_requestmetrics_remotetimems",
    "Milliseconds of that which it was parked: for followers, for records, for the disk.",
    ("request",),
)
DURATION = histogram("penstock_request_duration_seconds", "Seconds from a whole request to its answer.", ("request",))
LOCAL_DURATION = histogram(
    "penstock_request_local_duration_seconds",
    "Seconds of that which were spent working on it; of the data path's APIs.",
    ("request",),
)
REMOTE_DURATION = histogram(
    "penstock_request_remote_duration_seconds",
    "Seconds of that which it was parked; of the data path's APIs.",
    ("request",),
)
PARKED = gauge("penstock_requests_parked", "Requests that wait for something now.", ("request",))
PURGATORY = gauge(
    "kafka_server_delayedoperationpurgatory_purgatorysize",
    "Produces that wait for replicas or the disk, and fetches that wait for records.",
    ("delayedoperation",),
)
PRODUCES = counter("kafka_server_brokertopicmetrics_totalproducerequests_total", "Produce requests.")
FAILED_PRODUCES = counter(
    "kafka_server_brokertopicmetrics_failedproducerequests_total", "Partitions of produces that failed."
)
FETCHES = counter("kafka_server_brokertopicmetrics_totalfetchrequests_total", "Fetch requests by consumers.")
FAILED_FETCHES = counter(
    "kafka_server_brokertopicmetrics_failedfetchrequests_total", "Partitions of fetches that failed."
)
PROTOCOL_ERRORS = counter(
    "penstock_protocol_errors_total", "Requests that could not be understood; each cost its connection."
)
CONNECTIONS = gauge("kafka_server_socket_server_metrics_connection_count", "Connections that are open.", ("listener",))
CONNECTIONS_ACCEPTED = counter(
    "kafka_server_socket_server_metrics_connection_creation_total", "Connections that were accepted.", ("listener",)
)
CONNECTIONS_REFUSED = counter(
    "penstock_connections_refused_total",
    "Connections that were closed because their address had too many.",
    ("listener",),
)
CONNECTIONS_DELAYED = counter(
    "penstock_connections_delayed_total",
    "Connections that had to wait because others came too fast (max.connection.creation.rate).",
    ("listener",),
)
CONNECTIONS_THROTTLED = counter(
    "penstock_connections_throttled_total",
    "Connections that were closed because their address opened them faster than its quota.",
    ("listener",),
)


class RequestCollector:
    """Collects the counters of a node's dispatchers."""

    def __init__(self, counters: RequestCounters, listeners: Callable[[], Iterable[object]]) -> None:
        self._counters = counters
        self._listeners = listeners
        self._summaries = Summaries()

    def __call__(self, sheet: Sheet) -> Iterator[None]:
        apis = sorted(self._counters.by_name.values(), key=lambda one: one.name)
        for api in apis:
            self._api(sheet, api)
            yield
        self._data_path(sheet)
        sheet.add(PROTOCOL_ERRORS, self._counters.refused)
        for listener in self._listeners():
            if isinstance(listener, Listener):
                sheet.add(CONNECTIONS, listener.connections, listener.name)
                sheet.add(CONNECTIONS_ACCEPTED, listener.accepted, listener.name)
                sheet.add(CONNECTIONS_REFUSED, listener.refused, listener.name)
                sheet.add(CONNECTIONS_DELAYED, listener.delayed, listener.name)
                sheet.add(CONNECTIONS_THROTTLED, listener.throttled, listener.name)
        yield

    def _api(self, sheet: Sheet, api: ApiCounters) -> None:
        name = api.name
        overall = api.overall
        sheet.add(REQUESTS, overall.count, name)
        sheet.add(PARKED, api.parked, name)
        for code, count in sorted(api.errors.items()):
            sheet.add(ERRORS, count, name, error_name(code))
        sheet.histogram(DURATION, overall, name)
        self._summaries.add(sheet, TOTAL_TIME, overall, name)
        if name in DATA_PATH:
            local = api.local
            sheet.histogram(LOCAL_DURATION, local, name)
            sheet.histogram(REMOTE_DURATION, api.waiting, name)
            self._summaries.add(sheet, LOCAL_TIME, local, name)
            self._summaries.add(sheet, REMOTE_TIME, api.waiting, name)

    def _data_path(self, sheet: Sheet) -> None:
        produce, fetch, follow = (self._counters.by_name.get(name) for name in DATA_PATH)
        sheet.add(PRODUCES, _count(produce))
        sheet.add(FETCHES, _count(fetch))
        sheet.add(FAILED_PRODUCES, sum(produce.errors.values()) if produce is not None else 0)
        sheet.add(FAILED_FETCHES, sum(fetch.errors.values()) if fetch is not None else 0)
        sheet.add(PURGATORY, produce.parked if produce is not None else 0, "Produce")
        sheet.add(PURGATORY, sum(one.parked for one in (fetch, follow) if one is not None), "Fetch")


def _count(api: ApiCounters | None) -> int:
    return 0 if api is None else api.overall.count
