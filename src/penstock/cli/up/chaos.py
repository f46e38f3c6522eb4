"""`penstock up --chaos`: nodes die and come back under load, next to a count of what that costs.

An idempotent producer writes with `acks=all` to three partitions and a consumer reads along, both confluent-kafka with
ordinary settings. Every few seconds a random node gets a SIGKILL and is started again a moment later. One thread does
it all, a tick at a time.
"""

from __future__ import annotations

import contextlib
import random
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

import click

from penstock.cli.client import client_settings, explain
from penstock.cli.failures import CommandFailure
from penstock.cli.up.chaos_ledger import Ledger
from penstock.cli.up.nodes import Nodes, SupervisedNode

TOPIC = "chaos"
PARTITIONS = 3
TICK_S = 0.02
RECORDS_PER_TICK = 10
OUTSTANDING_MAX = 20_000
FIRST_KILL_S = 3.0
KILL_INTERVAL_S = (3.0, 7.0)
DOWN_S = (0.5, 2.0)
END_TIMEOUT_S = 60.0
TOPIC_TIMEOUT_S = 30.0
LINE_INTERVAL_S = 0.25
PIPE_LINE_INTERVAL_S = 2.0


def run_chaos(cluster: Nodes, duration_s: float | None, look: Callable[[], Iterable[str]] = tuple) -> None:
    """Make trouble until Ctrl-C or the time is up, read to the end, and fail when anything was lost or doubled.

    `look` reports what happened to whatever else runs beside the nodes.
    """
    chaos = Chaos(cluster, random.Random(), look)
    with contextlib.suppress(KeyboardInterrupt):
        chaos.run(duration_s)
    click.echo("\nno more kills: waiting for the last acknowledgements and reading to the end …")
    chaos.finish()


class Chaos:
    """One run: the load, the kills, and the line that shows how it stands."""

    def __init__(self, cluster: Nodes, chance: random.Random, look: Callable[[], Iterable[str]] = tuple) -> None:
        from confluent_kafka import Consumer, Producer

        from penstock.cli.wire_client import WireClient

        self._cluster = cluster
        self._chance = chance
        self._look = look
        self.kills = 0
        connection = cluster.connection
        with WireClient(connection) as client:
            client.ensure_topic(TOPIC, PARTITIONS, min(3, len(cluster.nodes)))
        self.ledger = Ledger(range(PARTITIONS))
        self._run_id = f"{chance.getrandbits(64):016x}"
        self._producer = Producer(
            client_settings(
                connection,
                **{"enable.idempotence": True, "acks": "all", "linger.ms": 5, "queue.buffering.max.messages": 100_000},
            )
        )
        self._consumer = Consumer(
            client_settings(
                connection,
                **{"group.id": "penstock-chaos", "enable.auto.commit": False, "auto.offset.reset": "error"},
            )
        )
        self._assign_from_end()
        self._line_at = 0.0

    def run(self, duration_s: float | None) -> None:
        """Send, read and kill until the time is up."""
        started = time.monotonic()
        kill_at: float | None = started + FIRST_KILL_S
        while duration_s is None or time.monotonic() - started < duration_s:
            self._tick(send=True)
            if not all(node.serves for node in self._cluster):
                # The pause counts from the moment that all are there: one failure at a time, and a moment to recover.
                kill_at = None
            elif kill_at is None:
                kill_at = time.monotonic() + self._chance.uniform(*KILL_INTERVAL_S)
            elif time.monotonic() >= kill_at:
                self._kill_one()

    def finish(self) -> None:
        """Wait for what is under way; raises CommandFailure when records were lost or are there twice."""
        deadline = time.monotonic() + END_TIMEOUT_S
        while (self.ledger.outstanding() or self.ledger.unread()) and time.monotonic() < deadline:
            self._tick(send=False)
        # Time for a record that is not expected any more, a duplicate, to show up.
        until = time.monotonic() + 1
        while time.monotonic() < until:
            self._tick(send=False)
        self._consumer.close()
        unanswered = self.ledger.outstanding()
        self.ledger.close()
        self._show(force=True)
        click.echo()
        if self.ledger.lost or self.ledger.duplicated or unanswered:
            raise CommandFailure(
                f"{self.ledger.lost} records lost, {self.ledger.duplicated} duplicated, {unanswered} never answered",
                "what was acknowledged must be there once: this is a bug in Penstock",
                "keep the data and the logs of the nodes, and report it",
            )
        click.echo(click.style("✓ ", fg="green", bold=True) + "every acknowledged record is there, once")

    def _assign_from_end(self) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        # A topic that was just created has leaders a moment later.
        deadline = time.monotonic() + TOPIC_TIMEOUT_S
        while True:
            try:
                self._consumer.assign(
                    [
                        TopicPartition(TOPIC, number, self._consumer.get_watermark_offsets(partition, 2)[1])
                        for number in range(PARTITIONS)
                        if (partition := TopicPartition(TOPIC, number))
                    ]
                )
                return
            except KafkaException as error:
                if time.monotonic() > deadline:
                    raise explain(error.args[0], f"cannot read topic {TOPIC}") from error

    def _kill_one(self) -> None:
        node: SupervisedNode = self._chance.choice(list(self._cluster))
        self._cluster.kill(node, self._chance.uniform(*DOWN_S))
        self.kills += 1
        self._say(f"kill -9: node {node.node_id}")

    def _tick(self, send: bool) -> None:
        if send and self.ledger.outstanding() < OUTSTANDING_MAX:
            self._send()
        self._producer.poll(0)
        for message in self._consumer.consume(1000, TICK_S):
            self._note_read(message)
        for sentence in (*self._cluster.look(), *self._look()):
            self._say(sentence)
        self._show()

    def _send(self) -> None:
        from confluent_kafka import KafkaException

        for _ in range(RECORDS_PER_TICK):
            partition = self._chance.randrange(PARTITIONS)
            number = self.ledger.send(partition, time.monotonic())
            value = f"{self._run_id}:{partition}:{number}"
            try:
                self._producer.produce(TOPIC, value, partition=partition, on_delivery=self._note_delivery)
            except (KafkaException, BufferError) as error:
                raise CommandFailure("the producer cannot continue", str(error)) from error

    def _note_delivery(self, error: Any, message: Any) -> None:
        _, partition, number = message.value().decode().split(":")
        if error is not None:
            self.ledger.note_failed(int(partition), int(number))
            self._say(f"record {number} of partition {partition} was given up: {error.str()}")
            return
        self.ledger.note_acknowledged(int(partition), int(number), time.monotonic())

    def _note_read(self, message: Any) -> None:
        if message.error() is not None:
            # librdkafka recovers by itself from what a dying broker causes; a position that is gone is a loss.
            if message.error().name() in ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE"):
                self._say(f"the consumer's position is gone: {message.error().str()}")
            return
        run_id, _, rest = message.value().decode().partition(":")
        if run_id == self._run_id:
            self.ledger.note_read(message.partition(), message.offset(), int(rest.partition(":")[2]))

    def _say(self, sentence: str) -> None:
        start = "\r\x1b[2K" if sys.stdout.isatty() else ""
        click.echo(f"{start}{time.strftime('%H:%M:%S')} {sentence}")
        self._line_at = 0.0

    def _show(self, force: bool = False) -> None:
        now = time.monotonic()
        terminal = sys.stdout.isatty()
        if not force and now - self._line_at < (LINE_INTERVAL_S if terminal else PIPE_LINE_INTERVAL_S):
            return
        self._line_at = now
        line = status_line(self.ledger, self.kills, now)
        if terminal:
            click.echo(f"\r\x1b[2K{line}", nl=False)
        else:
            click.echo(line)


def status_line(ledger: Ledger, kills: int, now: float) -> str:
    """How the run stands, in one line."""
    bad = ledger.lost or ledger.duplicated
    parts = [
        f"acknowledged {ledger.acknowledged:,}",
        f"read {ledger.read:,}",
        click.style(f"lost {ledger.lost:,}", fg="red" if ledger.lost else "green", bold=bool(bad)),
        click.style(f"duplicated {ledger.duplicated:,}", fg="red" if ledger.duplicated else "green", bold=bool(bad)),
        f"kills {kills}",
        f"longest gap {ledger.longest_gap_s(now):.1f} s",
    ]
    if ledger.failed:
        parts.append(f"given up {ledger.failed:,}")
    return " · ".join(parts)
