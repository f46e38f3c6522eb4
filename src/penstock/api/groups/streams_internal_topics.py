"""Creates the internal topics of streams groups, in their members' name and while these keep sending heartbeats."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple

from penstock.api.context import RequestContext
from penstock.core.group.streams.internal_topics import InternalTopic
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.env import Env
from penstock.wire.apis import ApiKey
from penstock.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

CREATE_TOPICS_VERSION = 7
# How many failures are remembered; the oldest is forgotten first, and that topic tried again.
FAILURES_MAX = 1_000
BROKER_DEFAULT = -1


class _Failure(NamedTuple):
    reason: str
    until_ms: int


class StreamsInternalTopics:
    """Has the active controller create topics, each once at a time; one that failed is left alone for a while."""

    def __init__(self, env: Env, decide: Callable[[ApiKey, Any, RequestContext], Awaitable[Any]]) -> None:
        self._env = env
        self._decide = decide
        self._under_way: set[str] = set()
        self._failures: dict[str, _Failure] = {}

    def create(self, topics: Sequence[InternalTopic], context: RequestContext, retry_ms: int) -> None:
        """Begin to create those that are not under way, and have not failed within the last `retry_ms`."""
        failed = self.failures(topic.name for topic in topics)
        wanted = [topic for topic in topics if topic.name not in self._under_way and topic.name not in failed]
        if wanted:
            self._under_way.update(topic.name for topic in wanted)
            self._env.spawn(self._create(wanted, context, retry_ms), f"create topics of streams {wanted[0].name}")

    def failures(self, names: Iterable[str]) -> dict[str, str]:
        """Why topics could not be created lately."""
        now_ms = self._env.monotonic_ms()
        found = {name: self._failures[name] for name in names if name in self._failures}
        return {name: failure.reason for name, failure in found.items() if now_ms < failure.until_ms}

    async def _create(self, wanted: Sequence[InternalTopic], context: RequestContext, retry_ms: int) -> None:
        request = CreateTopicsRequest([_creatable(topic) for topic in wanted], retry_ms)
        context = context._replace(api_version=CREATE_TOPICS_VERSION)
        try:
            response = await self._decide(ApiKey.CREATE_TOPICS, request, context)
        except ApiError as error:
            self._note_failures({topic.name: error.message for topic in wanted}, retry_ms)
        else:
            errors = {row.name: row for row in response.topics if row.error_code}
            self._note_failures(
                {
                    name: row.error_message or ErrorCode(row.error_code).name
                    for name, row in errors.items()
                    if row.error_code != ErrorCode.TOPIC_ALREADY_EXISTS
                },
                retry_ms,
            )
        finally:
            self._under_way.difference_update(topic.name for topic in wanted)

    def _note_failures(self, reasons: dict[str, str], retry_ms: int) -> None:
        until_ms = self._env.monotonic_ms() + retry_ms
        for name, reason in reasons.items():
            self._failures.pop(name, None)
            self._failures[name] = _Failure(reason, until_ms)
        while len(self._failures) > FAILURES_MAX:
            del self._failures[next(iter(self._failures))]


def _creatable(topic: InternalTopic) -> CreatableTopic:
    configs = [CreatableTopicConfig(name, value) for name, value in topic.configs.items()]
    return CreatableTopic(topic.name, topic.partitions, topic.replication_factor or BROKER_DEFAULT, configs=configs)
