"""Requests to the active controller, in this process or on another node.

A request goes to the leader of the metadata quorum: to this process if it leads, over a connection otherwise. While
there is no leader, or the node asked has just lost leadership, the request is retried until its timeout. The controller
handles a repeated request like the first one, so retrying is safe.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar, cast

from penstock.core.backoff import Backoff
from penstock.core.metadata.topics import NewTopic, TopicOutcome
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.env import Env
from penstock.runtime.peer import PLAIN_TEXT, Peer, PeerLost, PeerSecurity
from penstock.wire.apis import Request
from penstock.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)

RETRY_MIN_MS = 20
RETRY_MAX_MS = 250

R = TypeVar("R")
Local = Callable[[Request[object]], object]


class Leadership(Protocol):
    """What the client needs to know of the quorum."""

    @property
    def leader_id(self) -> int:
        """The leader of the metadata quorum, -1 when none is known."""

    @property
    def is_leader(self) -> bool:
        """Whether this node is the active controller."""


class TopicCreator(Protocol):
    """Anything that can create topics."""

    def create_topics(self, wanted: Sequence[NewTopic]) -> asyncio.Future[list[TopicOutcome]]:
        """The outcome for each topic, once it is committed."""


class ControllerClient:
    """Calls the active controller. `serve_locally` answers a request when this node is the active controller."""

    def __init__(
        self,
        env: Env,
        node_id: int,
        quorum: Leadership,
        address: Callable[[int], tuple[str, int] | None],
        request_timeout_ms: int,
        security: PeerSecurity = PLAIN_TEXT,
    ) -> None:
        self._env = env
        self._security = security
        self._node_id = node_id
        self._quorum = quorum
        self._address = address
        self._request_timeout_ms = request_timeout_ms
        self._peers: dict[int, Peer] = {}
        # Pending answers.
        self._asked: set[asyncio.Future[Any]] = set()
        self.serve_locally: Local | None = None

    async def ask(self, request: Request[R], timeout_ms: int | None = None) -> R:
        """The active controller's answer; raises REQUEST_TIMED_OUT when no controller answered in time."""
        loop = asyncio.get_running_loop()
        patience_ms = self._request_timeout_ms if timeout_ms is None else timeout_ms
        deadline = loop.time() + patience_ms / 1000
        backoff = Backoff(RETRY_MIN_MS, RETRY_MAX_MS)
        why = "no controller is known to lead"
        while True:
            left_ms = int((deadline - loop.time()) * 1000)
            if left_ms <= 0:
                raise ApiError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"no active controller answered within {patience_ms} ms ({why}); a majority of the controllers "
                    "must be up and reach each other",
                )
            try:
                response = await self._try(request, left_ms)
            except PeerLost as error:
                why = str(error)
            else:
                if response is not None and not _is_refused(response):
                    return response
                if response is not None:
                    why = f"controller {self._quorum.leader_id} no longer leads"
            await asyncio.sleep(min(backoff.failed(), max(1, left_ms)) / 1000)

    async def _try(self, request: Request[R], left_ms: int) -> R | None:
        """One attempt; None when there is no leader to ask."""
        leader_id = self._quorum.leader_id
        if leader_id == self._node_id:
            if self.serve_locally is None or not self._quorum.is_leader:
                return None
            response = self.serve_locally(request)
            if inspect.isawaitable(response):
                try:
                    response = await asyncio.wait_for(_settled(response), left_ms / 1000)
                except TimeoutError:
                    raise PeerLost("the metadata log did not commit the change in time") from None
            return cast(R, response)
        if leader_id < 0 or self._address(leader_id) is None:
            return None
        answer = self._peer(leader_id).send(request, timeout_ms=left_ms)
        self._asked.add(answer)
        try:
            return await answer
        finally:
            self._asked.discard(answer)

    def leader_changed(self, leader_id: int) -> None:
        """Stop waiting for answers of earlier leaders: one that hangs would block us.

        The same node may lead again. If its machine was restarted it knows nothing of the request, and the
        connection was not closed.
        """
        if leader_id < 0:
            return
        for answer in list(self._asked):
            if not answer.done():
                answer.set_exception(PeerLost("the controller lost leadership before it answered"))

    def _peer(self, node_id: int) -> Peer:
        peer = self._peers.get(node_id)
        if peer is None:
            peer = self._peers[node_id] = Peer(
                self._env,
                lambda: self._address(node_id),
                f"node-{self._node_id}",
                self._request_timeout_ms,
                self._security,
            )
        return peer

    def create_topics(self, wanted: Sequence[NewTopic]) -> asyncio.Future[list[TopicOutcome]]:
        """Create topics on behalf of this broker; fails with ApiError when no controller answers."""
        return asyncio.ensure_future(self._create_topics(wanted))

    async def _create_topics(self, wanted: Sequence[NewTopic]) -> list[TopicOutcome]:
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    topic.name,
                    topic.partitions,
                    topic.replication_factor,
                    [CreatableReplicaAssignment(index, brokers) for index, brokers in topic.assignments.items()],
                    [CreatableTopicConfig(name, value) for name, value in topic.configs.items()],
                )
                for topic in wanted
            ],
            timeout_ms=self._request_timeout_ms,
        )
        response = await self.ask(request)
        return [
            TopicOutcome(row.name, row.topic_id, error=ErrorCode(row.error_code), message=row.error_message)
            for row in response.topics
        ]

    def close(self) -> None:
        """Close all connections."""
        for peer in self._peers.values():
            peer.close()


async def _settled(answer: Awaitable[R]) -> R:
    return await answer


def _is_refused(response: object) -> bool:
    """Whether the node that answered no longer leads."""
    code = getattr(response, "error_code", None)
    if code is None:
        rows = getattr(response, "topics", None) or ()
        return any(getattr(row, "error_code", 0) == ErrorCode.NOT_CONTROLLER for row in rows)
    return bool(code == ErrorCode.NOT_CONTROLLER)
