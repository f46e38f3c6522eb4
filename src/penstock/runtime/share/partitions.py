"""The share-partitions that this broker leads, by group, and the sessions of the members that fetch from them.

A share-partition is loaded from the share coordinator when a member first requests it, and dropped when this broker no
longer leads the partition, when the stored state turns out to be another's, or when its group has neither sessions nor
sessionless members here any more, and no member holds records: the next request loads what was stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from penstock.config.node import NodeSettings
from penstock.config.offset_reset import BY_DURATION, EARLIEST, LATEST, OffsetReset
from penstock.core.metadata.image import Image, ResourceType
from penstock.core.share.sessions import SessionlessMembers, ShareSession, ShareSessions, TopicIdPartition
from penstock.core.share.state import NO_OFFSET, ShareKey
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.env import Env
from penstock.runtime.replication.partition import Partition
from penstock.runtime.replication.partitions import Partitions
from penstock.runtime.share.counters import ShareCounters
from penstock.runtime.share.dead_letter_topics import DeadLetterTopics
from penstock.runtime.share.led_partition import LedSharePartition, as_client_error
from penstock.runtime.share.persister import Persister
from penstock.runtime.share.settings import ShareGroupSettings, settings_of
from penstock.runtime.share.tier_window import Tier

# How often it is checked whether share-partitions that sessionless members used are still in use.
SWEEP_S = 60.0
# Every fetch looks at its group's settings several times.
GROUPS_REMEMBERED_MAX = 1_000


class SharePartitions:
    """What handlers of ShareFetch and ShareAcknowledge call. `settings` returns the node's settings as they are now."""

    def __init__(
        self,
        env: Env,
        image: Image,
        partitions: Partitions,
        persister: Persister,
        dead_letters: DeadLetterTopics,
        settings: Callable[[], NodeSettings],
        tier: Tier | None = None,
    ) -> None:
        self._env = env
        self._tier = tier
        self._image = image
        self._partitions = partitions
        self._persister = persister
        self._dead_letters = dead_letters
        self._settings = settings
        self.counters = ShareCounters()
        self.sessions = ShareSessions(settings().group_share_max_share_sessions)
        self._takers = SessionlessMembers(settings().group_share_max_share_sessions)
        self._sweep: asyncio.TimerHandle | None = None
        self._is_closed = False
        # With the settings of the node and the group that they were derived from.
        self._group_settings: dict[str, tuple[NodeSettings, dict[str, str], ShareGroupSettings]] = {}
        self._led: dict[ShareKey, LedSharePartition] = {}
        self._loading: dict[tuple[ShareKey, int], asyncio.Future[LedSharePartition]] = {}
        partitions.on_resigned(self._forget)
        partitions.on_removed(self._forget)
        partitions.on_leader(self._forget_earlier)

    def settings_of(self, group: str) -> ShareGroupSettings:
        """The settings of a group as they are now."""
        node, own = self._settings(), self._image.overrides(ResourceType.GROUP, group)
        known = self._group_settings.get(group)
        if known is None or known[0] is not node or known[1] != own:
            if len(self._group_settings) >= GROUPS_REMEMBERED_MAX:
                self._group_settings.clear()
            known = self._group_settings[group] = node, {**own}, settings_of(self._image, node, group)
        return known[2]

    def get(
        self, group: str, place: TopicIdPartition, offset_reset: OffsetReset | None = None
    ) -> LedSharePartition | asyncio.Future[LedSharePartition]:
        """A share-partition, or a future of it while it is loaded; raises ApiError if this broker does not lead it.

        `offset_reset` is where it starts if it never did, and the group does not say.
        """
        partition = self._partitions.lookup("", place.topic_id, place.partition, by_id=True)
        if self._is_closed:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker is being stopped")
        key = ShareKey(group, *place)
        found = self._led.get(key)
        if found is not None and found.leader_epoch == partition.leader_epoch:
            return found
        name = (key, partition.leader_epoch)
        loading = self._loading.get(name)
        if loading is None:
            loading = self._loading[name] = asyncio.get_running_loop().create_future()
            work = self._load(key, partition, partition.leader_epoch, loading, offset_reset)
            self._env.spawn(work, f"load share state of {partition.name}")
        return loading

    def check_surely_led(self, led: LedSharePartition) -> None:
        """Raises NOT_LEADER_OR_FOLLOWER if another broker may hand out these records by now."""
        leadership = self._partitions.leadership
        if leadership is not None and not leadership.is_sure(led.partition):
            why = f"this broker has contact neither with the controller nor with all followers of {led.partition.name}"
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{why}, and may no longer lead it")

    async def loaded(self, group: str, place: TopicIdPartition) -> LedSharePartition:
        """The same, once it is loaded."""
        found = self.get(group, place)
        return found if isinstance(found, LedSharePartition) else await asyncio.shield(found)

    async def _load(
        self,
        key: ShareKey,
        partition: Partition,
        epoch: int,
        loading: asyncio.Future[LedSharePartition],
        offset_reset: OffsetReset | None,
    ) -> None:
        try:
            led = await self._read(key, partition, epoch, offset_reset or OffsetReset(LATEST))
        except ApiError as error:
            loading.set_exception(as_client_error(error))
            # There may be no request left that waits for it.
            loading.exception()
        else:
            if partition.leader_epoch == epoch and partition.is_leader:
                self._led[key] = led
            else:
                led.close()
            loading.set_result(led)
        finally:
            self._loading.pop((key, epoch), None)
            if not loading.done():
                loading.cancel()

    async def _read(
        self, key: ShareKey, partition: Partition, epoch: int, offset_reset: OffsetReset
    ) -> LedSharePartition:
        began_ms = self._env.monotonic_ms()
        stored = await self._persister.read(*key, epoch)
        settings = self.settings_of(key.group)
        if stored.start_offset == NO_OFFSET:
            start = await self._first_offset(partition, settings.offset_reset or offset_reset)
            # The next leader starts here too, whatever is appended until then. Nothing is finished from there on, so
            # the lag is known (Kafka leaves it unknown until the first record is finished).
            await self._persister.write(
                *key, stored.state_epoch, epoch, start, 0, (), stored.delays, stored.write_number
            )
            stored = stored._replace(start_offset=start)
        led = LedSharePartition(
            self._env,
            key,
            partition,
            self._persister,
            stored,
            lambda: self.settings_of(key.group),
            self._dead_letters,
            self.counters,
            self._drop,
            self._drop_if_unused,
            self._tier,
        )
        await led.prepare(stored.delays.start)
        self.counters.loads += 1
        self.counters.load_ms += self._env.monotonic_ms() - began_ms
        return led

    async def _first_offset(self, partition: Partition, reset: OffsetReset) -> int:
        if partition.leading is None:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker no longer leads {partition.name}")
        log = partition.log
        if reset.kind == EARLIEST:
            return log.start_offset
        if reset.kind == BY_DURATION:
            timestamp, found = self._env.now_ms() - reset.duration_ms, None
            if self._tier is not None and log.start_offset < log.local_start_offset:
                found = await self._tier.find_time(partition, timestamp)
            found = found or log.offset_for_timestamp(timestamp)
            if found is not None:
                return min(found.offset, partition.high_watermark)
        return partition.high_watermark

    def led(self) -> Iterable[LedSharePartition]:
        """The share-partitions that are loaded here."""
        return self._led.values()

    async def end_session(self, session: ShareSession) -> None:
        """A member's session ends: others get what it held."""
        if not self.sessions.end(session):
            return
        held = [led for key, led in self._led.items() if key.group == session.group]
        await asyncio.gather(*(led.release(session.member) for led in held), return_exceptions=True)
        await self._drop_unused(session.group)

    def taker_seen(self, group: str, member: str, owner: str | None) -> None:
        """A member requests records without a session; raises ApiError if there are too many."""
        self._takers.seen(group, member, self._env.monotonic_ms(), owner)
        self.sweep_later()

    def sweep_later(self) -> None:
        """To be called when a share-partition is used without a session: it is dropped when no member uses it."""
        if self._sweep is None and not self._is_closed:
            self._sweep = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep_unused)

    def _sweep_unused(self) -> None:
        self._sweep = None
        self._takers.forget(self._env.monotonic_ms())
        for group in {key.group for key in self._led if not self._is_used(key.group)}:
            self._env.spawn(self._drop_unused(group), f"drop share state of {group}")
        if self._led:
            self.sweep_later()

    def _is_used(self, group: str) -> bool:
        return self.sessions.has_group(group) or self._takers.has_group(group)

    async def _drop_unused(self, group: str) -> None:
        led = [one for key, one in self._led.items() if key.group == group]
        if not self._is_used(group):
            await asyncio.gather(*(one.settled() for one in led))
        for one in led:
            self._drop_if_unused(one)
        if any(self._led.get(one.key) is one for one in led):
            self.sweep_later()

    def _drop_if_unused(self, led: LedSharePartition) -> None:
        """Forget a share-partition whose group has gone, once its dead letters are written."""
        if not self._is_used(led.key.group) and not led.is_busy:
            self._drop(led)

    def session_closed(self, session: ShareSession) -> None:
        """The connection of a session has closed."""
        self._env.spawn(self.end_session(session), f"end share session of {session.group}")

    def _forget(self, partition: Partition) -> None:
        for led in [*self._led.values()]:
            if led.partition is partition:
                self._drop(led)

    def _forget_earlier(self, partition: Partition) -> None:
        for led in [*self._led.values()]:
            if led.partition is partition and led.leader_epoch != partition.leader_epoch:
                self._drop(led)

    def _drop(self, led: LedSharePartition) -> None:
        if self._led.get(led.key) is led:
            del self._led[led.key]
        led.close()

    def close(self) -> None:
        """This broker stops; requests that wait fail."""
        self._is_closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        for led in [*self._led.values()]:
            self._drop(led)
