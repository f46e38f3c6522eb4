"""How many connections the listeners of a server have together, and how fast new ones are accepted (KIP-402, KIP-612).

- At the most connections of all listeners, new ones wait until others close. The listener between brokers is protected
  if there are others: it continues to accept, and an idle connection of another listener is closed.
- At the highest rate, of all listeners or of one, accepting pauses; the protected one only minds its own rate.
- An address that opens connections faster than its quota is held for a moment and then disconnected.
- An address with too many connections is disconnected at once.

Times are from a monotonic clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

from penstock.core.security.quotas import METERS_MAX, RateMeter, Windows

UNLIMITED = 2**31 - 1
DEFAULT_WINDOWS = Windows(11, 1000)


class ConnectionRules(NamedTuple):
    """The limits of a server, over all its listeners."""

    connections_max: int = UNLIMITED
    creation_rate_max: int = UNLIMITED
    per_ip_max: int = UNLIMITED
    per_ip_overrides: Mapping[str, int] = {}
    # The listener between brokers, if there are others.
    protected: str | None = None


class Verdict(NamedTuple):
    """Whether a connection may stay; one that may not is closed after `hold_ms`."""

    is_admitted: bool
    hold_ms: int = 0


ADMITTED = Verdict(True)
REFUSED = Verdict(False)


class ConnectionQuotas:
    """Counts the connections of a server. `rate_of_ip` returns the quota of an address, None if it has none."""

    def __init__(
        self,
        windows: Windows = DEFAULT_WINDOWS,
        rules: ConnectionRules | None = None,
        rate_of_ip: Callable[[str], float | None] = lambda _: None,
    ) -> None:
        self.rules = rules or ConnectionRules()
        self._windows = windows
        self._rate_of_ip = rate_of_ip
        self._total = 0
        self._per_ip: Counter[str] = Counter()
        self._meter = RateMeter(windows)
        self._of_listeners: dict[str, RateMeter] = {}
        self._of_addresses: dict[str, RateMeter] = {}

    def has_room(self, listener: str) -> bool:
        """Whether one more connection may be accepted."""
        return listener == self.rules.protected or self._total < self.rules.connections_max

    @property
    def is_crowded(self) -> bool:
        """Whether there are more connections than allowed, because the protected listener accepted some."""
        return self._total > self.rules.connections_max

    def delay_ms(self, listener: str, listener_rate_max: int, now_ms: float) -> int:
        """Count a new connection; returns how long it has to wait, and all others of its listener with it."""
        delay_ms = 0
        if self.rules.creation_rate_max < UNLIMITED and listener != self.rules.protected:
            delay_ms = self._measure(self._meter, self.rules.creation_rate_max, now_ms)
        if listener_rate_max < UNLIMITED:
            meter = self._of_listeners.setdefault(listener, RateMeter(self._windows))
            delay_ms = max(delay_ms, self._measure(meter, listener_rate_max, now_ms))
        return delay_ms

    def admit(self, listener: str, address: str, now_ms: float) -> Verdict:
        """Decide on a connection that has waited; one that is admitted must be `left` again."""
        rate_max = self._rate_of_ip(address)
        if rate_max is not None:
            meter = self._meter_of(address)
            hold_ms = self._measure(meter, rate_max, now_ms)
            if hold_ms:
                # It does not count, for its address or its listener.
                meter.record(-1, now_ms)
                if self.rules.creation_rate_max < UNLIMITED and listener != self.rules.protected:
                    self._meter.record(-1, now_ms)
                if listener in self._of_listeners:
                    self._of_listeners[listener].record(-1, now_ms)
                return Verdict(False, hold_ms)
        if self._per_ip[address] >= self.rules.per_ip_overrides.get(address, self.rules.per_ip_max):
            return REFUSED
        self._per_ip[address] += 1
        self._total += 1
        assert self._per_ip[address] <= self._total, "an address has no more than all"
        return ADMITTED

    def left(self, address: str) -> None:
        """A connection has closed."""
        self._total -= 1
        assert self._total >= 0, "only what was admitted leaves"
        self._per_ip[address] -= 1
        assert 0 <= self._per_ip[address] <= self._total
        if not self._per_ip[address]:
            del self._per_ip[address]

    def _measure(self, meter: RateMeter, rate_max: float, now_ms: float) -> int:
        meter.record(1, now_ms)
        return min(meter.throttle_ms(rate_max, now_ms), self._windows.size_ms)

    def _meter_of(self, address: str) -> RateMeter:
        meter = self._of_addresses.get(address)
        if meter is None:
            if len(self._of_addresses) >= METERS_MAX:
                del self._of_addresses[next(iter(self._of_addresses))]
            meter = self._of_addresses[address] = RateMeter(self._windows)
            assert len(self._of_addresses) <= METERS_MAX
        return meter
