"""Limits how much each caller may send and receive per second: requests, and bytes of bodies in both directions.

Each caller has an account that fills at its rate and holds one second's worth. A request is served if both accounts
are above zero; its cost is subtracted afterwards, so a large body delays the caller's next requests.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass

from penstock.gateway.named_limits import higher_limit
from penstock.gateway.web.problem import Problem

CALLERS_MAX = 20_000
TOO_FAST = 42903


@dataclass(slots=True)
class _Account:
    requests: float
    size: float
    at: float


class CallerRates:
    """The accounts of all callers. Time is an argument; a rate of 0 has no limit."""

    def __init__(self, requests_per_s: int, bytes_per_s: int) -> None:
        self._requests_per_s = requests_per_s
        self._bytes_per_s = bytes_per_s
        self._accounts: OrderedDict[str, _Account] = OrderedDict()

    @property
    def are_limited(self) -> bool:
        """Whether there is any limit."""
        return bool(self._requests_per_s or self._bytes_per_s)

    def take(self, caller: str, now: float) -> None:
        """Take one request; 429 if the caller has to wait."""
        account = self._account(caller, now)
        for level, rate, name in (
            (account.requests - 1, self._requests_per_s, "caller_requests_per_s_max"),
            (account.size, self._bytes_per_s, "caller_bytes_per_s_max"),
        ):
            if rate and level < 0:
                unit = "bytes" if "bytes" in name else "requests"
                wait_s = max(1, math.ceil(-level / rate))
                raise Problem(
                    TOO_FAST,
                    f"{caller} exceeds {rate:,} {unit} per second (the limit {name})",
                    f"send less, or {higher_limit(name)}",
                    headers={"Retry-After": str(wait_s)},
                )
        account.requests -= 1

    def spend(self, caller: str, size: int, now: float) -> None:
        """Subtract the bytes of a request's body or of its response."""
        self._account(caller, now).size -= size

    def _account(self, caller: str, now: float) -> _Account:
        account = self._accounts.get(caller)
        if account is None:
            account = self._accounts[caller] = _Account(self._requests_per_s, self._bytes_per_s, now)
            if len(self._accounts) > CALLERS_MAX:
                self._accounts.popitem(last=False)
            return account
        self._accounts.move_to_end(caller)
        elapsed_s = max(0.0, now - account.at)
        account.requests = min(self._requests_per_s, account.requests + elapsed_s * self._requests_per_s)
        account.size = min(self._bytes_per_s, account.size + elapsed_s * self._bytes_per_s)
        account.at = now
        return account
