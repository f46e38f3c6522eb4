"""The controller's operations about cluster links and promotions."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum

from penstock.client.settings import read_settings
from penstock.config.link import PARTITIONS_MAX, REPLICATION_FACTOR, altered, number
from penstock.core.link.promotion import Claim, Claims
from penstock.core.link.selection import TopicSelection
from penstock.core.metadata import link_decisions
from penstock.core.metadata.brokers import check_broker_epoch
from penstock.core.metadata.image import Image
from penstock.core.metadata.link_decisions import MirrorOutcome, SourceTopic
from penstock.core.metadata.links import MirrorState, configs_of
from penstock.core.metadata.result import Result
from penstock.core.metadata.topic_names import check_topic_name
from penstock.core.metadata.topics import Admit, PlaceReplicas
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import Uuid
from penstock.runtime.controller.duties import DecisionQueue
from penstock.runtime.env import Env
from penstock.wire.messages.change_link import ChangeLinkRequest
from penstock.wire.messages.metadata_records import LinkRecord
from penstock.wire.messages.update_mirrors import UpdateMirrorsRequest

# A decision that stops mirrors has about this many records at most.
RECORDS_PER_DECISION = 2_000
LINK_NAME_LENGTH_MAX = 100
EPOCH_MAX = 2**30


class LinkAction(IntEnum):
    """What a request does with a link; the numbers are those of the AlterLink API."""

    CREATE = 0
    ALTER = 1
    PAUSE = 2
    RESUME = 3
    DELETE = 4
    PROMOTE = 5
    FAILOVER = 6
    CANCEL = 7


class LinkDecisions:
    """Decides on changes of links; what is returned is committed."""

    def __init__(
        self,
        env: Env,
        quorum: DecisionQueue,
        cluster_id: str,
        next_offset: Callable[[], int],
        placer: Callable[[Image], PlaceReplicas],
        check_topic_configs: Callable[[Mapping[str, str]], None],
        admit: Admit,
        check_growth: Callable[[str, int], None],
        new_topic_id: Callable[[], Uuid],
        enable: Callable[[Image], Sequence[object]],
    ) -> None:
        """`enable` returns what has to be recorded before the first link, or raises ApiError."""
        self._env = env
        self._quorum = quorum
        self._cluster_id = cluster_id
        self._next_offset = next_offset
        self._placer = placer
        self._check_topic_configs = check_topic_configs
        self._admit = admit
        self._check_growth = check_growth
        self._new_topic_id = new_topic_id
        self._enable = enable
        self._claims = Claims()

    def forget_claims(self) -> None:
        """Another node is the active controller, or this one is again: leaders claim anew."""
        self._claims.clear()

    async def change(self, request: ChangeLinkRequest) -> Sequence[str]:
        """Carry out one action; returns the topics that it concerns. Raises ApiError."""
        try:
            action = LinkAction(request.action)
        except ValueError:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"links have no action {request.action}") from None
        name = request.name
        if action is LinkAction.FAILOVER:
            return await self._fail_over(name, request.topics)
        if action is LinkAction.CANCEL:
            cancelled = await self._quorum.decide(
                lambda image: link_decisions.cancel_promotion(image, name, request.topics)
            )
            for mirror in cancelled:
                self._claims.forget(mirror.topic_id)
            topics = self._quorum.image.topics_by_id
            return [topics[mirror.topic_id].name for mirror in cancelled if mirror.topic_id in topics]

        def decision(image: Image) -> Result[Sequence[str]]:
            if action is LinkAction.CREATE:
                return self._create(image, request)
            if action is LinkAction.ALTER:
                return self._alter(image, request)
            if action is LinkAction.DELETE:
                return link_decisions.delete_link(image, name)
            if action is LinkAction.PROMOTE:
                return link_decisions.begin_promotion(image, name, request.topics, self._next_offset())
            return link_decisions.pause_link(image, name, is_paused=action is LinkAction.PAUSE)

        return await self._quorum.decide(decision)

    async def update(self, request: UpdateMirrorsRequest) -> list[MirrorOutcome]:
        """Take over what a broker found at the source, and the claims of a leader. Raises ApiError."""
        check_broker_epoch(self._quorum.image, request.broker_id, request.broker_epoch)
        if link_decisions.is_next_producer_id(self._quorum.image, request.highest_producer_id):
            await self._decide(lambda image: link_decisions.raise_producer_ids(image, request.highest_producer_id))
        outcomes: list[MirrorOutcome] = []
        if request.topics:
            outcomes = await self._quorum.decide(lambda image: self._update(image, request))
        now_ms = self._env.monotonic_ms()
        for row in request.claims:
            claim = Claim(row.promotion_id, request.broker_id, row.leader_epoch, row.end_offset, now_ms)
            self._claims.note(row.topic_id, row.partition, claim)
        for topic_id in {row.topic_id for row in request.claims}:
            if self._is_ready(self._quorum.image, topic_id):
                # The image of the decision may have other leaders than this one.
                await self._decide(
                    lambda image, topic_id=topic_id: (  # type: ignore[misc]
                        link_decisions.stop_mirror(image, topic_id) if self._is_ready(image, topic_id) else []
                    )
                )
                if not self._quorum.image.links.is_mirroring(topic_id):
                    self._claims.forget(topic_id)
        return outcomes

    def _decide(self, records: Callable[[Image], Sequence[object]]) -> Future[None]:
        return self._quorum.decide(lambda image: Result(records(image), None))

    def _is_ready(self, image: Image, topic_id: Uuid) -> bool:
        mirror, topic = image.links.mirrors.get(topic_id), image.topics_by_id.get(topic_id)
        if mirror is None or topic is None or mirror.state != MirrorState.PROMOTING:
            return False
        leaders = [(one.leader, one.leader_epoch) for one in topic.partitions]
        return self._claims.ends(topic_id, mirror.promotion_id, leaders, self._env.monotonic_ms()) is not None

    def _create(self, image: Image, request: ChangeLinkRequest) -> Result[Sequence[str]]:
        selection = TopicSelection(request.topics or (), request.exclude or ())
        selection.check()
        _check_name(request.name)
        configs = altered({}, {row.name: row.value for row in request.configs})
        _check_connection(configs)
        if not request.source_cluster_id:
            raise ApiError(ErrorCode.INVALID_REQUEST, "the source has no cluster id")
        link = LinkRecord(
            link_id=self._env.random.randbytes(16),
            name=request.name,
            source_cluster_id=request.source_cluster_id,
            origins=request.origins,
            topics=selection.topics,
            exclude=selection.exclude,
            configs=link_decisions.config_rows(configs),
        )
        mirrored = [topic for topic in request.source_topics if selection.matches(topic)]
        first = self._enable(image)
        created = link_decisions.create_link(image, link, self._cluster_id, mirrored)
        return created._replace(records=[*first, *created.records])

    def _alter(self, image: Image, request: ChangeLinkRequest) -> Result[Sequence[str]]:
        def configs(link: LinkRecord) -> dict[str, str]:
            topics = link.topics if request.topics is None else request.topics
            TopicSelection(topics, link.exclude if request.exclude is None else request.exclude).check()
            new = altered(configs_of(link), {row.name: row.value for row in request.configs})
            _check_connection(new)
            return new

        return link_decisions.alter_link(
            image, request.name, request.topics, request.exclude, configs, request.source_cluster_id
        )

    def _update(self, image: Image, request: UpdateMirrorsRequest) -> Result[list[MirrorOutcome]]:
        link = image.links.links.get(request.link_id)
        if link is None:
            raise ApiError(ErrorCode.RESOURCE_NOT_FOUND, "the link was deleted")
        selection = TopicSelection(link.topics, link.exclude)
        found = [
            SourceTopic(row.name, row.source_topic_id, row.partitions, {one.name: one.value for one in row.configs})
            for row in request.topics
            # It may have been altered since they were looked up.
            if selection.matches(row.name) or row.name in image.topics
        ]
        return link_decisions.update_mirrors(
            image,
            request.link_id,
            found,
            number(configs_of(link), REPLICATION_FACTOR),
            number(configs_of(link), PARTITIONS_MAX),
            self._placer(image),
            self._check_topic_configs,
            self._admit,
            self._check_growth,
            self._new_topic_id,
            # Epochs grow by one with a record, so none that was ever given out is as high as the log's end.
            min(self._next_offset(), EPOCH_MAX),
        )

    async def _fail_over(self, name: str, topics: Sequence[str] | None) -> Sequence[str]:
        """Stop the mirrors at once, in decisions of a bounded size."""
        chosen = link_decisions.chosen_mirrors(self._quorum.image, name, topics)
        names = [self._quorum.image.topics_by_id[mirror.topic_id].name for mirror in chosen]
        left = [mirror.topic_id for mirror in chosen]
        while left:

            def stop(image: Image) -> list[object]:
                records: list[object] = []
                while left and len(records) < RECORDS_PER_DECISION:
                    topic_id = left.pop()
                    if image.links.is_mirroring(topic_id):
                        records += link_decisions.stop_mirror(image, topic_id)
                return records

            await self._decide(stop)
        for mirror in chosen:
            self._claims.forget(mirror.topic_id)
        return names


def _check_name(name: str) -> None:
    check_topic_name(name)
    if len(name) > LINK_NAME_LENGTH_MAX:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"a link's name has at most {LINK_NAME_LENGTH_MAX} characters")


def _check_connection(configs: Mapping[str, str]) -> None:
    try:
        read_settings(configs)
    except ValueError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None
