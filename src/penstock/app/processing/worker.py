"""Runs an application's subscriptions in one process, and restarts those that fail, until it is stopped."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException

from penstock.app.processing.kafka import KafkaSink, KafkaSource, ShareSource
from penstock.app.processing.share_runner import ShareSubscriptionRunner
from penstock.app.processing.subscription_runner import SubscriptionRunner
from penstock.app.processing.transport import Clock
from penstock.app.subscription import Subscription
from penstock.client.application.admin import Admin
from penstock.client.application.connection import Connection
from penstock.client.application.errors import PenstockError, UnknownTopic

if TYPE_CHECKING:
    from penstock.app.application import App

RESTART_BACKOFF_S = 0.5
RESTART_BACKOFF_S_MAX = 15.0

logger = logging.getLogger("penstock.app")

AnyRunner = SubscriptionRunner | ShareSubscriptionRunner


class Worker:
    """Runs an application's subscriptions. `identity` stays the same when this worker is restarted."""

    def __init__(self, app: App, identity: str, clock: Clock | None = None, *, knows_ends: bool = False) -> None:
        self._app = app
        self._identity = identity
        self._clock = clock or Clock()
        self._knows_ends = knows_ends
        self._stopping = asyncio.Event()
        self._runners: dict[str, AnyRunner] = {}
        self._restarting: set[str] = set()

    @property
    def is_healthy(self) -> bool:
        """Whether no subscription is waiting to be restarted after a failure."""
        return not self._restarting

    async def run(self, state: Any) -> None:
        """Run until `stop`. Raises PenstockError if the application's types cannot be registered."""
        if self._app.subscriptions and not self._stopping.is_set():
            await asyncio.to_thread(self._app.register_schemas)
            await asyncio.to_thread(self._check_topics)
        async with asyncio.TaskGroup() as tasks:
            for subscription in self._app.subscriptions:
                tasks.create_task(self._keep_running(subscription, state))

    def stop(self) -> None:
        """Finish running calls, commit, and let `run` return."""
        self._stopping.set()
        for runner in self._runners.values():
            runner.stop()

    def make_runner(self, subscription: Subscription, state: object, connection: Connection | None = None) -> AnyRunner:
        """Make a runner of a subscription, with connections of its own."""
        connection, counters = connection or self._app.connection, self._app.counters[subscription.name]
        caller = self._app.make_handler_caller(subscription, state, connection)
        if subscription.share:
            shared = ShareSource(connection, subscription, has_pauses=not self._knows_ends)
            return ShareSubscriptionRunner(subscription, caller, shared, counters)
        source = KafkaSource(connection, subscription, knows_ends=self._knows_ends)
        transactional_id = f"{subscription.group}-{subscription.name}-{self._identity}"
        sink = KafkaSink(connection, source, subscription, transactional_id if subscription.exactly_once else None)
        return SubscriptionRunner(subscription, caller, source, sink, self._clock, counters)

    async def _keep_running(self, subscription: Subscription, state: Any) -> None:
        name = subscription.name
        pause_s = RESTART_BACKOFF_S
        while not self._stopping.is_set():
            runner = self._runners[name] = self.make_runner(subscription, state)
            started = asyncio.get_running_loop().time()
            try:
                await runner.run()
                return
            except (PenstockError, KafkaException) as error:
                if asyncio.get_running_loop().time() - started > RESTART_BACKOFF_S_MAX:
                    pause_s = RESTART_BACKOFF_S
                self._restarting.add(name)
                self._app.counters[name].restarts += 1
                logger.error("%s restarts in %g s: %s", name, pause_s, error)
            finally:
                del self._runners[name]
            # A stop ends the wait.
            await Clock().wait(self._stopping, asyncio.get_running_loop().time() + pause_s)
            pause_s = min(pause_s * 2, RESTART_BACKOFF_S_MAX)
            self._restarting.discard(name)

    def _check_topics(self) -> None:
        """Log topics that do not exist, which are read once they do; create the topics for dead letters."""
        with Admin(self._app.connection) as admin:
            for subscription in self._app.subscriptions:
                for topic in subscription.topics:
                    if topic.startswith("^"):
                        continue
                    try:
                        self._check_topic(admin, subscription, topic)
                    except PenstockError as error:
                        logger.warning("the topics of %s cannot be checked: %s", subscription.name, error)
                        return

    @staticmethod
    def _check_topic(admin: Admin, subscription: Subscription, topic: str) -> None:
        try:
            admin.describe_topic(topic)
        except UnknownTopic as error:
            logger.warning("%s has nothing to read yet: %s", subscription.name, error)
        letters = subscription.policy.dead_letter_topic(topic)
        if letters is not None:
            admin.create_topic(letters, exist_ok=True)
