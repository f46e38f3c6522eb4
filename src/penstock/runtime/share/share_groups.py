"""Share groups as handlers see them: the group's coordinator decides, and the persister keeps what it decides about.

The coordinator records first what the persister is about to be asked, and then what came of it. If this broker dies in
between, or no longer coordinates the group, the next coordinator finds the first record and calls again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from penstock.core.group.assignors.contract import Partition, Partitions, group_by_topic, pairs_of
from penstock.core.group.contract import Caller
from penstock.core.group.share.heartbeat import HeartbeatResult
from penstock.core.group.share.offsets import AlterResult, DeleteResult
from penstock.core.group.share.partitions import NewState
from penstock.core.metadata.image import Image
from penstock.core.share.state import NO_COUNT, NO_OFFSET
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import ZERO_UUID, TopicPartition, Uuid
from penstock.runtime.coordinator.groups import Groups
from penstock.runtime.env import Env
from penstock.runtime.share.end_offsets import EndOffsets
from penstock.runtime.share.persister import Persister, Summary
from penstock.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponseTopic,
)
from penstock.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from penstock.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from penstock.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

# A group may have thousands of partitions; this many of them are requested at the same time.
CALLS_MAX = 64

logger = logging.getLogger("penstock.share")

T = TypeVar("T")
Result = TypeVar("Result")


class ShareGroupCoordinator:
    """What this broker does for the share groups that it coordinates. Raises ApiError where it does not."""

    def __init__(self, env: Env, image: Image, groups: Groups, persister: Persister, end_offsets: EndOffsets) -> None:
        self._env = env
        self._image = image
        self._groups = groups
        self._persister = persister
        self._end_offsets = end_offsets

    async def heartbeat(self, request: ShareGroupHeartbeatRequest, caller: Caller) -> ShareGroupHeartbeatResponse:
        """Answer a member; share-partitions that it lacks are initialized in the background."""
        result: HeartbeatResult = await self._groups.ask(
            request.group_id,
            lambda shard, token, now_ms: shard.share.heartbeat(request, caller, token, now_ms),
            gather=True,
        )
        if result.to_initialize:
            self._env.spawn(
                self._initialize_for_members(request.group_id, result.to_initialize), f"initialize {request.group_id}"
            )
        return result.response

    async def _initialize_for_members(self, group: str, states: Sequence[NewState]) -> None:
        try:
            errors = await self._initialize(group, states)
        except ApiError as error:
            logger.info("group %s has another coordinator, which continues: %s", group, error)
            return
        if errors:
            logger.warning(
                "%d share-partitions of group %s could not be initialized, and will be tried again: %s",
                len(errors),
                group,
                next(iter(errors.values())),
            )

    async def _initialize(self, group: str, states: Sequence[NewState]) -> Mapping[Partition, ApiError]:
        """Have the persister begin, and the coordinator note it; returns what failed."""

        errors = await self._begin(group, states)
        outgrown = await self._outgrow(group, [pair for pair, error in errors.items() if _is_fenced(error)])
        if outgrown is not None:
            again = [state for state in states if _is_fenced(errors.get((state.topic_id, state.partition)))]
            for state in again:
                del errors[state.topic_id, state.partition]
            errors |= await self._begin(group, [state._replace(state_epoch=outgrown) for state in again])
        done = group_by_topic(
            (state.topic_id, state.partition) for state in states if (state.topic_id, state.partition) not in errors
        )
        failed = group_by_topic(errors)
        await self._groups.ask(group, lambda shard, token, _: shard.share.initialized(group, done, failed, token))
        return errors

    async def _begin(self, group: str, states: Sequence[NewState]) -> dict[Partition, ApiError]:
        """Have the persister begin; returns what failed."""

        def initialize(state: NewState) -> Awaitable[None]:
            return self._persister.initialize(group, *state)

        _, errors = await _each({(state.topic_id, state.partition): state for state in states}, initialize)
        return errors

    async def _outgrow(self, group: str, fenced: Sequence[Partition]) -> int | None:
        """Raise the group's epoch above the state of a former group of its name; None if that is not the reason.

        Requests of the former group may come late, so its state epochs are remembered, or its state is even back.
        """

        def read_summary(pair: Partition) -> Awaitable[Summary]:
            return self._persister.read_summary(group, *pair)

        summaries, _ = await _each({pair: pair for pair in fenced}, read_summary)
        if not summaries:
            return None
        highest = max(summary.state_epoch for summary in summaries.values())
        epoch: int | None = await self._groups.ask(
            group, lambda shard, token, _: shard.share.outgrow(group, highest, token)
        )
        return epoch

    async def alter_offsets(self, request: AlterShareGroupOffsetsRequest) -> AlterShareGroupOffsetsResponse:
        """Have an empty group start elsewhere."""
        result: AlterResult = _result(
            await self._groups.ask(
                request.group_id,
                lambda shard, token, now_ms: shard.share.alter_offsets(request, token, now_ms),
            )
        )
        if not result.to_initialize:
            return AlterShareGroupOffsetsResponse(responses=result.topics)
        errors = await self._initialize(request.group_id, result.to_initialize)
        return AlterShareGroupOffsetsResponse(responses=[_with_errors(topic, errors) for topic in result.topics])

    async def delete_offsets(self, request: DeleteShareGroupOffsetsRequest) -> DeleteShareGroupOffsetsResponse:
        """Forget where an empty group is in some topics."""
        group = request.group_id
        result: DeleteResult = _result(
            await self._groups.ask(group, lambda shard, token, _: shard.share.begin_delete_offsets(request, token))
        )
        errors = await self._delete(group, result)
        gone = [topic_id for topic_id in result.to_delete if topic_id not in errors]
        if gone:
            await self._groups.ask(group, lambda shard, token, _: shard.share.deleted(group, gone, token))
        rows = [
            DeleteShareGroupOffsetsResponseTopic(
                self._name(topic_id), topic_id, *_code_and_message(errors.get(topic_id))
            )
            for topic_id in result.to_delete
        ]
        return DeleteShareGroupOffsetsResponse(responses=[*rows, *result.refused])

    async def delete_state(self, group: str) -> None:
        """Delete all state of an empty share group, before the group itself; nothing to do for other groups."""
        result: DeleteResult = _result(
            await self._groups.ask(group, lambda shard, token, _: shard.share.begin_delete(group, token))
        )
        for error in (await self._delete(group, result)).values():
            raise error

    async def _delete(self, group: str, result: DeleteResult) -> Mapping[Uuid, ApiError]:
        """Have the persister forget partitions; returns the topics of which not all could be."""

        def delete(pair: Partition) -> Awaitable[None]:
            return self._persister.delete(group, *pair, result.state_epoch)

        _, errors = await _each({pair: pair for pair in sorted(pairs_of(result.to_delete))}, delete)
        return {topic_id: error for (topic_id, _), error in errors.items()}

    async def describe_all_offsets(self, group: str) -> list[DescribeShareGroupOffsetsResponseTopic]:
        """Where a group is in all partitions that it has state of."""
        partitions = await self._groups.read(group, lambda shard: shard.share.initialized_partitions(group))
        known = {topic_id: numbers for topic_id, numbers in partitions.items() if topic_id in self._image.topics_by_id}
        return await self._describe(group, known)

    async def describe_offsets(
        self, group: str, topics: Iterable[DescribeShareGroupOffsetsRequestTopic]
    ) -> list[DescribeShareGroupOffsetsResponseTopic]:
        """Where a group is in some partitions; those that do not exist, or have no state, have the offset -1."""
        known: dict[Uuid, frozenset[int]] = {}
        unknown = []
        for topic in topics:
            found = self._image.topics.get(topic.topic_name)
            if found is None:
                rows = [DescribeShareGroupOffsetsResponsePartition(index, NO_OFFSET) for index in topic.partitions]
                unknown.append(DescribeShareGroupOffsetsResponseTopic(topic.topic_name, ZERO_UUID, rows))
            else:
                known[found.topic_id] = known.get(found.topic_id, frozenset()) | frozenset(topic.partitions)
        return [*await self._describe(group, known), *unknown]

    async def _describe(self, group: str, partitions: Partitions) -> list[DescribeShareGroupOffsetsResponseTopic]:
        def read_summary(pair: Partition) -> Awaitable[Summary]:
            return self._persister.read_summary(group, *pair)

        summaries, _ = await _each({pair: pair for pair in pairs_of(partitions) if self._exists(pair)}, read_summary)
        ends = await self._end_offsets.of(
            TopicPartition(self._name(topic_id), number)
            for (topic_id, number), summary in summaries.items()
            if _has_lag(summary)
        )
        topics = []
        for topic_id, numbers in partitions.items():
            name = self._name(topic_id)
            rows = [
                _described(number, summaries.get((topic_id, number)), ends.get(TopicPartition(name, number)))
                for number in sorted(numbers)
            ]
            topics.append(DescribeShareGroupOffsetsResponseTopic(name, topic_id, rows))
        return topics

    def _exists(self, pair: Partition) -> bool:
        topic_id, number = pair
        topic = self._image.topics_by_id.get(topic_id)
        return topic is not None and 0 <= number < len(topic.partitions)

    def _name(self, topic_id: Uuid) -> str:
        found = self._image.topics_by_id.get(topic_id)
        return "" if found is None else found.name


async def _each(
    wanted: Mapping[Partition, T], call: Callable[[T], Awaitable[Result]]
) -> tuple[dict[Partition, Result], dict[Partition, ApiError]]:
    """Call for every partition, some at a time; returns the results, and the errors of the others."""
    room = asyncio.Semaphore(CALLS_MAX)
    results: dict[Partition, Result] = {}
    errors: dict[Partition, ApiError] = {}

    async def one(pair: Partition, argument: T) -> None:
        async with room:
            try:
                results[pair] = await call(argument)
            except ApiError as error:
                errors[pair] = error

    await asyncio.gather(*(one(pair, argument) for pair, argument in wanted.items()))
    return results, errors


def _result(answer: T | ApiError) -> T:
    if isinstance(answer, ApiError):
        raise answer
    return answer


def _code_and_message(error: ApiError | None) -> tuple[int, str | None]:
    return (ErrorCode.NONE, None) if error is None else (error.code, error.message)


def _with_errors(
    topic: AlterShareGroupOffsetsResponseTopic, errors: Mapping[Partition, ApiError]
) -> AlterShareGroupOffsetsResponseTopic:
    rows = []
    for row in topic.partitions:
        error = errors.get((topic.topic_id, row.partition_index))
        rows.append(row if error is None else row._replace(error_code=error.code, error_message=error.message))
    return topic._replace(partitions=rows)


def _is_fenced(error: ApiError | None) -> bool:
    return error is not None and error.code is ErrorCode.FENCED_STATE_EPOCH


def _has_lag(summary: Summary) -> bool:
    return summary.start_offset != NO_OFFSET and summary.finished_count != NO_COUNT


def _described(
    index: int, summary: Summary | None, end: int | ErrorCode | None
) -> DescribeShareGroupOffsetsResponsePartition:
    if summary is None:
        # As in Kafka, nothing is said of why.
        return DescribeShareGroupOffsetsResponsePartition(index, NO_OFFSET)
    if isinstance(end, ErrorCode):
        return DescribeShareGroupOffsetsResponsePartition(index, error_code=end, error_message=end.name)
    row = DescribeShareGroupOffsetsResponsePartition(index, summary.start_offset, summary.leader_epoch)
    return row if end is None else row._replace(lag=max(0, end - summary.start_offset - summary.finished_count))
