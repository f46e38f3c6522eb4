"""Which quota applies to a client, and how long a client that exceeds it is throttled.

Quotas are set for users, client ids, both together, and addresses, by name or by default. The most specific one
applies: user and client id, then the user, then the client id, a name before a default each time. All clients that one
quota applies to in the same way share its measurement, as in Kafka: a user's quota is for all connections of that user.

Rates are measured over Kafka's windows (`quota.window.num` of `quota.window.size.seconds`); a client over its rate is
throttled until the rate has come down. Changes to the cluster are taken from a token bucket instead, since one request
may count many times (KIP-599).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from hashlib import sha256
from math import ceil
from typing import NamedTuple

from penstock.core.fairness import FairCache

USER = "user"
CLIENT_ID = "client-id"
IP = "ip"

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"
RATE_KEYS = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE)
CLIENT_KEYS = (*RATE_KEYS, CONTROLLER_MUTATION_RATE)
# The longest throttle time.
THROTTLE_MS_MAX = 30_000

# Measurements of clients; those that were not used for longest are dropped.
METERS_MAX = 50_000
RESOLVED_MAX = 50_000
# Longer names of clients are measured, and told apart, by a digest: what is kept must not grow with them.
NAME_KEPT_MAX = 256

# An entity as the metadata log names it: its parts by type, None for the default of a type.
Entity = frozenset[tuple[str, str | None]]


def entity(parts: Mapping[str, str | None]) -> Entity:
    """An entity by its parts."""
    return frozenset(parts.items())


class Limit(NamedTuple):
    """The quota that applies to a client, and what identifies those that share it."""

    value: float
    shared_by: tuple[str, str]


class QuotaTable:
    """The quotas of a cluster."""

    def __init__(self) -> None:
        self._values: dict[str, dict[Entity, float]] = {}
        self._resolved: dict[tuple[str, str, str], Limit | None] = {}

    @property
    def is_empty(self) -> bool:
        """Whether there are no quotas at all."""
        return not self._values

    def set(self, key: str, entity: Entity, value: float | None) -> None:
        """Set or, with None, remove one quota."""
        values = self._values.setdefault(key, {})
        if value is None:
            values.pop(entity, None)
        else:
            values[entity] = value
        if not values:
            del self._values[key]
        self._resolved.clear()

    def clear(self) -> None:
        """Forget all quotas."""
        self._values.clear()
        self._resolved.clear()

    def limit(self, key: str, user: str, client_id: str) -> Limit | None:
        """The quota of a user's client, or None when it has none."""
        values = self._values.get(key)
        if values is None:
            return None
        if len(user) + len(client_id) > NAME_KEPT_MAX:
            return _most_exact(values, user, client_id)
        asked = (key, user, client_id)
        try:
            return self._resolved[asked]
        except KeyError:
            if len(self._resolved) >= RESOLVED_MAX:
                self._resolved.clear()
            assert len(self._resolved) < RESOLVED_MAX
            assert len(user) + len(client_id) <= NAME_KEPT_MAX, "what is kept does not grow with names"
            found = self._resolved[asked] = _most_exact(values, user, client_id)
            return found

    def ip_limit(self, address: str) -> float | None:
        """How many connections a second an address may open."""
        values = self._values.get(CONNECTION_CREATION_RATE, {})
        if not values:
            return None
        exact = values.get(entity({IP: address}))
        return exact if exact is not None else values.get(entity({IP: None}))


def _most_exact(values: Mapping[Entity, float], user: str, client_id: str) -> Limit | None:
    for parts, shared_by in (
        ({USER: user, CLIENT_ID: client_id}, (user, client_id)),
        ({USER: user, CLIENT_ID: None}, (user, client_id)),
        ({USER: user}, (user, "")),
        ({USER: None, CLIENT_ID: client_id}, (user, client_id)),
        ({USER: None, CLIENT_ID: None}, (user, client_id)),
        ({USER: None}, (user, "")),
        ({CLIENT_ID: client_id}, ("", client_id)),
        ({CLIENT_ID: None}, ("", client_id)),
    ):
        value = values.get(entity(parts))
        if value is not None:
            return Limit(value, (_kept(shared_by[0]), _kept(shared_by[1])))
    return None


def _kept(name: str) -> str:
    return name if len(name) <= NAME_KEPT_MAX else sha256(name.encode("utf-8", "surrogatepass")).hexdigest()


class Windows(NamedTuple):
    """The windows over which something is measured."""

    number: int
    size_ms: int


class RateMeter:
    """A rate over the last windows."""

    __slots__ = ("_samples", "_window_ms", "_windows", "throttled_until_ms")

    def __init__(self, windows: Windows) -> None:
        self._windows, self._window_ms = windows
        # Set by the code that throttles by this rate.
        self.throttled_until_ms = 0.0
        # Each window's start and sum, the oldest first.
        self._samples: deque[list[float]] = deque()

    def record(self, value: float, now_ms: float) -> None:
        """Add to the current window."""
        samples = self._samples
        if not samples or now_ms - samples[-1][0] >= self._window_ms:
            samples.append([now_ms, 0.0])
        samples[-1][1] += value
        self._forget(now_ms)

    def rate(self, now_ms: float) -> float:
        """What was recorded per second."""
        self._forget(now_ms)
        if not self._samples:
            return 0.0
        return sum(amount for _, amount in self._samples) * 1000 / self._span_ms(now_ms)

    def throttle_ms(self, limit: float, now_ms: float) -> int:
        """How long to wait until the rate is at the limit again; 0 below it."""
        rate = self.rate(now_ms)
        if not self._samples:
            return 0
        span_ms = self._span_ms(now_ms)
        if rate <= limit:
            return 0
        # Nothing is allowed at all: the longest throttle time that the windows can give.
        return round((rate - limit) / limit * span_ms) if limit > 0 else self._windows * self._window_ms

    def _span_ms(self, now_ms: float) -> float:
        """The time that counts: since the oldest window, as if all windows were there."""
        elapsed = now_ms - self._samples[0][0]
        missing = self._windows - 1 - int(elapsed // self._window_ms)
        return elapsed + max(missing, 0) * self._window_ms or float(self._window_ms)

    def _forget(self, now_ms: float) -> None:
        oldest = now_ms - self._windows * self._window_ms
        samples = self._samples
        while samples and samples[0][0] <= oldest:
            samples.popleft()


class TokenBucket:
    """Tokens are added at a rate, up to what the windows hold; taking more than there are leaves a debt."""

    __slots__ = ("_tokens", "_updated_ms", "_windows_s")

    def __init__(self, windows: Windows) -> None:
        self._windows_s = windows.number * windows.size_ms / 1000
        self._tokens: float | None = None
        self._updated_ms = 0.0

    def take(self, amount: float, limit: float, now_ms: float) -> None:
        """Take tokens; the balance may become negative."""
        self._refill(limit, now_ms)
        assert self._tokens is not None
        self._tokens -= amount

    def throttle_ms(self, limit: float, now_ms: float) -> int:
        """How long until the balance is positive again."""
        self._refill(limit, now_ms)
        assert self._tokens is not None
        if self._tokens >= 0:
            return 0
        return round(-self._tokens / limit * 1000) if limit > 0 else round(self._windows_s * 1000)

    def _refill(self, limit: float, now_ms: float) -> None:
        burst = limit * self._windows_s
        if self._tokens is None:
            self._tokens = burst
        else:
            self._tokens = min(burst, self._tokens + limit * max(0.0, now_ms - self._updated_ms) / 1000)
        assert self._tokens <= burst, "a bucket holds what the windows do"
        self._updated_ms = now_ms


class Quotas:
    """Measures clients against their quotas. Times are from a monotonic clock."""

    def __init__(self, table: QuotaTable, windows: Windows, mutation_windows: Windows) -> None:
        self.table = table
        self._windows = windows
        self._mutation_windows = mutation_windows
        # Of each user; one that has more than all others loses its own, which no client can use to forget another's.
        self._meters: FairCache[str, tuple[str, tuple[str, str]], RateMeter] = FairCache(METERS_MAX)
        self._buckets: FairCache[str, tuple[str, str], TokenBucket] = FairCache(METERS_MAX)
        # Until when requests wait whose quota is measured by another node, which is the active controller.
        self._held_until_ms: FairCache[str, tuple[str, tuple[str, str]], float] = FairCache(METERS_MAX)

    def record(self, key: str, user: str, client_id: str, amount: float, now_ms: float) -> int:
        """Count what a client did; returns its throttle time in milliseconds."""
        limit = self.table.limit(key, user, client_id)
        if limit is None:
            return 0
        meter = self._meters.get((key, limit.shared_by))
        if meter is None:
            meter = RateMeter(self._windows)
            self._meters.put(_kept(user), (key, limit.shared_by), meter)
        meter.record(amount, now_ms)
        throttle_ms = min(meter.throttle_ms(limit.value, now_ms), THROTTLE_MS_MAX)
        if throttle_ms:
            meter.throttled_until_ms = now_ms + throttle_ms
        return throttle_ms

    def throttled_ms(self, user: str, client_id: str, now_ms: float) -> int:
        """For how long a client is still throttled, whichever connections its requests came by."""
        throttled_ms = 0
        for key in RATE_KEYS:
            limit = self.table.limit(key, user, client_id)
            meter = None if limit is None else self._meters.get((key, limit.shared_by))
            if limit is not None and meter is not None and meter.throttled_until_ms > now_ms:
                left_ms = min(ceil(meter.throttled_until_ms - now_ms), meter.throttle_ms(limit.value, now_ms))
                throttled_ms = max(throttled_ms, left_ms)
        assert throttled_ms >= 0
        return throttled_ms

    def hold(self, key: str, user: str, client_id: str, throttle_ms: float, now_ms: float) -> None:
        """Another node, which measures this quota of a client, throttles it."""
        limit = self.table.limit(key, user, client_id)
        if limit is not None and throttle_ms > 0:
            until_ms = now_ms + min(throttle_ms, THROTTLE_MS_MAX)
            assert until_ms > now_ms
            self._held_until_ms.put(_kept(user), (key, limit.shared_by), until_ms)

    def held_ms(self, key: str, user: str, client_id: str, now_ms: float) -> int:
        """For how long another node throttles a client, whichever connections its requests came by."""
        limit = self.table.limit(key, user, client_id)
        until_ms = None if limit is None else self._held_until_ms.get((key, limit.shared_by))
        return 0 if until_ms is None else max(0, ceil(until_ms - now_ms))

    def forget_throttling(self) -> None:
        """Quotas were changed: what was decided by the old ones does not count any more."""
        for meter in self._meters.values():
            meter.throttled_until_ms = 0.0
        self._held_until_ms = FairCache(METERS_MAX)

    def rate(self, key: str, user: str, now_ms: float) -> float:
        """The rate of all clients of a user that has a quota of its own; 0 where nothing is measured."""
        meter = self._meters.get((key, (_kept(user), "")))
        return meter.rate(now_ms) if meter is not None else 0.0

    def mutation_throttle_ms(self, user: str, client_id: str, now_ms: float) -> int:
        """For how long a client may not change the cluster."""
        limit = self.table.limit(CONTROLLER_MUTATION_RATE, user, client_id)
        if limit is None:
            return 0
        return self._bucket(limit, user).throttle_ms(limit.value, now_ms)

    def mutated(self, user: str, client_id: str, amount: float, now_ms: float) -> int:
        """Count changes to the cluster; returns the client's throttle time in milliseconds."""
        limit = self.table.limit(CONTROLLER_MUTATION_RATE, user, client_id)
        if limit is None:
            return 0
        bucket = self._bucket(limit, user)
        bucket.take(amount, limit.value, now_ms)
        return bucket.throttle_ms(limit.value, now_ms)

    def _bucket(self, limit: Limit, user: str) -> TokenBucket:
        bucket = self._buckets.get(limit.shared_by)
        if bucket is None:
            bucket = TokenBucket(self._mutation_windows)
            self._buckets.put(_kept(user), limit.shared_by, bucket)
        return bucket
