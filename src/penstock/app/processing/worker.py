"""One process of an application: its lines, started again after failures, until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException

from penstock.app.lines.kafka import KafkaSink, KafkaSource, ShareSource
from penstock.app.lines.line import Line
from penstock.app.lines.share_line import ShareLine
from penstock.app.lines.transport import Clock
from penstock.app.subscription import Subscription
from penstock.client.application.admin import Admin
from penstock.client.application.connection import Connection
from penstock.client.application.errors import PenstockError, UnknownTopic

if TYPE_CHECKING:
    from penstock.app.application import App

PAUSE_FIRST_S = 0.5
PAUSE_MAX_S = 15.0

logger = logging.getLogger("penstock.app")

AnyLine = Line | ShareLine


class Worker:
    """Runs the lines of an application. `identity` is the same when this worker is started again."""

    def __init__(self, app: App, identity: str, clock: Clock | None = None, *, knows_ends: bool = False) -> None:
        self._app = app
        self._identity = identity
        self._clock = clock or Clock()
        self._knows_ends = knows_ends
        self._stopping = asyncio.Event()
        self._lines: dict[str, AnyLine] = {}
        self._broken: set[str] = set()

    @property
    def is_healthy(self) -> bool:
        """Whether no line is starting again after a failure."""
        return not self._broken

    @property
    def lines(self) -> list[AnyLine]:
        """The lines that run."""
        return list(self._lines.values())

    async def run(self, state: Any) -> None:
        """Run until `stop`. Raises PenstockError if the application's types cannot be registered."""
        if self._app.subscriptions and not self._stopping.is_set():
            await asyncio.to_thread(self._app.register_schemas)
            await asyncio.to_thread(self._check_topics)
        async with asyncio.TaskGroup() as tasks:
            for subscription in self._app.subscriptions:
                tasks.create_task(self._keep_running(subscription, state))

    def stop(self) -> None:
        """Finish what runs, commit it, and end."""
        self._stopping.set()
        for line in self._lines.values():
            line.stop()

    def make_line(self, subscription: Subscription, state: Any, connection: Connection | None = None) -> AnyLine:
        """A line of a subscription, with connections of its own."""
        connection, counters = connection or self._app.connection, self._app.counters[subscription.name]
        runner = self._app.make_runner(subscription, state, connection)
        if subscription.share:
            shared = ShareSource(connection, subscription, has_pauses=not self._knows_ends)
            return ShareLine(subscription, runner, shared, counters)
        source = KafkaSource(connection, subscription, knows_ends=self._knows_ends)
        transactional_id = f"{subscription.group}-{subscription.name}-{self._identity}"
        sink = KafkaSink(connection, source, subscription, transactional_id if subscription.exactly_once else None)
        return Line(subscription, runner, source, sink, self._clock, counters)

    async def _keep_running(self, subscription: Subscription, state: Any) -> None:
        name = subscription.name
        pause_s = PAUSE_FIRST_S
        while not self._stopping.is_set():
            line = self._lines[name] = self.make_line(subscription, state)
            started = asyncio.get_running_loop().time()
            try:
                await line.run()
                return
            except (PenstockError, KafkaException) as error:
                if asyncio.get_running_loop().time() - started > PAUSE_MAX_S:
                    pause_s = PAUSE_FIRST_S
                self._broken.add(name)
                self._app.counters[name].restarts += 1
                logger.error("%s starts again in %g s: %s", name, pause_s, error)
            finally:
                del self._lines[name]
            # Whoever is told to stop does not wait.
            await Clock().wait(self._stopping, asyncio.get_running_loop().time() + pause_s)
            pause_s = min(pause_s * 2, PAUSE_MAX_S)
            self._broken.discard(name)

    def _check_topics(self) -> None:
        """Tell of topics that do not exist, whose records come once they do; create those for dead letters."""
        with Admin(self._app.connection) as admin:
            for subscription in self._app.subscriptions:
                for topic in subscription.topics:
                    if topic.startswith("^"):
                        continue
                    try:
                        self._check_topic(admin, subscription, topic)
                    except PenstockError as error:
                        logger.warning("the topics of %s cannot be looked at: %s", subscription.name, error)
                        return

    @staticmethod
    def _check_topic(admin: Admin, subscription: Subscription, topic: str) -> None:
        try:
            admin.describe_topic(topic)
        except UnknownTopic as error:
            logger.warning("%s has nothing to read: %s", subscription.name, error)
        letters = subscription.policy.dead_letter_topic(topic)
        if letters is not None:
            admin.create_topic(letters, exist_ok=True)
