"""Quotas: limited resources of a gateway, and how much of each one caller may use.

A caller that has signed in is its principal; others are their IP address. For IPv6 that is the /64 network, because a
host usually has a whole one.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Collection
from contextvars import ContextVar

from starlette.types import Scope

from penstock.gateway.named_limits import NamedLimits, higher_limit
from penstock.gateway.web.problem import Problem, too_busy

RETRY_AFTER_S = 5
NETWORK_BITS = 64
UNKNOWN = "unknown"
# The key in a scope for the principal of a caller that has signed in.
PRINCIPAL = "penstock.principal"
# The caller of the request that the current task serves, for resources deep inside that callers share fairly.
CALLER: ContextVar[str] = ContextVar("caller", default="")


def caller_of(scope: Scope) -> str:
    """The caller of a request."""
    principal: str | None = scope.get(PRINCIPAL)
    return address_of(scope) if principal is None else principal


def address_of(scope: Scope) -> str:
    """The address that a request comes from."""
    client = scope.get("client")
    return caller_at(client[0]) if client else UNKNOWN


def caller_at(address: str) -> str:
    """The caller at an address."""
    if ":" not in address:
        return address
    try:
        parsed = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Network((parsed, NETWORK_BITS), strict=False).network_address)


class CallerQuota:
    """Counts what is in use, in total and by caller, up to the limits `{name}_max` and `{name}_per_caller_max`.

    `exempt` callers are bound only by the total.
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
        """Take an amount for a caller; 429 if it would exceed a limit."""
        problem = self.refusal(caller, amount)
        if problem is not None:
            raise problem
        self._by_caller[caller] += amount
        self.taken += amount

    def refusal(self, caller: str, amount: int = 1) -> Problem | None:
        """The Problem if an amount would exceed a limit; None if it is available."""
        if self.taken + amount > self._limit:
            return too_busy(f"{self._limit:,} {self._what} are in use (the limit {self._setting})", RETRY_AFTER_S)
        if self._by_caller[caller] + amount > self._limit_each and caller not in self._exempt:
            return Problem(
                42902,
                f"{self._limit_each:,} {self._what} are in use by {caller}, the most that one caller may use",
                f"close some, or {higher_limit(self._setting_each)}",
                headers={"Retry-After": str(RETRY_AFTER_S)},
            )
        return None

    def release(self, caller: str, amount: int = 1) -> None:
        """Release an amount that the caller no longer uses."""
        self.taken -= amount
        left = self._by_caller[caller] - amount
        if left > 0:
            self._by_caller[caller] = left
        else:
            del self._by_caller[caller]
