"""Limits the guessing of passwords: failures delay an address, and too many of them block it for a while.

Users are not locked out, or any client that knows a user's name could lock that user out: the limits are for an address
and a name, and, higher, for an address.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict

from penstock.gateway.web.problem import Problem

WINDOW_S = 60.0
KNOWN_MAX = 20_000
TOO_MANY = 42904


class FailedSignIns:
    """Counts failures in windows of a minute. Time is an argument, in seconds of any clock that never jumps."""

    def __init__(self, per_user_max: int, per_address_max: int) -> None:
        self._limits = (per_user_max, per_address_max)
        # When the window of an (address, user) started, and its failures; "" stands for all users of the address.
        self._counts: OrderedDict[tuple[str, str], tuple[float, int]] = OrderedDict()
        # Sign-ins in progress, by the same keys: each of them may fail.
        self._under_way: Counter[tuple[str, str]] = Counter()

    def check(self, address: str, user: str, now: float) -> None:
        """429 if this address has failed too often."""
        for key, limit in zip(((address, user), (address, "")), self._limits, strict=True):
            since, count = self._counts.get(key, (now, 0))
            left_s = since + WINDOW_S - now
            if count >= limit and left_s > 0:
                wait_s = math.ceil(left_s)
                raise Problem(
                    TOO_MANY,
                    f"sign-ins from {address} have failed {count} times within {WINDOW_S:g} s",
                    f"check the user and the password, and try again in {wait_s} s",
                    headers={"Retry-After": str(wait_s)},
                )

    def begin(self, address: str, user: str, now: float) -> bool:
        """Whether one more sign-in may start; `end` must follow, after `failed` if it has failed.

        False if it must wait for others, because there would be too many failures if all in progress failed.
        Raises Problem as `check` does.
        """
        self.check(address, user, now)
        keys = ((address, user), (address, ""))
        for key, limit in zip(keys, self._limits, strict=True):
            since, count = self._counts.get(key, (now, 0))
            failed = count if now - since < WINDOW_S else 0
            if failed + self._under_way[key] >= limit:
                return False
        self._under_way.update(keys)
        return True

    def end(self, address: str, user: str) -> None:
        """Note that a sign-in is no longer in progress."""
        for key in ((address, user), (address, "")):
            self._under_way[key] -= 1
            if not self._under_way[key]:
                del self._under_way[key]

    def failed(self, address: str, user: str, now: float) -> None:
        """Count a failure."""
        for key in ((address, user), (address, "")):
            since, count = self._counts.pop(key, (now, 0))
            if now - since >= WINDOW_S:
                since, count = now, 0
            self._counts[key] = (since, count + 1)
        while len(self._counts) > KNOWN_MAX:
            self._counts.popitem(last=False)

    def succeeded(self, address: str, user: str) -> None:
        """Reset the user's failures at this address; the failures of the address as a whole still count."""
        self._counts.pop((address, user), None)
