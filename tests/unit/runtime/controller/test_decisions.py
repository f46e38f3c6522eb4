"""Decisions are made one at a time, answered when they are committed, and counted then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from penstock.core.metadata.image import RECOVERING, Image
from penstock.core.metadata.result import Result
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.controller import decisions
from penstock.runtime.controller.decisions import Decisions
from penstock.wire.messages.metadata_records import PartitionChangeRecord, TopicRecord

TOPIC = TopicRecord("orders", bytes(16))
GONE = ApiError(ErrorCode.NOT_CONTROLLER, "node 2 is")


class Quorum:
    """Commits when the test decides."""

    def __init__(self) -> None:
        self.image = Image()
        self.refusal: ApiError | None = None
        self.appended: list[Sequence[Any]] = []
        self.commits: list[asyncio.Future[None]] = []

    def append(self, records: Sequence[Any]) -> asyncio.Future[None]:
        self.appended.append(records)
        self.commits.append(asyncio.get_running_loop().create_future())
        return self.commits[-1]


def play(story: Callable[[Quorum, Decisions, list[float]], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        now = [0.0]
        quorum = Quorum()
        await story(quorum, Decisions(quorum, lambda: now[0]), now)

    asyncio.run(run())


def decision(*records: Any) -> Callable[[Image], Result[str]]:
    return lambda _: Result(records, "done")


def test_the_next_decision_waits_until_the_one_before_it_is_committed() -> None:
    async def story(quorum: Quorum, made: Decisions, _: list[float]) -> None:
        first, second, third = made.decide(decision(TOPIC)), made.decide(decision(TOPIC)), made.decide(decision())
        assert len(quorum.appended) == 1
        quorum.commits[0].set_result(None)
        assert await first == "done"
        assert len(quorum.appended) == 2
        assert not third.done()
        quorum.commits[1].set_result(None)
        assert [await second, await third] == ["done", "done"]
        assert len(quorum.appended) == 2

    play(story)


def test_a_new_active_controller_decides_nothing_before_it_has_begun() -> None:
    """Controllers of Apache Kafka end when they read a record before they know the metadata version."""

    async def story(quorum: Quorum, made: Decisions, _: list[float]) -> None:
        made.on_leadership(True)
        early = made.decide(decision(TOPIC))
        assert not quorum.appended
        first = made.begin(decision(TOPIC, TOPIC))
        assert [len(records) for records in quorum.appended] == [2]
        quorum.commits[0].set_result(None)
        assert await first == "done"
        quorum.commits[1].set_result(None)
        assert await early == "done"

    play(story)


def test_nothing_is_decided_while_the_first_decision_fails() -> None:
    async def story(quorum: Quorum, made: Decisions, _: list[float]) -> None:
        made.on_leadership(True)
        early, first = made.decide(decision(TOPIC)), made.begin(decision(TOPIC, TOPIC))
        quorum.commits[0].set_exception(ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full"))
        with pytest.raises(ApiError, match="the disk is full"):
            await first
        await asyncio.sleep(0)
        assert len(quorum.appended) == 1
        again = made.begin(decision(TOPIC, TOPIC))
        quorum.commits[1].set_result(None)
        assert await again == "done"
        await asyncio.sleep(0)
        quorum.commits[2].set_result(None)
        assert await early == "done"

    play(story)


def test_who_has_not_begun_and_is_replaced_decides_nothing() -> None:
    async def story(quorum: Quorum, made: Decisions, _: list[float]) -> None:
        made.on_leadership(True)
        early = made.decide(decision(TOPIC))
        quorum.refusal = GONE
        made.on_leadership(False)
        for answer in (early, made.begin(decision(TOPIC))):
            with pytest.raises(ApiError, match="node 2 is"):
                await answer
        assert not quorum.appended

    play(story)


def test_rejected_and_empty_decisions_delay_no_others() -> None:
    async def story(_: Quorum, made: Decisions, __: list[float]) -> None:
        def refuse(_: Image) -> Result[str]:
            raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, "there is one")

        with pytest.raises(ApiError, match="there is one"):
            await made.decide(refuse)
        assert await made.decide(decision()) == "done"
        assert made.counters.decision_times.count == 0

    play(story)


@pytest.mark.parametrize("bug", [AttributeError, IndexError, TypeError, RuntimeError, OverflowError])
def test_a_bug_in_one_decision_stops_no_others(bug: type[Exception]) -> None:
    async def story(quorum: Quorum, made: Decisions, _: list[float]) -> None:
        def fail(_: Any) -> Any:
            raise bug("a bug")

        first = made.decide(decision(TOPIC))
        failed, following = made.decide(fail), made.decide(decision(TOPIC))
        quorum.commits[0].set_result(None)
        assert await first == "done"
        with pytest.raises(bug, match="a bug"):
            await failed
        quorum.commits[1].set_result(None)
        assert await following == "done"
        append, quorum.append = quorum.append, fail  # type: ignore[method-assign]
        with pytest.raises(bug, match="a bug"):
            await made.decide(decision(TOPIC))
        quorum.append = append  # type: ignore[method-assign]
        assert await made.decide(decision()) == "done"

    play(story)


def test_committed_decisions_are_timed_and_elections_counted() -> None:
    async def story(quorum: Quorum, made: Decisions, now: list[float]) -> None:
        clean = PartitionChangeRecord(leader=1)
        unclean = PartitionChangeRecord(leader=2, leader_recovery_state=RECOVERING)
        answers = [made.decide(decision(TOPIC)), made.decide(decision(clean, unclean, PartitionChangeRecord()))]
        for number, answer in enumerate(answers):
            now[0] += 2
            quorum.commits[number].set_result(None)
            await answer
        counters = made.counters
        assert (counters.elections, counters.unclean_elections) == (2, 1)
        assert (counters.decision_times.count, counters.decision_times.sum) == (2, 6.0)
        assert (counters.election_times.count, counters.election_times.sum) == (1, 4.0)

    play(story)


def test_a_controller_that_lost_leadership_decides_nothing_more() -> None:
    async def story(quorum: Quorum, made: Decisions, _: list[float]) -> None:
        first, second = made.decide(decision(TOPIC)), made.decide(decision(TOPIC))
        quorum.refusal = GONE
        made.on_leadership(False)
        quorum.commits[0].set_exception(GONE)
        for answer in (first, second, made.decide(decision(TOPIC))):
            with pytest.raises(ApiError, match="node 2 is"):
                await answer
        assert len(quorum.appended) == 1
        assert made.counters.decision_times.count == 0

    play(story)


def test_too_many_decisions_at_once_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "PENDING_MAX", 1)

    async def story(_: Quorum, made: Decisions, __: list[float]) -> None:
        waiting = [made.decide(decision(TOPIC)) for _ in range(2)]
        with pytest.raises(ApiError, match="overloaded"):
            await made.decide(decision(TOPIC))
        assert not any(answer.done() for answer in waiting)

    play(story)
