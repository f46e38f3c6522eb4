"""One link on one broker: mirrors the partitions led here, and takes part in promotions.

A link is run by every broker. Each mirrors what it leads; one of them, chosen by the link's id among the brokers that
are alive, looks for new topics and partitions at the source. Two may do so for a moment, which only has the controller
decide the same twice. Whatever happens to the source or to recorded settings, `run` continues: the link shows the
problem, and everything is tried again after a pause.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any
from zlib import crc32

from penstock.client.failures import NoAnswer
from penstock.client.operations.routing import TryAgain
from penstock.config.link import (
    FETCH_MAX_BYTES,
    GROUPS_SYNC_MS,
    REFRESH_MS,
    check_link_configs,
    copied_configs,
    group_patterns,
    number,
)
from penstock.core.link.mirror import BACKOFF_FIRST_MS, BACKOFF_MAX_MS, UNKNOWN
from penstock.core.link.selection import GroupSelection, TopicSelection
from penstock.core.metadata.image import Image
from penstock.core.metadata.link_decisions import is_next_producer_id
from penstock.core.metadata.links import MirrorState, configs_of
from penstock.model.errors import ApiError, error_code
from penstock.model.ids import TopicPartition, Uuid
from penstock.runtime.env import Env
from penstock.runtime.link.fetcher import LinkCounters, Mirror, SourceFetcher
from penstock.runtime.link.groups import GroupSync
from penstock.runtime.link.source import LATEST, Source
from penstock.runtime.replication.partitions import Partitions
from penstock.wire.messages.metadata_records import LinkRecord, MirrorTopicRecord
from penstock.wire.messages.update_mirrors import (
    PromotionClaim,
    SourceTopic,
    SourceTopicConfig,
    UpdateMirrorsRequest,
    UpdateMirrorsResponse,
)

TICK_S = 0.5
PROMOTING_TICK_S = 0.05
# Changes of the metadata that come at once are looked at once.
WAKE_PAUSE_S = 0.01
# Claims are repeated, as they age.
CLAIM_EVERY_MS = 1_000
# No more often than this is the source's metadata read again because a leader has moved.
REFRESH_PAUSE_MS = 200
ENDS_AT_ONCE = 50
# A promotion waits no longer than this for the offsets of groups.
GROUPS_S = 15.0
TOPICS_PER_UPDATE = 200
# What a link does besides mirroring.
NEW_TOPICS, PRODUCER_IDS, PROMOTIONS = "new topics", "producer ids", "promotions"

logger = logging.getLogger("penstock.links")

# Sends a request to the active controller; raises ApiError.
AskController = Callable[[Any], Awaitable[Any]]


class LinkRunner:
    """A link as this broker runs it."""

    def __init__(
        self,
        env: Env,
        node_id: int,
        image: Image,
        partitions: Partitions,
        ask_controller: AskController,
        broker_epoch: Callable[[], int],
        link_id: Uuid,
        groups: GroupSync | None = None,
    ) -> None:
        self._env = env
        self._node_id = node_id
        self._image = image
        self._partitions = partitions
        self._ask_controller = ask_controller
        self._broker_epoch = broker_epoch
        self.link_id = link_id
        self._groups = groups
        self._groups_synced_ms = -1
        # Why offsets of groups do not come along: by group, or for all under no name.
        self.refused_groups: dict[str, str] = {}
        self.counters = LinkCounters()
        # Why the link as a whole does not work; empty while it does.
        self.problem = ""
        # By topic: why there is no mirror of it, or of all its partitions.
        self.refused: dict[str, str] = {}
        # What is tried again while mirroring continues, and why.
        self.delayed: dict[str, str] = {}
        # By topic: why it is not promoted yet, whatever its partitions have.
        self.withheld: dict[Uuid, str] = {}
        self.mirrors: dict[TopicPartition, Mirror] = {}
        self._source: Source | None = None
        self._configs: dict[str, str] = {}
        self._fetchers: dict[int, SourceFetcher] = {}
        self._refreshed_ms = -1
        # The last promotion that was requested before the source's metadata was read.
        self._refreshed_for = -1
        self._must_refresh = False
        self._claimed: dict[TopicPartition, tuple[int, int, int]] = {}
        self._claimed_ms = 0
        self._failures = 0
        self._wake = asyncio.Event()
        self._task = env.spawn(self._run(), "a cluster link")

    def wake(self) -> None:
        """The metadata changed."""
        self._wake.set()

    def close(self) -> None:
        """Stop."""
        self._task.cancel()
        self._disconnect()

    async def _run(self) -> None:
        while True:
            pause_s = TICK_S
            try:
                link = self._image.links.links.get(self.link_id)
                if link is not None:
                    pause_s = await self._tick(link)
                    self.problem, self._failures = "", 0
            except Exception as error:  # noqa: BLE001 - neither a source nor recorded settings may end the link
                self._failures += 1
                self._note(error)
                self._disconnect()
                pause_s = min(BACKOFF_MAX_MS, BACKOFF_FIRST_MS << min(self._failures - 1, 10)) / 1000
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), pause_s)
            await asyncio.sleep(WAKE_PAUSE_S)
            if self._failures:
                # Changes of the metadata come often, and a source that does not answer is not asked as often.
                await asyncio.sleep(pause_s)

    def _note(self, error: Exception) -> None:
        self.problem = str(error) or type(error).__name__
        if self._failures == 1:
            expected = isinstance(error, NoAnswer | ApiError | ValueError | TimeoutError)
            link = self._image.links.links.get(self.link_id)
            name = link.name if link is not None else ""
            logger.warning("link %s: %s", name, self.problem, exc_info=None if expected else error)

    def _disconnect(self) -> None:
        for fetcher in self._fetchers.values():
            fetcher.close()
        self._fetchers.clear()
        if self._source is not None:
            self._source.close()
            self._source = None

    async def _tick(self, link: LinkRecord) -> float:
        """Do what is due; returns when to look again, in seconds."""
        configs = configs_of(link)
        if self._source is None or configs != self._configs:
            await self._connect(link, configs)
        source = self._source
        assert source is not None
        mirrors = self._image.links.mirrors_of(self.link_id)
        promotion_id = max((one.promotion_id for one in mirrors if one.state == MirrorState.PROMOTING), default=-1)
        is_promoting = promotion_id >= 0
        if link.is_paused and not is_promoting:
            self._assign(source, {}, configs)
            self.withheld = {}
            return TICK_S
        age_ms = self._env.monotonic_ms() - self._refreshed_ms
        is_due = self._refreshed_ms < 0 or age_ms >= (
            REFRESH_PAUSE_MS if self._must_refresh else number(configs, REFRESH_MS)
        )
        # What was known before a promotion was requested may lack partitions.
        is_due = is_due or promotion_id > self._refreshed_for
        if is_due:
            self._must_refresh = False
            await source.refresh()
            self._refreshed_ms = self._env.monotonic_ms()
            self._refreshed_for = max(self._refreshed_for, promotion_id)
        self._assign(source, self._led(mirrors, source), configs)
        if not self._is_coordinator():
            self.refused = {}
            self.delayed.pop(NEW_TOPICS, None)
        elif is_due:
            await self._attempt(NEW_TOPICS, self._discover(link, source, configs))
        await self._attempt(PRODUCER_IDS, self._report_producer_ids())
        if self._is_coordinator():
            await self._sync_groups(source, mirrors, configs)
        if is_promoting:
            await self._attempt(PROMOTIONS, self._promote(source, mirrors))
        else:
            self.delayed.pop(PROMOTIONS, None)
            self.withheld = {}
        return PROMOTING_TICK_S if is_promoting else TICK_S

    async def _attempt(self, what: str, work: Awaitable[None]) -> None:
        """Do what is done again later if it fails, and stops no mirror; the link shows why."""
        try:
            await work
        except (NoAnswer, ApiError, TryAgain, TimeoutError) as error:
            self.delayed[what] = str(error) or type(error).__name__
        else:
            self.delayed.pop(what, None)

    async def _connect(self, link: LinkRecord, configs: Mapping[str, str]) -> None:
        self._disconnect()
        self._configs = dict(configs)
        # They may have been recorded by another version.
        check_link_configs(configs)
        source = Source(self._env, configs)
        source.cluster_id = link.source_cluster_id
        await source.open()
        self._source = source
        self._refreshed_ms = -1

    def _is_coordinator(self) -> bool:
        alive = sorted(broker.broker_id for broker in self._image.brokers.values() if broker.active)
        return bool(alive) and alive[crc32(self.link_id) % len(alive)] == self._node_id

    def _led(self, mirrors: Iterable[MirrorTopicRecord], source: Source) -> dict[TopicPartition, Mirror]:
        """The mirrors of the partitions that are led here and not promoted."""
        led: dict[TopicPartition, Mirror] = {}
        for record in mirrors:
            topic = self._image.topics_by_id.get(record.topic_id)
            if topic is None or record.state == MirrorState.STOPPED:
                continue
            theirs = source.topics.get(topic.name)
            for index in range(len(topic.partitions)):
                partition = self._partitions.get(topic.name, index)
                if partition is None or partition.leading is None or partition.topic_id != record.topic_id:
                    continue
                mirror = self.mirrors.get(partition.name)
                if mirror is None or mirror.partition is not partition or not mirror.is_led:
                    # What was known, or claimed, in an earlier epoch does not count in this one.
                    mirror = Mirror(partition, record.source_topic_id, partition.leader_epoch)
                led[partition.name] = mirror
                if theirs is None:
                    mirror.state.problem = f"the source has no topic {topic.name}, or the link may not see it"
                elif theirs.topic_id != record.source_topic_id:
                    mirror.state.fail(
                        f"topic {topic.name} was deleted at the source and created anew: fail over to keep what is "
                        "here, or delete it here to mirror the new one"
                    )
        return led

    def _assign(self, source: Source, led: Mapping[TopicPartition, Mirror], configs: Mapping[str, str]) -> None:
        """Have each mirror fetched from its leader at the source, and from no other."""
        self.mirrors = dict(led)
        wanted: dict[int, dict[TopicPartition, Mirror]] = {}
        for name, mirror in led.items():
            leader = source.leader(name)
            if leader is None:
                if name.topic in source.topics:
                    mirror.state.problem = "it has no leader at the source"
                    self._must_refresh = True
            elif not mirror.state.failure:
                wanted.setdefault(leader[0], {})[name] = mirror
        for broker_id, fetcher in [*self._fetchers.items()]:
            kept = wanted.get(broker_id, {})
            for name in [name for name, mirror in fetcher.mirrors.items() if kept.get(name) is not mirror]:
                fetcher.remove(name)
            if not kept:
                fetcher.close()
                del self._fetchers[broker_id]
        for broker_id, mirrors in wanted.items():
            found = self._fetchers.get(broker_id)
            if found is None:
                found = self._fetchers[broker_id] = SourceFetcher(
                    self._env,
                    self._partitions,
                    source,
                    broker_id,
                    number(configs, FETCH_MAX_BYTES),
                    self.counters,
                    self._image.links.is_mirroring,
                    self._moved,
                )
            for name, mirror in mirrors.items():
                if name not in found.mirrors:
                    found.add(mirror)

    def _moved(self) -> None:
        self._must_refresh = True
        self._wake.set()

    async def _discover(self, link: LinkRecord, source: Source, configs: Mapping[str, str]) -> None:
        """Have the controller create what is missing here of the source's topics.

        A paused link only gets the partitions that were added to topics which are being promoted.
        """
        selection = TopicSelection(link.topics, link.exclude)
        topics = self._image.topics
        new: list[str] = []
        grown: list[str] = []
        for name, theirs in source.topics.items():
            here = topics.get(name)
            mirror = self._image.links.mirrors.get(here.topic_id) if here is not None else None
            if link.is_paused and (mirror is None or mirror.state != MirrorState.PROMOTING):
                continue
            if here is None:
                if not theirs.is_internal and theirs.leaders and selection.matches(name):
                    new.append(name)
            elif mirror is None or mirror.link_id != link.link_id:
                if selection.matches(name) and not theirs.is_internal:
                    grown.append(name)
            elif len(theirs.leaders) > len(here.partitions) and (
                # The controller refuses it for a topic that was promoted, which is shown unless it is excluded.
                mirror.state != MirrorState.STOPPED
                or (mirror.source_topic_id == theirs.topic_id and selection.matches(name))
            ):
                grown.append(name)
        described, self.refused = await source.topic_configs(new, copied_configs(configs))
        names = [name for name in new if name not in self.refused] + grown
        for first in range(0, len(names), TOPICS_PER_UPDATE):
            some = [
                SourceTopic(
                    name,
                    source.topics[name].topic_id,
                    len(source.topics[name].leaders),
                    [SourceTopicConfig(*item) for item in described.get(name, {}).items()],
                )
                for name in names[first : first + TOPICS_PER_UPDATE]
            ]
            response = await self._update(topics=some)
            for row in response.topics:
                if row.error_code:
                    self.refused[row.name] = row.error_message or ""
        if new:
            self._wake.set()

    async def _sync_groups(
        self, source: Source, mirrors: Iterable[MirrorTopicRecord], configs: Mapping[str, str]
    ) -> None:
        """Bring the offsets of groups along, if that is due. What goes wrong with it stops no mirror."""
        patterns = group_patterns(configs)
        now_ms = self._env.monotonic_ms()
        is_due = self._groups_synced_ms < 0 or now_ms - self._groups_synced_ms >= number(configs, GROUPS_SYNC_MS)
        if not patterns or self._groups is None or not is_due:
            return
        self._groups_synced_ms = now_ms
        topics = {
            topic.name
            for mirror in mirrors
            if mirror.state != MirrorState.STOPPED
            and (topic := self._image.topics_by_id.get(mirror.topic_id)) is not None
        }
        try:
            async with asyncio.timeout(GROUPS_S):
                self.refused_groups = await self._groups.sync(source, GroupSelection(patterns), topics)
        except (NoAnswer, ApiError, TryAgain, TimeoutError) as error:
            self.refused_groups = {"": str(error) or "the offsets of groups take too long to read"}

    async def _update(self, **fields: Any) -> UpdateMirrorsResponse:
        request = UpdateMirrorsRequest(self._node_id, self._broker_epoch(), self.link_id, **fields)
        response: UpdateMirrorsResponse = await self._ask_controller(request)
        if response.error_code:
            raise ApiError(
                error_code(response.error_code),
                f"the controller refused an update of mirrors: {response.error_message}",
            )
        return response

    async def _report_producer_ids(self) -> None:
        """Have this cluster never give out an id that came with mirrored records."""
        if is_next_producer_id(self._image, self.counters.highest_producer_id):
            await self._update(highest_producer_id=self.counters.highest_producer_id)

    async def _promote(self, source: Source, mirrors: Iterable[MirrorTopicRecord]) -> None:
        """Read the source's ends for what is being promoted, and claim or withdraw."""
        promoting = {one.topic_id: one.promotion_id for one in mirrors if one.state == MirrorState.PROMOTING}
        assert max(promoting.values()) <= self._refreshed_for, "the source's partitions are known since the request"
        self.withheld = {}
        for topic_id in promoting:
            topic = self._image.topics_by_id.get(topic_id)
            theirs = source.topics.get(topic.name) if topic is not None else None
            if topic is not None and theirs is not None and len(theirs.leaders) != len(topic.partitions):
                self.withheld[topic_id] = (
                    f"the source has {len(theirs.leaders)} partitions of {topic.name}, and this cluster "
                    f"{len(topic.partitions)}: it is promoted once there are as many here, or fail over"
                )
                self._must_refresh = True
        due = [mirror for mirror in self.mirrors.values() if mirror.partition.topic_id in promoting]
        for first in range(0, len(due), ENDS_AT_ONCE):
            some = due[first : first + ENDS_AT_ONCE]
            await asyncio.gather(
                *(self._read_end(source, mirror, promoting[mirror.partition.topic_id]) for mirror in some)
            )
        claims: dict[TopicPartition, tuple[int, int, int]] = {}
        for mirror in due:
            partition = mirror.partition
            if not mirror.is_led:
                continue
            promotion_id = promoting[partition.topic_id]
            end = mirror.state.claimed_end(promotion_id, partition.log.end_offset, partition.high_watermark)
            if partition.topic_id in self.withheld:
                end = UNKNOWN
            if end >= 0 or self._claimed.get(partition.name, (0, 0, -1))[2] >= 0:
                claims[partition.name] = (promotion_id, mirror.leader_epoch, end)
        now_ms = self._env.monotonic_ms()
        if claims == self._claimed and now_ms - self._claimed_ms < CLAIM_EVERY_MS:
            return
        former, self._claimed, self._claimed_ms = self._claimed, claims, now_ms
        rows = [
            PromotionClaim(self.mirrors[name].partition.topic_id, name.partition, *claim)
            for name, claim in claims.items()
        ]
        if not rows:
            return
        try:
            await self._update(claims=rows)
        except BaseException:
            # It may have arrived or not, so what was withdrawn has to be withdrawn again.
            self._claimed = {name: former.get(name, claim) if claim[2] < 0 else claim for name, claim in claims.items()}
            raise

    async def _read_end(self, source: Source, mirror: Mirror, promotion_id: int) -> None:
        try:
            end = await source.list_offset(mirror.partition.name, LATEST, lane="")
        except (NoAnswer, ApiError) as error:
            mirror.state.problem = str(error)
            mirror.state.promotion_end = -1
            self._must_refresh = True
            return
        mirror.state.read_end_for(promotion_id, end)
