"""The clients that push metrics to this broker: what each is subscribed to, and what it last pushed (KIP-714).

    unknown ──GetTelemetrySubscriptions──▶ subscribed ──PushTelemetry, about every interval──▶ subscribed
                                               │                     └──terminating──▶ gone with the next look
                                               └──three intervals of silence──▶ forgotten

A client that pushes too early has to wait, unless it has just asked what to push: it spreads its first push over an
interval. One whose subscription has changed gets UNKNOWN_SUBSCRIPTION_ID and requests it again. Any broker may get the
next push of a client, so totals are asked for as totals, and not as what they grew by.

Users share what is kept: where there is no room, the user that has the most clients loses the one that was silent
longest, and the user that has the most series loses some, until the user that pushes has as many.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from penstock.config.client_metrics import ALL_METRICS, ATTRIBUTES, Subscription
from penstock.core.fairness import FairCache
from penstock.core.telemetry.names import label_name, metric_name
from penstock.core.telemetry.otlp import Kind, Push
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import ZERO_UUID, Uuid, format_uuid

DEFAULT_INTERVAL_MS = 300_000
SILENT_INTERVALS = 3
SILENCE_MS_MIN = 60_000
ATTRIBUTE_LENGTH_MAX = 200
# zstd, lz4, gzip, snappy: clients take the first that they have.
COMPRESSION_TYPES = (4, 3, 1, 2)
NO_COMPRESSION = 0
# Errors after which a client may ask for its subscription before its interval is over.
_ASKS_AGAIN_AFTER = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)


class ClientDescription(NamedTuple):
    """What a client reports about itself, and where it connects from."""

    client_id: str
    software_name: str
    software_version: str
    host: str
    port: int
    # Whose share it takes: the user, or the address of one without a name.
    owner: str = ""

    def attributes(self, instance_id: Uuid) -> Mapping[str, str]:
        """What subscriptions match."""
        values = (format_uuid(instance_id), *self[:4], str(self.port))
        return {name: value[:ATTRIBUTE_LENGTH_MAX] for name, value in zip(ATTRIBUTES, values, strict=True)}


class Plan(NamedTuple):
    """What a client is to push, and how often."""

    subscription_id: int
    interval_ms: int
    metrics: tuple[str, ...]


class ShownSeries(NamedTuple):
    """A series by its name for Prometheus; `labels` are the client's own."""

    name: str
    is_total: bool
    labels: tuple[tuple[str, str], ...]
    value: float


class TelemetryClient:
    """One client instance."""

    __slots__ = (
        "description",
        "instance_id",
        "is_terminating",
        "last_error",
        "last_get_ms",
        "last_push_ms",
        "left_out",
        "plan",
        "plan_version",
        "series",
    )

    def __init__(self, instance_id: Uuid, description: ClientDescription, plan: Plan, plan_version: int) -> None:
        self.instance_id = instance_id
        self.description = description
        self.plan = plan
        self.plan_version = plan_version
        self.last_get_ms = -1
        self.last_push_ms = -1
        self.last_error = ErrorCode.NONE
        self.is_terminating = False
        self.series: tuple[ShownSeries, ...] = ()
        self.left_out = 0

    @property
    def last_heard_ms(self) -> int:
        """When its last request was accepted."""
        return max(self.last_get_ms, self.last_push_ms)

    def fail(self, code: ErrorCode, text: str) -> ApiError:
        """Remember what this client receives."""
        self.last_error = code
        return ApiError(code, f"client instance {format_uuid(self.instance_id)} {text}")


class TelemetryClients:
    """All client instances that this broker knows; times are of a clock that never goes back."""

    def __init__(self, clients_max: int, series_max: int) -> None:
        self._series_max = series_max
        # By owner and instance: no user pushes for another one.
        self._clients: FairCache[str, tuple[str, Uuid], TelemetryClient] = FairCache(clients_max)
        self._series_of: Counter[str] = Counter()
        self._subscriptions: dict[str, Subscription] = {}
        self._version = 0
        self.series_count = 0
        self.left_out = 0

    def __iter__(self) -> Iterator[TelemetryClient]:
        return iter(tuple(self._clients.values()))

    def __len__(self) -> int:
        return len(self._clients)

    def subscribe_to(self, subscriptions: Mapping[str, Subscription]) -> None:
        """Replace the subscriptions; clients hear of it with their next push."""
        if dict(subscriptions) != self._subscriptions:
            self._subscriptions = dict(subscriptions)
            self._version += 1

    def ask(self, instance_id: Uuid, description: ClientDescription, now_ms: int) -> Plan:
        """A client asks what to push; raises THROTTLING_QUOTA_EXCEEDED when it asks too often."""
        client = self._known(instance_id, description)
        due = client.last_heard_ms < 0 or now_ms - client.last_heard_ms >= client.plan.interval_ms
        if not due and client.last_error not in _ASKS_AGAIN_AFTER:
            raise client.fail(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "asks again before its interval is over")
        client.last_get_ms = now_ms
        client.last_error = ErrorCode.NONE
        client.is_terminating = False
        self._touch(client)
        return client.plan

    def check_push(
        self,
        instance_id: Uuid,
        description: ClientDescription,
        subscription_id: int,
        compression_type: int,
        size_bytes: int,
        size_bytes_max: int,
        now_ms: int,
        *,
        is_terminating: bool,
    ) -> TelemetryClient:
        """The client that may push now; raises ApiError with what it did wrong."""
        if instance_id == ZERO_UUID:
            raise ApiError(ErrorCode.INVALID_REQUEST, "a push names no client instance")
        client = self._known(instance_id, description)
        if client.is_terminating:
            raise client.fail(ErrorCode.INVALID_REQUEST, "pushes after it said that it is terminating")
        first = client.last_get_ms > client.last_push_ms
        due = first or client.last_push_ms < 0 or now_ms - client.last_push_ms >= client.plan.interval_ms
        if not due and not is_terminating:
            raise client.fail(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "pushes before its interval is over")
        if due:
            client.last_push_ms = now_ms
        self._touch(client)
        if subscription_id != client.plan.subscription_id:
            raise client.fail(ErrorCode.UNKNOWN_SUBSCRIPTION_ID, f"pushes for the subscription {subscription_id}")
        if compression_type not in (NO_COMPRESSION, *COMPRESSION_TYPES):
            raise client.fail(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compresses with codec {compression_type}")
        if size_bytes > size_bytes_max:
            raise client.fail(
                ErrorCode.TELEMETRY_TOO_LARGE, f"pushes {size_bytes} bytes, and {size_bytes_max} are allowed"
            )
        client.is_terminating = is_terminating
        client.last_error = ErrorCode.NONE
        return client

    def take(self, client: TelemetryClient, push: Push) -> None:
        """Show what a client has pushed instead of what it pushed before."""
        before = {(one.name, one.labels): one.value for one in client.series if one.is_total}
        room = self._room_for(client, len(push.series))
        shown: dict[tuple[str, tuple[tuple[str, str], ...]], ShownSeries] = {}
        for one in push.series:
            name = metric_name(one.name, one.unit, one.kind)
            labels = tuple(sorted({label_name(key): value for key, value in one.labels}.items()))
            value = one.value
            if one.kind is Kind.DELTA:
                value += before.get((name, labels), 0)
            if len(shown) < room or (name, labels) in shown:
                shown[name, labels] = ShownSeries(name, one.kind is not Kind.GAUGE, labels, value)
        left_out = push.left_out + max(0, len(push.series) - len(shown))
        if self._clients.peek(_key(client)) is client:
            self._show(client, tuple(shown.values()))
        client.left_out = left_out
        self.left_out += left_out

    def _room_for(self, client: TelemetryClient, wanted: int) -> int:
        """How many series a client may have; others that have more lose some for it."""
        owner = client.description.owner
        others_of_owner = self._series_of[owner] - len(client.series)
        while (room := self._series_max - self.series_count + len(client.series)) < wanted:
            most = max(self._series_of, key=self._series_of.__getitem__)
            # Until both have as many.
            taken = min(wanted - room, (self._series_of[most] - others_of_owner - room) // 2)
            if most == owner or taken <= 0:
                break
            loser = max(self._clients.of(most), key=lambda one: len(one.series))
            kept = max(0, len(loser.series) - taken)
            self.left_out += len(loser.series) - kept
            loser.left_out += len(loser.series) - kept
            self._show(loser, loser.series[:kept])
        return room

    def _show(self, client: TelemetryClient, series: tuple[ShownSeries, ...]) -> None:
        change, owner = len(series) - len(client.series), client.description.owner
        client.series = series
        self.series_count += change
        self._series_of[owner] += change
        if not self._series_of[owner]:
            del self._series_of[owner]
        assert self.series_count == self._series_of.total()

    def forget_silent(self, now_ms: int) -> None:
        """Forget clients that said goodbye, or that have not been heard of for some intervals."""
        for client in self:
            silence_ms = max(SILENT_INTERVALS * client.plan.interval_ms, SILENCE_MS_MIN)
            if now_ms - client.last_heard_ms >= (SILENCE_MS_MIN if client.is_terminating else silence_ms):
                self._clients.pop(_key(client))
                self._show(client, ())

    def _known(self, instance_id: Uuid, description: ClientDescription) -> TelemetryClient:
        client = self._clients.peek((description.owner, instance_id))
        if client is None:
            plan = plan_for(self._subscriptions.values(), instance_id, description)
            client = TelemetryClient(instance_id, description, plan, self._version)
        elif client.plan_version != self._version or client.description != description:
            client.plan = plan_for(self._subscriptions.values(), instance_id, description)
            client.plan_version, client.description = self._version, description
        return client

    def _touch(self, client: TelemetryClient) -> None:
        for evicted in self._clients.put(client.description.owner, _key(client), client):
            self._show(evicted, ())


def _key(client: TelemetryClient) -> tuple[str, Uuid]:
    return client.description.owner, client.instance_id


def plan_for(subscriptions: Iterable[Subscription], instance_id: Uuid, description: ClientDescription) -> Plan:
    """What all subscriptions that match a client ask of it, at the shortest of their intervals."""
    attributes = description.attributes(instance_id)
    metrics: set[str] = set()
    interval_ms = 0
    for one in subscriptions:
        if all(pattern.fullmatch(attributes[name]) for name, pattern in one.match):
            metrics |= one.metrics
            interval_ms = min(interval_ms or one.interval_ms, one.interval_ms)
    wanted = (ALL_METRICS,) if ALL_METRICS in metrics else tuple(sorted(metrics))
    interval_ms = interval_ms or DEFAULT_INTERVAL_MS
    checksum = zlib.crc32(f"{wanted}{interval_ms}".encode()) ^ zlib.crc32(instance_id)
    return Plan(checksum - (1 << 32) if checksum >> 31 else checksum, interval_ms, wanted)
