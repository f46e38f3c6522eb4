"""Things of which a gateway has so many, and of which one caller gets only a part.

There is no sign-in, so a caller is an address. Of IPv6 it is the network of 64 bits, because whoever has one address of
it has them all.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Collection

from starlette.types import Scope

from penstock.gateway.named_limits import NamedLimits, higher_limit
from penstock.gateway.web.problem import Problem, too_busy

RETRY_AFTER_S = 5
NETWORK_BITS = 64
UNKNOWN = "unknown"


def caller_of(scope: Scope) -> str:
    """Who sent a request."""
    client = scope.get("client")
    return caller_at(client[0]) if client else UNKNOWN


def caller_at(address: str) -> str:
    """The caller behind an address."""
    if ":" not in address:
        return address
    try:
        parsed = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Network((parsed, NETWORK_BITS), strict=False).network_address)


class Shares:
    """Counts what is in use, by caller, up to the limits `{name}_max` and `{name}_per_caller_max`.

    `exempt` callers are bounded only by what all get together.
    """

    def __init__(self, what: str, limits: NamedLimits, name: str, exempt: Collection[str] = ()) -> None:
        self._what = what
        self._setting, self._setting_each = f"{name}_max", f"{name}_per_caller_max"
        self._limit: int = getattr(limits, self._setting)
        self._limit_each: int = getattr(limits, self._setting_each)
        self._exempt = frozenset(exempt)
        self._by_caller: Counter[str] = Counter()
        self.taken = 0

    def take(self, caller: str, amount: int = 1) -> None:
        """Count something for a caller; 429 where it, or everybody together, has enough."""
        problem = self.refusal(caller, amount)
        if problem is not None:
            raise problem
        self._by_caller[caller] += amount
        self.taken += amount

    def refusal(self, caller: str, amount: int = 1) -> Problem | None:
        """Why a caller gets nothing more; None where it does."""
        if self.taken + amount > self._limit:
            return too_busy(f"{self._limit:,} {self._what} are in use (the limit {self._setting})", RETRY_AFTER_S)
        if self._by_caller[caller] + amount > self._limit_each and caller not in self._exempt:
            return Problem(
                429,
                42902,
                f"{self._limit_each:,} {self._what} are in use by {caller}, which is all that one caller gets",
                f"close some, or {higher_limit(self._setting_each)}",
                headers={"Retry-After": str(RETRY_AFTER_S)},
            )
        return None

    def give_back(self, caller: str, amount: int = 1) -> None:
        """The caller no longer uses it."""
        self.taken -= amount
        left = self._by_caller[caller] - amount
        if left > 0:
            self._by_caller[caller] = left
        else:
            del self._by_caller[caller]
