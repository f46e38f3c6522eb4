"""The members of share groups in this gateway, one for each group and topic; idle ones leave."""

from __future__ import annotations

import asyncio
import time

from penstock.core.share.acknowledgements import AckType
from penstock.gateway.kafka.broker_requests import BrokerWire
from penstock.gateway.kafka.share.member import ShareMember
from penstock.gateway.kafka.share.records import Taken
from penstock.gateway.kafka.share.routes import RoutedDelivery, ShareRoutes
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.web.quotas import CallerQuota

TICK_S = 1.0


class ShareMembers:
    """The members for one caller's requests. `quota` is the one that members share with consumer instances."""

    def __init__(self, settings: GatewaySettings, wire: BrokerWire, quota: CallerQuota) -> None:
        self._settings = settings
        self._caller_wire = wire
        # Responses come in the order of requests: an acknowledgement must not wait for requests of the console.
        self._wire = wire.branch()
        self._quota = quota
        self._routes = ShareRoutes(self._wire)
        self._members: dict[tuple[str, str], tuple[ShareMember, str]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._keeper: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start closing idle members."""
        self._keeper = asyncio.create_task(self._keep(), name="share members")

    async def stop(self) -> None:
        """Leave all groups."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        for member, _ in [*self._members.values()]:
            self._remove(member)
        await asyncio.gather(*self._closing, return_exceptions=True)
        await self._caller_wire.prune(self._wire)

    async def next(
        self, group: str, topic: str, offset_reset: str, timeout_s: float, caller: str
    ) -> tuple[ShareMember, Taken] | None:
        """A group's next record and the member that holds it; None if there is none in time.

        `offset_reset` is where a new group starts, unless its settings contain it. 429 if there are too many members.
        """
        member = self._member(group, topic, caller)
        taken = await member.next(offset_reset, timeout_s)
        return None if taken is None else (member, taken)

    async def settle(self, topic: str, delivery: RoutedDelivery, kind: AckType) -> int:
        """Acknowledge a record, whichever gateway delivered it; returns a lock's duration in milliseconds."""
        return await self._routes.settle(topic, delivery, kind)

    def _member(self, group: str, topic: str, caller: str) -> ShareMember:
        known = self._members.get((group, topic))
        if known is not None:
            return known[0]
        self._quota.take(caller)
        try:
            member = ShareMember(
                self._wire, self._routes, group, topic, self._settings.budgets.record_bytes_max, self._remove
            )
        except BaseException:
            self._quota.release(caller)
            raise
        self._members[group, topic] = (member, caller)
        return member

    def _remove(self, member: ShareMember) -> None:
        known = self._members.get((member.group, member.topic))
        if known is None or known[0] is not member:
            return
        del self._members[member.group, member.topic]
        task = asyncio.create_task(self._close(member, known[1]), name=f"leave {member.group}")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _close(self, member: ShareMember, caller: str) -> None:
        try:
            await member.stop()
        finally:
            self._quota.release(caller)

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            for member, _ in [*self._members.values()]:
                if not member.is_waited_for and now - member.used_at > self._settings.instance_idle_s:
                    self._remove(member)
