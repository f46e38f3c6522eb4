"""The links of this broker: starts and stops their runners, and settles partitions that were promoted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from penstock.config.link import shown
from penstock.core.link.mirror import UNKNOWN, MirrorPhase
from penstock.core.metadata.image import Image
from penstock.core.metadata.link_decisions import is_next_producer_id
from penstock.core.metadata.links import MirrorState, configs_of
from penstock.model.errors import ApiError, error_code
from penstock.model.ids import Uuid
from penstock.runtime.env import Env
from penstock.runtime.link.groups import GroupSync
from penstock.runtime.link.runner import AskController, LinkRunner
from penstock.runtime.replication.mirroring import abort_transaction, mirrored_end, open_transactions
from penstock.runtime.replication.partition import Partition
from penstock.runtime.replication.partitions import Partitions
from penstock.wire.messages.describe_links import (
    DescribedLink,
    DescribedLinkConfig,
    DescribedMirrorPartition,
    DescribedMirrorTopic,
)
from penstock.wire.messages.metadata_records import (
    LinkRecord,
    MirrorTopicRecord,
    PartitionChangeRecord,
    RemoveLinkRecord,
)
from penstock.wire.messages.update_mirrors import UpdateMirrorsRequest

SETTLE_S = 0.5
_CHANGES = (LinkRecord, RemoveLinkRecord, MirrorTopicRecord, PartitionChangeRecord)

logger = logging.getLogger("penstock.links")


class Links:
    """Every link of the cluster, as this broker runs it."""

    def __init__(
        self,
        env: Env,
        node_id: int,
        image: Image,
        partitions: Partitions,
        ask_controller: AskController,
        broker_epoch: Callable[[], int],
        groups: GroupSync | None = None,
    ) -> None:
        self._env = env
        self._node_id = node_id
        self._image = image
        self._partitions = partitions
        self._ask_controller = ask_controller
        self._broker_epoch = broker_epoch
        self._groups = groups
        self.runners: dict[Uuid, LinkRunner] = {}
        # The leader epoch in which nothing was left to do for a promoted partition.
        self._settled: dict[tuple[Uuid, int], int] = {}
        self._is_started = False

    def start(self) -> None:
        """Begin, once this broker may lead partitions."""
        self._is_started = True
        self._follow_links()
        self._env.spawn(self._settle(), "settle promoted mirrors")

    def follow(self, records: Sequence[Any]) -> None:
        """Note changes of the metadata."""
        if self._is_started and any(isinstance(record, _CHANGES) for record in records):
            self._follow_links()

    def close(self) -> None:
        """The broker stops."""
        self._is_started = False
        for runner in self.runners.values():
            runner.close()
        self.runners.clear()

    def _follow_links(self) -> None:
        links = self._image.links.links
        for link_id in self.runners.keys() - links.keys():
            self.runners.pop(link_id).close()
        for link_id in links.keys() - self.runners.keys():
            self.runners[link_id] = LinkRunner(
                self._env,
                self._node_id,
                self._image,
                self._partitions,
                self._ask_controller,
                self._broker_epoch,
                link_id,
                self._groups,
            )
        for runner in self.runners.values():
            runner.wake()

    async def _settle(self) -> None:
        """End what transactions a promotion has cut off, and keep the mirrored producer ids from being given out."""
        while self._is_started:
            await asyncio.sleep(SETTLE_S)
            for mirror in [*self._image.links.mirrors.values()]:
                if mirror.state == MirrorState.STOPPED:
                    await self._try_to_settle(mirror)

    async def _try_to_settle(self, mirror: MirrorTopicRecord) -> None:
        try:
            await self._settle_topic(mirror)
        except Exception as error:
            expected = isinstance(error, ApiError)
            logger.warning("a promoted mirror is not settled yet: %s", error, exc_info=None if expected else error)

    async def _settle_topic(self, mirror: MirrorTopicRecord) -> None:
        topic = self._image.topics_by_id.get(mirror.topic_id)
        for index, stopped_epoch in enumerate(mirror.stopped_epochs):
            partition = self._partitions.get(topic.name, index) if topic is not None else None
            if partition is None or partition.leading is None or partition.leader_epoch < stopped_epoch:
                continue
            key = mirror.topic_id, index
            if self._settled.get(key) != partition.leader_epoch:
                await self._settle_partition(partition, stopped_epoch)
                self._settled[key] = partition.leader_epoch

    async def _settle_partition(self, partition: Partition, stopped_epoch: int) -> None:
        mirrored = (entry.producer_id for entry in partition.log.producers.entries)
        highest = max((one for one in mirrored if is_next_producer_id(self._image, one)), default=-1)
        if highest >= 0:
            request = UpdateMirrorsRequest(self._node_id, self._broker_epoch(), highest_producer_id=highest)
            response = await self._ask_controller(request)
            if response.error_code:
                raise ApiError(error_code(response.error_code), response.error_message or "")
        for entry in open_transactions(partition, mirrored_end(partition, stopped_epoch)):
            logger.info("%s: aborting the transaction of producer %d", partition.name, entry.producer_id)
            abort_transaction(partition, entry, self._env.now_ms())

    def describe(self, names: Sequence[str] | None) -> list[DescribedLink]:
        """The links, and of their mirrors the partitions that are led here."""
        links = self._image.links
        return [
            DescribedLink(
                link.name,
                link.link_id,
                link.source_cluster_id,
                link.origins,
                link.topics,
                link.exclude,
                link.is_paused,
                self._problem_of(link.link_id),
                [DescribedLinkConfig(*item) for item in shown(configs_of(link)).items()],
                [self._describe_topic(link, mirror) for mirror in links.mirrors_of(link.link_id)],
            )
            for link in links.links.values()
            if names is None or link.name in names
        ]

    def _problem_of(self, link_id: Uuid) -> str:
        runner = self.runners.get(link_id)
        if runner is None:
            return ""
        refused = [f"topic {name} is not mirrored: {why}" for name, why in sorted(runner.refused.items())[:10]]
        refused += [
            f"offsets of group {name}: {why}" if name else f"offsets of groups: {why}"
            for name, why in sorted(runner.refused_groups.items())[:10]
        ]
        delayed = [f"{what}: {why}" for what, why in sorted(runner.delayed.items())]
        return "; ".join([*([runner.problem] if runner.problem else ()), *delayed, *refused])

    def _describe_topic(self, link: LinkRecord, mirror: MirrorTopicRecord) -> DescribedMirrorTopic:
        topic = self._image.topics_by_id[mirror.topic_id]
        rows = []
        for index in range(len(topic.partitions)):
            partition = self._partitions.get(topic.name, index)
            if partition is not None and partition.leading is not None:
                rows.append(self._describe_partition(link, mirror, partition))
        return DescribedMirrorTopic(topic.name, mirror.state, rows)

    def _describe_partition(
        self, link: LinkRecord, mirror: MirrorTopicRecord, partition: Partition
    ) -> DescribedMirrorPartition:
        index = partition.name.partition
        if mirror.state == MirrorState.STOPPED:
            stopped_epoch = self._image.links.stopped_epoch(mirror.topic_id, index)
            if stopped_epoch is None or partition.leader_epoch < stopped_epoch:
                return DescribedMirrorPartition(
                    index, MirrorPhase.PROMOTING.value, "its leader epoch begins", -1, -1, -1
                )
            end = mirrored_end(partition, stopped_epoch)
            return DescribedMirrorPartition(
                index, MirrorPhase.STOPPED.value, "", 0, UNKNOWN, end, len(open_transactions(partition, end))
            )
        runner = self.runners.get(link.link_id)
        found = runner.mirrors.get(partition.name) if runner is not None else None
        end = partition.log.end_offset
        is_promoting = mirror.state == MirrorState.PROMOTING
        if found is None or runner is None:
            phase = MirrorPhase.PAUSED if link.is_paused else MirrorPhase.INITIALIZING
            problem = runner.problem if runner is not None else ""
            if problem:
                phase = MirrorPhase.FAILED
            return DescribedMirrorPartition(index, phase.value, problem, UNKNOWN, UNKNOWN, end)
        state = found.state
        phase = state.phase(is_paused=link.is_paused, is_promoting=is_promoting)
        reason = state.failure or runner.withheld.get(mirror.topic_id) or state.problem
        if runner.problem:
            phase, reason = MirrorPhase.FAILED, runner.problem
        return DescribedMirrorPartition(index, phase.value, reason, state.lag(end), state.source_end, end)
