"""Membership in a share group: joins, sends heartbeats, leaves."""

from __future__ import annotations

import asyncio
import uuid

from penstock.client.address import Address
from penstock.client.failures import NoAnswer, NotServed
from penstock.core.backoff import Backoff
from penstock.gateway.kafka.broker_requests import BrokerWire, check
from penstock.gateway.web.problem import Problem
from penstock.model.errors import ErrorCode
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

WRONG_TYPE = 40906
GROUP = 0
JOIN_EPOCH, LEAVE_EPOCH = 0, -1
# Until the group has assigned partitions, a new member sends heartbeats often.
FIRST_PAUSE_S = 0.02
PAUSE_S_MAX = 1.0
LEAVE_TIMEOUT_MS = 1_000

_COORDINATOR_UNAVAILABLE = frozenset(
    (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
)
_MEMBER_UNKNOWN = frozenset((ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH))


def not_supported(why: str) -> Problem:
    """501: the brokers lack what subscribers need."""
    return Problem(
        50103,
        f"the brokers do not serve subscribers: {why}",
        "use Penstock's brokers of the same version as the gateway, or consumers: POST /consumers/{group}",
    )


class Membership:
    """One member that subscribes to one topic. The group shows it, and keeps state for the topic's partitions.

    The member acquires records of all partitions, including those that the group assigns to others: a gateway without
    callers must not withhold records from callers of another gateway.
    """

    def __init__(self, wire: BrokerWire, group: str, topic: str) -> None:
        self.member_id = uuid.uuid4().hex
        # Done when the group has state for the topic.
        self.joined: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._wire = wire
        self._group = group
        self._topic = topic
        self._epoch = JOIN_EPOCH
        self._coordinator: Address | None = None

    async def keep(self) -> None:
        """Join, and stay until cancelled. Raises Problem if the group refuses."""
        backoff = Backoff(FIRST_PAUSE_S, PAUSE_S_MAX)
        while True:
            response = await self._heartbeat()
            assignment = response.assignment if response is not None else None
            if assignment is not None and assignment.topic_partitions and not self.joined.done():
                self.joined.set_result(None)
            if response is not None and self.joined.done():
                backoff.succeeded()
                await asyncio.sleep(max(FIRST_PAUSE_S, response.heartbeat_interval_ms / 1000))
            else:
                await asyncio.sleep(backoff.failed())

    async def leave(self) -> None:
        """Leave the group, if its coordinator responds soon; otherwise the session times out."""
        if self._coordinator is not None and self._epoch != JOIN_EPOCH:
            request = ShareGroupHeartbeatRequest(self._group, self.member_id, LEAVE_EPOCH)
            await self._wire.ask_each([self._coordinator], request, timeout_ms=LEAVE_TIMEOUT_MS)

    async def _heartbeat(self) -> ShareGroupHeartbeatResponse | None:
        """One heartbeat; None if it has to be repeated. Raises Problem."""
        topics = [self._topic] if self._epoch == JOIN_EPOCH else None
        request = ShareGroupHeartbeatRequest(self._group, self.member_id, self._epoch, None, topics)
        try:
            coordinator = self._coordinator = self._coordinator or await self._find()
            if coordinator is None:
                return None
            response = await self._wire.ask_at(coordinator, request)
        except NotServed as error:
            raise not_supported(str(error)) from None
        except NoAnswer:
            self._coordinator = None
            return None
        if response.error_code in _COORDINATOR_UNAVAILABLE:
            self._coordinator = None
            return None
        if response.error_code in _MEMBER_UNKNOWN:
            self._epoch = JOIN_EPOCH
            return None
        self._check(response)
        self._epoch = response.member_epoch
        return response

    async def _find(self) -> Address | None:
        response = await self._wire.ask(FindCoordinatorRequest(key_type=GROUP, coordinator_keys=[self._group]))
        row = response.coordinators[0]
        if row.error_code in _COORDINATOR_UNAVAILABLE:
            return None
        check(row.error_code, row.error_message, f"group {self._group}")
        return Address(row.host, row.port)

    def _check(self, response: ShareGroupHeartbeatResponse) -> None:
        if response.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            raise Problem(
                WRONG_TYPE,
                f"{self._group} is a consumer group, and subscribers need a share group",
                "choose another group, or delete this one and its offsets: `penstock group delete`",
            )
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            raise not_supported(response.error_message or "they have no share groups")
        check(response.error_code, response.error_message, f"group {self._group}")
