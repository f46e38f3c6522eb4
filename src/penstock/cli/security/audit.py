"""`penstock security audit`: the audit trail that brokers write to the topic `_audit`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.client import client_settings, explain
from penstock.cli.failures import CommandFailure
from penstock.cli.options import Connection, query_options
from penstock.cli.style import StyledCommand
from penstock.core.metadata.topic_names import AUDIT_TOPIC
from penstock.core.security.audit import EventType

if TYPE_CHECKING:
    from confluent_kafka import Consumer

TIMEOUT_S = 15.0
POLL_S = 0.5
BATCH = 500


@click.command(cls=StyledCommand)
@click.option("-f", "--follow", is_flag=True, help="Go on with what happens from now on, until Ctrl-C.")
@click.option("-n", "--last", type=click.IntRange(0), default=100, show_default=True, help="Look at so many events.")
@click.option("--type", "kind", type=click.Choice([one.value for one in EventType]), help="Only events of this type.")
@click.option("--principal", metavar="User:NAME", help="Only what this principal did.")
@click.option("--api", metavar="NAME", help="Only requests of this API, such as CreateTopics.")
@click.option("--resource", metavar="NAME", help="Only what was done to the topic, group, … of this name.")
@query_options
def command(
    follow: bool,
    last: int,
    kind: str | None,
    principal: str | None,
    api: str | None,
    resource: str | None,
    connection: Connection,
    as_json: bool,
) -> None:
    """Show who did what, from where, and what came of it: the last events, oldest first.

    Brokers keep the trail with penstock.audit.enable=true.
    """
    named = {"type": kind, "principal": principal, "api": api, "resource": resource}
    wanted = {name: text for name, text in named.items() if text is not None}
    try:
        for event in _events(connection, last, follow):
            if all(event.get(name) == text for name, text in wanted.items()):
                click.echo(json.dumps(event) if as_json else line_of(event))
    except KeyboardInterrupt:
        pass


def line_of(event: Mapping[str, Any]) -> str:
    """An event in one line, for people."""
    times = int(event.get("count", 1))
    parts = [
        str(event.get("time", "")),
        str(event.get("type", "")),
        str(event.get("principal", "-")),
        f"from {event['host']}" if event.get("host") else "",
        str(event.get("api", "")),
        str(event.get("operation", "")),
        " ".join(str(event[name]) for name in ("resource_type", "resource") if event.get(name)),
        str(event.get("outcome", "")),
        f"({times} times)" if times > 1 else "",
        str(event.get("message", "")),
        ", ".join(f"{name}={value}" for name, value in dict(event.get("details") or {}).items()),
    ]
    # Clients choose some of these texts, and a terminal acts on control characters.
    shown = "  ".join(part for part in parts if part)
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in shown)


def _events(connection: Connection, last: int, follow: bool) -> Iterator[dict[str, object]]:
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    settings = {"group.id": "penstock-audit", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    consumer: Consumer = Consumer(client_settings(connection, **settings))
    try:
        known = consumer.list_topics(AUDIT_TOPIC, TIMEOUT_S).topics.get(AUDIT_TOPIC)
        if known is None or known.error is not None or not known.partitions:
            raise CommandFailure(
                "there is no audit trail that you can read",
                f"the topic {AUDIT_TOPIC} does not exist, or you may not read it",
                "set penstock.audit.enable=true on the brokers, or ask for READ on the topic",
            )
        start, end = consumer.get_watermark_offsets(TopicPartition(AUDIT_TOPIC, 0), TIMEOUT_S)
        position = max(start, end - last)
        consumer.assign([TopicPartition(AUDIT_TOPIC, 0, position)])
        deadline = time.monotonic() + TIMEOUT_S
        while follow or (position < end and time.monotonic() < deadline):
            for message in consumer.consume(BATCH, POLL_S):
                error = message.error()
                if error is not None:
                    raise explain(error, "the audit trail could not be read")
                position = (message.offset() or 0) + 1
                event = _event(message.value())
                if event is not None:
                    yield event
    except KafkaException as error:
        raise explain(error.args[0], "the audit trail could not be read") from error
    finally:
        consumer.close()


def _event(value: bytes | None) -> dict[str, object] | None:
    try:
        event = json.loads(value or b"")
    except ValueError:
        return None
    return event if isinstance(event, dict) else None
