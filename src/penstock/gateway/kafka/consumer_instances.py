"""Consumer group members in this process that callers control, closed when idle for too long."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from confluent_kafka import KafkaException

from penstock.gateway.kafka.errors import ARGUMENT_ERRORS, checked_call, problem_of
from penstock.gateway.kafka.group_consumer import GroupConsumer
from penstock.gateway.kafka.memory import SMALL_BUFFERS
from penstock.gateway.kafka.records import ReadRecord
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.web.problem import Problem
from penstock.gateway.web.quotas import CallerQuota

log = logging.getLogger(__name__)

TICK_S = 1.0
# librdkafka requires it to be at least the session timeout.
POLL_INTERVAL_MS_MIN = 60_000

Result = TypeVar("Result")
CheckRead = Callable[[Iterable[str]], Awaitable[None]]


def instance_quota(settings: GatewaySettings) -> CallerQuota:
    """The quota of consumer instances of one gateway."""
    return CallerQuota("consumer instances", settings, "instances")


@dataclass(eq=False, slots=True)
class Instance:
    """A group member, with a lock that serializes its use."""

    group: str
    name: str
    consumer: GroupConsumer
    options: dict[str, Any]
    caller: str
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    used_at: float = field(default_factory=time.monotonic)
    subscribed: bool = False
    manual: bool = False


class ConsumerInstances:
    """All consumer instances of this gateway, by group and name."""

    def __init__(self, settings: GatewaySettings, quota: CallerQuota, check_read: CheckRead | None) -> None:
        """`quota` is shared by all callers; `check_read` raises Problem if topics may not be read."""
        self._check_read = check_read
        self._settings = settings
        # One thread per instance: a poll may take a minute, and must not delay other instances' polls.
        self._threads = ThreadPoolExecutor(settings.instances_max, thread_name_prefix="instance")
        self._instances: dict[tuple[str, str], Instance] = {}
        self._quota = quota
        self._keeper: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start closing idle instances."""
        self._keeper = asyncio.create_task(self._keep(), name="instances")

    async def stop(self) -> None:
        """Close all instances."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        for instance in list(self._instances.values()):
            await self.remove(instance)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def get(self, group: str, name: str) -> Instance | None:
        """An existing instance, or None."""
        return self._instances.get((group, name))

    def create(
        self, group: str, name: str, options: dict[str, object], properties: dict[str, object], caller: str
    ) -> Instance:
        """Create an instance for a caller; 409 if the name is taken, 429 if there are too many."""
        if (group, name) in self._instances:
            raise Problem(40902, f"group {group} already has an instance {name}", "choose another name")
        self._quota.take(caller)
        try:
            consumer = checked_call(
                GroupConsumer,
                self._settings.client(
                    **{
                        "group.id": group,
                        "enable.auto.commit": False,
                        "auto.offset.reset": "earliest",
                        "allow.auto.create.topics": False,
                        "max.poll.interval.ms": max(POLL_INTERVAL_MS_MIN, int(self._settings.instance_idle_s * 2000)),
                        **SMALL_BUFFERS,
                        **properties,
                    }
                ),
                self._settings.budgets.record_bytes_max,
            )
        except BaseException:
            self._quota.release(caller)
            raise
        instance = self._instances[group, name] = Instance(group, name, consumer, options, caller)
        return instance

    async def use(self, instance: Instance, work: Callable[[GroupConsumer], Result]) -> Result:
        """Run work with the consumer in a thread, after the work of earlier callers."""
        async with instance.lock:
            instance.used_at = time.monotonic()
            if self._instances.get((instance.group, instance.name)) is not instance:
                raise Problem(40403, f"the instance {instance.name} was closed", "create another one")
            try:
                return await self._run(work, instance.consumer)
            except (KafkaException, *ARGUMENT_ERRORS) as error:
                raise problem_of(error) from None
            except RuntimeError as error:
                raise Problem(40902, str(error), "create another instance") from None
            finally:
                instance.used_at = time.monotonic()

    async def check_readable(self, records: Sequence[ReadRecord]) -> None:
        """403 if the right to read these was revoked after they had been fetched."""
        if self._check_read is not None and records:
            await self._check_read({record.topic for record in records})

    async def remove(self, instance: Instance) -> None:
        """Leave the group and close the consumer."""
        if self._instances.pop((instance.group, instance.name), None) is None:
            return
        async with instance.lock:
            try:
                await self._run(GroupConsumer.close, instance.consumer)
            except (KafkaException, RuntimeError) as error:
                log.warning("closing a member of %s: %s", instance.group, error)
            finally:
                # Until here it uses threads and memory, so the quota is released only now.
                self._quota.release(instance.caller)

    async def _run(self, work: Callable[[GroupConsumer], Result], consumer: GroupConsumer) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, consumer)

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            for instance in list(self._instances.values()):
                if instance.lock.locked():
                    continue
                if now - instance.used_at > self._settings.instance_idle_s:
                    await self.remove(instance)
                    continue
                async with instance.lock:
                    try:
                        await self._run(GroupConsumer.idle, instance.consumer)
                    except (KafkaException, RuntimeError) as error:
                        log.warning("a member of %s: %s", instance.group, error)
