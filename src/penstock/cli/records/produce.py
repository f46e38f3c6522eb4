"""`penstock produce TOPIC`: records from standard input or a file."""

from __future__ import annotations

import codecs
import contextlib
import sys
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, BinaryIO

import click

from penstock.cli.client import REQUEST_TIMEOUT_S, check_signs_in, client_settings, explain, explaining
from penstock.cli.failures import CommandFailure
from penstock.cli.options import Connection, connection_options
from penstock.cli.records.parse import ParsedRecord, check_parse_format, read_records
from penstock.cli.render import human_bytes, plural
from penstock.cli.style import StyledCommand
from penstock.client.rotation import rotation_for

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TOPIC_WAIT_S = 5.0
DELIVERY_TIMEOUT_MS = 30_000
PARTITION_BY_KEY = -1
LINGER_MS = 5


@click.command(cls=StyledCommand)
@click.argument("topic")
@click.option(
    "-k", "--key-separator", metavar="TEXT", help="The separator of key and value in a line, such as : or \\t."
)
@click.option("-f", "--format", "template", metavar="FORMAT", help=r"How to parse the input: '%k\t%v\n', '%v{hex}\n'.")
@click.option("-H", "--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header for every record.")
@click.option("-F", "--file", type=click.Path(exists=True, dir_okay=False), help="Read this file instead of stdin.")
@click.option("--whole", is_flag=True, help="The whole input is one record.")
@click.option(
    "-p", "--partition", type=click.IntRange(0), help="Send to this partition. Default: by key, else in rotation."
)
@click.option("-z", "--compression", type=click.Choice(CODECS), default="none", help="Default: none.")
@click.option("-a", "--acks", type=click.Choice(["0", "1", "all"]), default="all", help="Default: all.")
@click.option("-Z", "--null", "null_marker", metavar="TEXT", help="A key or value of exactly this text is null.")
@click.option("-q", "--quiet", is_flag=True, help="No summary at the end.")
@connection_options
def command(
    topic: str,
    key_separator: str | None,
    template: str | None,
    headers: tuple[str, ...],
    file: str | None,
    whole: bool,
    partition: int | None,
    compression: str,
    acks: str,
    null_marker: str | None,
    quiet: bool,
    connection: Connection,
) -> None:
    r"""Send records to TOPIC: each line of standard input is one.

    \b
    echo 'hello' | penstock produce greetings
    printf 'a:1\nb:2\n' | penstock produce counts -k :
    penstock produce photos --whole -F cat.jpg -H type=image/jpeg
    """
    if [key_separator is not None, template is not None, whole].count(True) > 1:
        raise click.UsageError("Use only one of --key-separator, --format and --whole.")
    separator = _separator(key_separator) if key_separator is not None else None
    pieces = check_parse_format(template) if template is not None else None
    # Brokers detect duplicates only with acks=all.
    asked = connection.properties.get("acks", acks)
    settings = {"acks": acks, "compression.type": compression, "enable.idempotence": asked in ("all", "-1")}
    sender = Sender(connection, settings, [_header(word) for word in headers])
    with open(file, "rb") if file is not None else contextlib.nullcontext(sys.stdin.buffer) as stream:
        if whole:
            records: Iterator[ParsedRecord] = iter([ParsedRecord(value=stream.read())])
        elif pieces is not None:
            records = read_records(stream, pieces)
        else:
            records = read_lines(stream, separator)
        with contextlib.suppress(KeyboardInterrupt):
            for record in records:
                chosen = record.partition if record.partition is not None else partition
                sender.send(
                    record.topic or topic,
                    chosen,
                    _or_null(record.key, null_marker),
                    _or_null(record.value, null_marker),
                )
    sender.finish()
    if not quiet:
        click.echo(sender.report(), err=True)
    if sender.error is not None:
        raise explain(sender.error, f"{plural(sender.failed, 'record')} of {sender.sent} could not be delivered")


class Sender:
    """A producer that counts deliveries and keeps the first error."""

    def __init__(
        self, connection: Connection, settings: Mapping[str, object], headers: list[tuple[str, str | bytes | None]]
    ) -> None:
        from confluent_kafka import Producer

        check_signs_in(connection)
        defaults = {
            "linger.ms": LINGER_MS,
            "message.timeout.ms": DELIVERY_TIMEOUT_MS,
            "queue.buffering.max.messages": 500_000,
            # Keeps the order of the input when a request is retried, with or without idempotence.
            "max.in.flight.requests.per.connection": 1,
            # The Java client's partitioner for keys; librdkafka's default is another one.
            "partitioner": "murmur2_random",
        }
        with explaining("librdkafka rejects these settings"):
            self._producer: Producer = Producer(client_settings(connection, **defaults, **settings))
        self._headers = headers
        self._rotation = rotation_for(connection.properties, LINGER_MS)
        # Their partitions with a leader; all of them if none has one.
        self._known_topics: dict[str, list[int]] = {}
        self._started = time.monotonic()
        self.sent = 0
        self.size_bytes = 0
        self.delivered = 0
        self.failed = 0
        self.error: KafkaError | None = None

    def send(self, topic: str, partition: int | None, key: bytes | None, value: bytes | None) -> None:
        """Queue a record, waiting while librdkafka's queue is full."""
        from confluent_kafka import KafkaException

        if topic not in self._known_topics:
            self._wait_for_topic(topic, partition)
        self.sent += 1
        size_bytes = len(key or b"") + len(value or b"")
        self.size_bytes += size_bytes
        target = PARTITION_BY_KEY if partition is None else partition
        if partition is None and not key and self._rotation is not None:
            target = self._rotation.choose(topic, self._known_topics[topic], size_bytes)
        while True:
            try:
                self._producer.produce(
                    topic, value, key, target, on_delivery=self._delivered, headers=self._headers or None
                )
                break
            except BufferError:
                self._producer.poll(0.1)
            except KafkaException as error:
                raise explain(error.args[0], f"cannot send record {self.sent} to {topic}") from error
        self._producer.poll(0)

    def finish(self) -> None:
        """Wait until every record is delivered or has failed."""
        self._producer.flush()

    def report(self) -> str:
        """One line on how much was delivered, and how fast."""
        seconds = max(time.monotonic() - self._started, 1e-6)
        rate = f"{self.delivered / seconds:,.0f} records/s"
        return (
            f"delivered {plural(self.delivered, 'record')} ({human_bytes(self.size_bytes)}) in {seconds:.2f} s, {rate}"
        )

    def _delivered(self, error: KafkaError | None, message: Message) -> None:  # noqa: ARG002
        if error is None:
            self.delivered += 1
            return
        self.failed += 1
        self.error = self.error or error

    def _wait_for_topic(self, topic: str, partition: int | None) -> None:
        """Fail within seconds if the topic does not exist; a broker that auto-creates topics gets time to do so."""
        deadline = time.monotonic() + TOPIC_WAIT_S
        while True:
            with explaining(f"cannot look up topic {topic}"):
                found = self._producer.list_topics(topic, timeout=REQUEST_TIMEOUT_S).topics[topic]
            if found.error is None:
                break
            may_appear = found.error.retriable() or found.error.name() == "UNKNOWN_TOPIC_OR_PART"
            if not may_appear or time.monotonic() > deadline:
                raise explain(found.error, f"cannot send to topic {topic}")
            time.sleep(0.1)
        if partition is not None and partition not in found.partitions:
            held = plural(len(found.partitions), "partition")
            raise CommandFailure(f"topic {topic} has no partition {partition}", f"it has {held}, counted from 0")
        led = [number for number, each in found.partitions.items() if each.leader >= 0]
        self._known_topics[topic] = sorted(led or found.partitions)


def read_lines(stream: BinaryIO, separator: bytes | None) -> Iterator[ParsedRecord]:
    """One record per line, without the line ending; with a separator, the part before it is the key."""
    for number, line in enumerate(stream, 1):
        text = line.removesuffix(b"\n")
        if separator is None:
            yield ParsedRecord(value=text)
            continue
        key, found, value = text.partition(separator)
        if not found:
            shown = text[:60].decode(errors="replace")
            raise CommandFailure(
                f"line {number} has no key: there is no {separator.decode(errors='replace')!r} in {shown!r}",
                "the lines before it were sent",
                "fix the line, or leave out --key-separator",
            )
        yield ParsedRecord(key, value)


def _separator(text: str) -> bytes:
    separator = codecs.decode(text.encode("latin-1", "backslashreplace"), "unicode_escape").encode()
    if not separator:
        raise click.UsageError("The key separator is empty.")
    return separator


def _header(word: str) -> tuple[str, str | bytes | None]:
    name, equals, value = word.partition("=")
    if not equals or not name:
        raise click.UsageError(f"-H takes NAME=VALUE, not {word!r}.")
    return name, value.encode()


def _or_null(data: bytes | None, null_marker: str | None) -> bytes | None:
    return None if null_marker is not None and data == null_marker.encode() else data
