"""Serializes decisions about the cluster: each is made on an image that includes all decisions before it.

A decision is a function from the image to records and a response. The records are appended to the metadata log; the
response is returned once they are committed and in the image. Only the active controller decides. When it loses
leadership, everything pending fails; what it had appended may still be committed by its successor.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, NamedTuple, Protocol, TypeVar

from penstock.core.metadata.image import RECOVERING, Image
from penstock.core.metadata.result import Result
from penstock.core.metrics.counters import DecisionCounters
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.replication.commit_waiters import fail_quietly
from penstock.wire.messages.metadata_records import PartitionChangeRecord

PENDING_MAX = 10_000

Response = TypeVar("Response")


class DecisionLog(Protocol):
    """What decisions need from the metadata log."""

    @property
    def image(self) -> Image:
        """The committed state."""

    @property
    def refusal(self) -> ApiError | None:
        """Why this node cannot decide; None if it is the active controller."""

    def append(self, records: Sequence[object]) -> asyncio.Future[None]:
        """Append records; done when they are committed and in the image."""


class Pending(NamedTuple):
    """A decision that waits for its turn."""

    decision: Callable[[Image], Result[Any]]
    answer: asyncio.Future[Any]
    asked_at: float


class Decisions:
    """The active controller's decisions. `on_leadership` must be called when this node gains or loses leadership."""

    def __init__(self, quorum: DecisionLog, clock: Callable[[], float] = perf_counter) -> None:
        self._quorum = quorum
        self._clock = clock
        self._pending: deque[Pending] = deque()
        self._is_deciding = False
        # A new active controller decides nothing before its first decision is committed.
        self._has_begun = True
        self._first: Pending | None = None
        self.counters = DecisionCounters()

    @property
    def image(self) -> Image:
        """The committed state."""
        return self._quorum.image

    def decide(self, decision: Callable[[Image], Result[Response]]) -> asyncio.Future[Response]:
        """Commit the records that `decision` computes from the image, then return its response.

        Fails with NOT_CONTROLLER if this node is not the active controller, or loses leadership.
        """
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        refusal = self._quorum.refusal
        if refusal is not None:
            answer.set_exception(refusal)
        elif len(self._pending) >= PENDING_MAX:
            answer.set_exception(ApiError(ErrorCode.REQUEST_TIMED_OUT, "the controller is overloaded; try again"))
        else:
            self._pending.append(Pending(decision, answer, self._clock()))
            self._decide_next()
        return answer

    def begin(self, decision: Callable[[Image], Result[Response]]) -> asyncio.Future[Response]:
        """Decide on this before everything that was requested since this node became the active controller.

        Other controllers cannot read records of a new cluster whose feature levels they do not know. If it fails,
        everything else keeps waiting, and this is to be called again.
        """
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        refusal = self._quorum.refusal
        if refusal is not None:
            answer.set_exception(refusal)
        else:
            self._first = Pending(decision, answer, self._clock())
            answer.add_done_callback(self._begun)
            self._decide_next()
        return answer

    def _begun(self, answer: asyncio.Future[Any]) -> None:
        if not answer.cancelled() and answer.exception() is None and self._quorum.refusal is None:
            self._has_begun = True
            self._decide_next()

    def on_leadership(self, is_leader: bool) -> None:
        """Without leadership, everything pending fails."""
        self._has_begun = not is_leader
        refusal = self._quorum.refusal
        if not is_leader and refusal is not None:
            if self._first is not None:
                fail_quietly(self._first.answer, refusal)
                self._first = None
            while self._pending:
                fail_quietly(self._pending.popleft().answer, refusal)

    def _next(self) -> Pending | None:
        """The decision whose turn it is."""
        if self._is_deciding or self._quorum.refusal is not None:
            return None
        if self._first is not None:
            first, self._first = self._first, None
            return first
        return self._pending.popleft() if self._pending and self._has_begun else None

    def _decide_next(self) -> None:
        while (pending := self._next()) is not None:
            if pending.answer.done():
                continue
            self._is_deciding = True
            try:
                records, response = pending.decision(self._quorum.image)
                committed = self._quorum.append(records) if records else None
            except Exception as error:  # noqa: BLE001 - it is for the caller, and must not stop all other decisions
                self._is_deciding = False
                pending.answer.set_exception(error)
                continue
            if committed is None:
                self._is_deciding = False
                pending.answer.set_result(response)
                continue
            committed.add_done_callback(
                lambda done, pending=pending, records=records, response=response: self._decided(  # type: ignore[misc]
                    done, pending, records, response
                )
            )

    def _decided(
        self, committed: asyncio.Future[None], pending: Pending, records: Sequence[object], response: object
    ) -> None:
        self._is_deciding = False
        error = committed.exception()
        if error is None:
            self._count(records, self._clock() - pending.asked_at)
        if not pending.answer.done():
            if error is not None:
                pending.answer.set_exception(error)
            else:
                pending.answer.set_result(response)
        self._decide_next()

    def _count(self, records: Sequence[Any], elapsed_s: float) -> None:
        changes = [record for record in records if isinstance(record, PartitionChangeRecord) and record.leader >= 0]
        unclean = sum(record.leader_recovery_state == RECOVERING for record in changes)
        self.counters.decided(elapsed_s, len(changes), unclean)
