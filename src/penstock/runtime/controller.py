"""What brokers ask of the controller. Here the controller lives in the same process, in front of the metadata log."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.config.properties import ConfigError
from penstock.config.topic import BrokerDefaults, topic_settings
from penstock.core.metadata import topics
from penstock.core.metadata.image import Image, ResourceType, Topic
from penstock.core.metadata.result import Result
from penstock.core.placement.stripe import PlacementError, UsableBroker, place
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import METADATA_TOPIC_ID, ZERO_UUID, Uuid
from penstock.runtime.env import Env
from penstock.runtime.raft_driver import RaftDriver
from penstock.wire.messages.metadata_records import ConfigRecord, ProducerIdsRecord

PRODUCER_ID_BLOCK = 1000


class Controller:
    """Decides on changes to the cluster; every future is done once the change is committed."""

    def __init__(
        self, env: Env, raft: RaftDriver, defaults: topics.TopicDefaults, broker: Callable[[], BrokerDefaults]
    ):
        self._env = env
        self._raft = raft
        self._defaults = defaults
        self._broker = broker

    def create_topics(
        self, wanted: Sequence[topics.NewTopic], *, validate_only: bool = False
    ) -> Future[list[topics.TopicOutcome]]:
        """Create topics, or only say what would become of them."""

        def decision(image: Image) -> Result[list[topics.TopicOutcome]]:
            result = topics.create_topics(
                image, wanted, self._defaults, self._placer(image), self._check_topic_configs, self._new_topic_id
            )
            if validate_only:
                return Result((), [outcome._replace(topic_id=ZERO_UUID) for outcome in result.response])
            return result

        return self._raft.decide(decision)

    def delete_topics(self, choose: Callable[[Image], Topic]) -> Future[Topic]:
        """Delete the topic that `choose` picks from the image; it raises ApiError when there is none."""

        def decision(image: Image) -> Result[Topic]:
            topic = choose(image)
            return Result(topics.delete_topic(topic), topic)

        return self._raft.decide(decision)

    def create_partitions(
        self, name: str, total: int, assignments: Sequence[Sequence[int]] | None, *, validate_only: bool = False
    ) -> Future[None]:
        """Grow a topic."""

        def decision(image: Image) -> Result[None]:
            records = topics.add_partitions(image, name, total, assignments, self._placer(image))
            return Result(() if validate_only else records, None)

        return self._raft.decide(decision)

    def change_configs(
        self,
        kind: ResourceType,
        name: str,
        change: Callable[[Mapping[str, str]], Mapping[str, str]],
        *,
        validate_only: bool = False,
    ) -> Future[None]:
        """Replace a resource's settings by what `change` makes of them; it raises ApiError to refuse."""

        def decision(image: Image) -> Result[None]:
            if kind is ResourceType.TOPIC and name not in image.topics:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
            before = image.overrides(kind, name)
            after = change(before)
            if kind is ResourceType.TOPIC:
                self._check_topic_configs(after)
            return Result(() if validate_only else _config_records(kind, name, before, after), None)

        return self._raft.decide(decision)

    def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> Future[range]:
        """A block of producer ids that nobody else gets."""

        def decision(image: Image) -> Result[range]:
            first = image.next_producer_id
            record = ProducerIdsRecord(
                broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=first + PRODUCER_ID_BLOCK
            )
            return Result([record], range(first, first + PRODUCER_ID_BLOCK))

        return self._raft.decide(decision)

    def record(self, records: Callable[[Image], Sequence[Any]]) -> Future[None]:
        """Commit records that follow from the image alone."""
        return self._raft.decide(lambda image: Result(records(image), None))

    def _placer(self, image: Image) -> topics.Place:
        def chosen(partitions: int, replication_factor: int) -> list[tuple[int, ...]]:
            brokers = [
                UsableBroker(broker.broker_id, broker.registration.rack, broker.fenced)
                for broker in image.brokers.values()
                if not broker.in_controlled_shutdown
            ]
            try:
                return place(partitions, replication_factor, brokers, self._env.random)
            except PlacementError as error:
                raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, str(error)) from error

        return chosen

    def _check_topic_configs(self, overrides: Mapping[str, str]) -> None:
        try:
            topic_settings(overrides, self._broker())
        except ConfigError as error:
            raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from error

    def _new_topic_id(self) -> Uuid:
        # Ids that begin with a dash trouble command lines, so Kafka never makes one; nor do we.
        while True:
            topic_id: Uuid = self._env.random.randbytes(16)
            if topic_id[0] >> 2 != 62 and topic_id not in (ZERO_UUID, METADATA_TOPIC_ID):
                return topic_id


def _config_records(
    kind: ResourceType, name: str, before: Mapping[str, str], after: Mapping[str, str]
) -> list[ConfigRecord]:
    changed = [key for key in {*before, *after} if before.get(key) != after.get(key)]
    return [
        ConfigRecord(resource_type=kind, resource_name=name, name=key, value=after.get(key)) for key in sorted(changed)
    ]
