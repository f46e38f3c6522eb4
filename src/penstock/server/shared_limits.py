"""The connections of all listeners of one server, which share its limits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from penstock.core.security.connections import ConnectionQuotas


class Sharing(Protocol):
    """A listener among others."""

    name: str

    def resume(self) -> None:
        """Accept again: there may be room."""

    def longest_idle(self) -> tuple[float, Callable[[], None]] | None:
        """When its most idle connection was last active, and what closes it."""


class SharedLimits:
    """Lets listeners know of room that another one made, and makes room for the protected one."""

    def __init__(self, quotas: ConnectionQuotas | None = None) -> None:
        self.quotas = ConnectionQuotas() if quotas is None else quotas
        self._listeners: list[Sharing] = []

    def join(self, listener: Sharing) -> None:
        """One more listener shares the limits."""
        self._listeners.append(listener)

    def left(self, address: str) -> None:
        """A connection has closed: the next one that waits is admitted."""
        self.quotas.left(address)
        for listener in self._listeners:
            listener.resume()

    def make_room(self) -> None:
        """Disconnect the client that has been idle longest on an unprotected listener, if there are too many."""
        if not self.quotas.is_crowded:
            return
        protected = self.quotas.rules.protected
        found = (listener.longest_idle() for listener in self._listeners if listener.name != protected)
        idle = min((one for one in found if one is not None), key=lambda one: one[0], default=None)
        if idle is not None:
            idle[1]()
