"""A gateway's `/metrics` for Prometheus, `/health/live` and `/health/ready`, on each of its ports.

Requests are counted by port, by the first segment of their path and by status, which is few series however many topics
there are. The lag of all groups of the cluster is included on demand, with the rest (`/metrics?detail=groups`) or
alone (`/metrics/detail`), because it takes requests to the brokers.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from time import perf_counter
from typing import NamedTuple
from urllib.parse import parse_qs

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.core.metrics.histogram import Histogram
from penstock.core.metrics.sheet import OPENMETRICS_TYPE, TEXT_TYPE, Metric, Sheet
from penstock.gateway.kafka.admin import Admin
from penstock.gateway.kafka.groups import Groups, is_consumer_group
from penstock.gateway.web.application import plain_error
from penstock.gateway.web.problem import Problem
from penstock.runtime.process_metrics import ProcessCollector

READY_TIMEOUT_S = 5.0
GROUPS_TIMEOUT_S = 10.0
GROUPS_AT_ONCE = 16
GROUPS_MAX = 2_000
GROUPS = "groups"
DETAIL_PATH = "/metrics/detail"
# Of a request that may come from any client.
QUERY_FIELDS_MAX = 32
# The path segment that the fast path of publishing is counted under.
HOT_PATH = "publish"
# First path segments that are counted separately; all others are counted together.
WORDS = frozenset(
    ("topics", "api", "v3", "consumers", "console", "brokers", "docs", "subjects", "schemas", "compatibility", "config")
)

REQUESTS = Metric(
    "penstock_gateway_http_requests_total", "counter", "Requests that were answered.", ("port", "path", "status")
)
DURATION = Metric(
    "penstock_gateway_http_request_duration_seconds",
    "histogram",
    "Seconds from a request to the beginning of its answer; long polls are among them.",
    ("port", "path"),
)
UNDER_WAY = Metric("penstock_gateway_http_requests_under_way", "gauge", "Requests that are being served.", ("port",))
IN_USE = Metric(
    "penstock_gateway_in_use",
    "gauge",
    "What is kept open: consumer instances, live tails, and callers with connections of their own.",
    ("what",),
)
INFO = Metric("penstock_gateway_info", "gauge", "Which cluster this gateway serves.", ("cluster_id",))
BY_PARTITION = ("consumergroup", "topic", "partition")
OFFSET = Metric(
    "kafka_consumergroup_current_offset", "gauge", "The offset that a group has committed.", BY_PARTITION, GROUPS
)
LAG = Metric("kafka_consumergroup_lag", "gauge", "Records that a group has yet to read.", BY_PARTITION, GROUPS)
LAG_SUM = Metric(
    "kafka_consumergroup_lag_sum", "gauge", "The same, of a whole topic.", ("consumergroup", "topic"), GROUPS
)

Answer = tuple[int, str, bytes]
DetailsFor = Callable[[Scope], Awaitable[Groups]]


class Gauges(NamedTuple):
    """Values that are read on each scrape: requests in progress by port, and resources in use."""

    under_way: Mapping[str, Callable[[], int]]
    in_use: Mapping[str, Callable[[], int]]


class HttpCounters:
    """The requests of one port."""

    def __init__(self) -> None:
        self.statuses: Counter[tuple[str, int]] = Counter()
        self.durations: dict[str, Histogram] = {}

    def answered(self, word: str, status: int, elapsed_s: float) -> None:
        """A request was answered."""
        self.statuses[word, status] += 1
        histogram = self.durations.get(word)
        if histogram is None:
            histogram = self.durations[word] = Histogram()
        histogram.observe(elapsed_s)


class GatewayMetrics:
    """All counters of a gateway, and its monitoring endpoints."""

    def __init__(self, cluster_id: str, admin: Admin, details_for: DetailsFor) -> None:
        """`details_for` returns what reads details from the brokers; it raises Problem without a sign-in."""
        self._cluster_id = cluster_id
        self._admin = admin
        self._details_for = details_for
        self._ports: dict[str, HttpCounters] = {}
        self._process = ProcessCollector()
        self._watching: asyncio.Task[None] | None = None
        self._checking: asyncio.Task[Answer] | None = None
        self.gauges = Gauges({}, {})

    def start(self) -> None:
        """Start watching the event loop."""
        self._watching = asyncio.create_task(self._process.watch(), name="gateway-loop-lag")

    async def stop(self) -> None:
        """Stop watching."""
        for task in (self._watching, self._checking):
            if task is not None:
                task.cancel()

    def port(self, name: str) -> HttpCounters:
        """The counters of one port."""
        return self._ports.setdefault(name, HttpCounters())

    def measured(self, application: ASGIApp, port: str) -> ASGIApp:
        """The application with its requests counted, and with the monitoring endpoints."""
        return _Measured(application, self.port(port), self._paths())

    def _paths(self) -> dict[str, Callable[[Scope], Awaitable[Answer]]]:
        return {
            "/metrics": self._metrics,
            DETAIL_PATH: self._metrics,
            "/health/live": self._live,
            "/healthz": self._live,
            "/health/ready": self._ready,
            "/readyz": self._ready,
        }

    async def _live(self, _: Scope) -> Answer:
        return _health({"event loop": ""})

    async def _ready(self, _: Scope) -> Answer:
        """Needs no sign-in, so concurrent callers share one request to the brokers."""
        if self._checking is None or self._checking.done():
            self._checking = asyncio.create_task(self._check_brokers(), name="gateway-ready")
        return await asyncio.shield(self._checking)

    async def _check_brokers(self) -> Answer:
        try:
            await asyncio.wait_for(self._admin.names(), READY_TIMEOUT_S)
        except (Problem, TimeoutError) as error:
            return _health({"brokers": f"no broker can be reached: {str(error) or 'they did not answer in time'}"})
        return _health({"brokers": ""})

    async def _metrics(self, scope: Scope) -> Answer:
        try:
            query = parse_qs(scope["query_string"].decode("latin-1"), max_num_fields=QUERY_FIELDS_MAX)
        except ValueError:
            return 400, "text/plain", f"the query has more than {QUERY_FIELDS_MAX} fields\n".encode()
        details = set(",".join(query.get("detail", [])).split(",", QUERY_FIELDS_MAX)) - {""}
        if details - {GROUPS, "all"}:
            return 400, "text/plain", f"the only details here are {GROUPS}\n".encode()
        only_details = scope["path"] == DETAIL_PATH
        sheet = Sheet(frozenset((GROUPS,)), has_rest=not only_details)
        sheet.add(INFO, 1, self._cluster_id)
        for name, counters in self._ports.items():
            for (word, status), count in sorted(counters.statuses.items()):
                sheet.add(REQUESTS, count, name, word, status)
            for word, histogram in sorted(counters.durations.items()):
                sheet.histogram(DURATION, histogram, name, word)
        for name, value in self.gauges.under_way.items():
            sheet.add(UNDER_WAY, value(), name)
        for name, value in self.gauges.in_use.items():
            sheet.add(IN_USE, value(), name)
        if details or only_details:
            await self._lags(sheet, await self._details_for(scope))
        for _ in self._process(sheet):
            pass
        accept = dict(scope["headers"]).get(b"accept", b"")
        openmetrics = b"application/openmetrics-text" in accept
        return 200, OPENMETRICS_TYPE if openmetrics else TEXT_TYPE, b"".join(sheet.render(openmetrics=openmetrics))

    async def _lags(self, sheet: Sheet, groups: Groups) -> None:
        """The lag of every group, as far as the brokers answer in time."""
        room = asyncio.Semaphore(GROUPS_AT_ONCE)

        async def one(name: str) -> None:
            async with room:
                try:
                    rows = await groups.lags(name)
                except Problem:
                    return
            sums: Counter[str] = Counter()
            for row in rows:
                sheet.add(OFFSET, row.offset, name, row.topic, row.partition)
                sheet.add(LAG, row.lag, name, row.topic, row.partition)
                sums[row.topic] += row.lag
            for topic, lag in sums.items():
                sheet.add(LAG_SUM, lag, name, topic)

        try:
            async with asyncio.timeout(GROUPS_TIMEOUT_S):
                listed, _ = await groups.listed()
                names = [group.group_id for group in listed if is_consumer_group(group)]
                await asyncio.gather(*map(one, names[:GROUPS_MAX]))
        except (TimeoutError, Problem):
            # Report what arrived in time; a failed scrape would hide everything else, too.
            return


class _Measured:
    """Wraps an ASGI application."""

    def __init__(
        self, application: ASGIApp, counters: HttpCounters, paths: Mapping[str, Callable[[Scope], Awaitable[Answer]]]
    ) -> None:
        self._application = application
        self._counters = counters
        self._paths = paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        path: str = scope["path"]
        machine = self._paths.get(path) if scope["method"] in ("GET", "HEAD") else None
        if machine is not None:
            try:
                answer = await machine(scope)
            except Problem as problem:
                await plain_error(problem)(scope, receive, send)
                return
            await _send(send, answer, has_body=scope["method"] == "GET")
            return
        started = perf_counter()
        word = first_segment(path)

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._counters.answered(word, message["status"], perf_counter() - started)
            await send(message)

        await self._application(scope, receive, counted)


def first_segment(path: str) -> str:
    """The path segment that a path is counted under."""
    word = path[1:].partition("/")[0]
    return word if word in WORDS else "other"


def _health(checks: Mapping[str, str]) -> Answer:
    """The response for some checks, each with the reason of its failure, or none."""
    ok = not any(checks.values())
    body = {
        "status": "ok" if ok else "unavailable",
        "checks": {
            name: {"ok": not reason, **({"reason": reason} if reason else {})} for name, reason in checks.items()
        },
    }
    return 200 if ok else 503, "application/json", json.dumps(body).encode() + b"\n"


async def _send(send: Send, answer: Answer, *, has_body: bool) -> None:
    status, content_type, body = answer
    headers = [
        (b"content-type", content_type.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body if has_body else b""})
