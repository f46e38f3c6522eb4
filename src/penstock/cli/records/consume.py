"""`penstock consume TOPIC`: records on standard output."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

from penstock.cli.client import client_settings, explain, explaining, open_client
from penstock.cli.failures import CommandFailure
from penstock.cli.group.offset_spec import (
    Anchor,
    OffsetRange,
    PartitionOffsets,
    Point,
    parse_offset_range,
    resolve,
    timestamps_of,
)
from penstock.cli.options import Connection, connection_options
from penstock.cli.records.format import PrintableRecord, compile_printer, record_as_json, shows_headers
from penstock.cli.records.group_reader import GroupReader, next_batch
from penstock.cli.render import plural
from penstock.cli.style import StyledCommand
from penstock.gateway.kafka.records import HEADERS_UNREADABLE, headers_of

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

    from penstock.cli.wire_client import WireClient

DEFAULT_FORMAT = r"%v\n"
# Where a group without committed offsets begins, and librdkafka's names for it.
GROUP_BEGINS = {
    OffsetRange(Point(Anchor.START)): "earliest",
    OffsetRange(Point(Anchor.END)): "latest",
}


@click.command(cls=StyledCommand)
@click.argument("topic")
@click.option(
    "-o", "--offset", "span", default="start", show_default=True, metavar="OFFSETS", help="What to read; see above."
)
@click.option("-g", "--group", "group_id", metavar="GROUP", help="Read as a member of this group, and commit.")
@click.option("-n", "--count", type=click.IntRange(1), help="Stop after this many records.")
@click.option("-p", "--partition", "numbers", multiple=True, type=click.IntRange(0), help="Default: all partitions.")
@click.option("-f", "--format", "template", metavar="FORMAT", help=r"How to print a record. Default: '%v\n'.")
@click.option("-J", "--json", "as_json", is_flag=True, help="Print one JSON object a line.")
@click.option("-e", "--exit-at-end", is_flag=True, help="Stop at the end of the log instead of waiting for more.")
@click.option("--read-uncommitted", is_flag=True, help="Include records of open and aborted transactions.")
@connection_options
def command(
    topic: str,
    span: str,
    group_id: str | None,
    count: int | None,
    numbers: tuple[int, ...],
    template: str | None,
    as_json: bool,
    exit_at_end: bool,
    read_uncommitted: bool,
    connection: Connection,
) -> None:
    r"""Read records of TOPIC and print them.

    \b
    Offsets (-o), in each partition:
      start, end          the first offset; wait for what comes
      120                 from offset 120
      +10, -10            ten after the first offset; ten before the end
      @TIME               from a time: 2026-01-31T10:00, 1700000000000, -1h
      a:b                 from a up to b: 100:200, :end, @-1h:end, -5:+2

    With --group the group's members share the partitions and each continues where the group has committed; -o start or
    end sets where to start when it has committed nothing. What was printed is committed.

    \b
    Formats (-f):
      %t topic   %p partition   %o offset   %d timestamp   %e leader epoch
      %k key     %v value       %h{%k=%v }  each header    %i number
      %T %K %V %H  lengths of topic, key and value, number of headers
      {hex} {base64} {json} after %t %k %v; {iso} {strftime[%F %T]} after %d
    """
    if as_json and template is not None:
        raise click.UsageError("Use either --json or --format.")
    printer = _json_line if as_json else compile_printer(DEFAULT_FORMAT if template is None else template)
    offset_range = parse_offset_range(span, int(time.time() * 1000))
    if group_id is not None and (numbers or offset_range not in GROUP_BEGINS):
        raise click.UsageError(
            "With --group, use -o start or -o end, and leave out -p: the group shares the partitions."
        )
    if exit_at_end and group_id is None and offset_range.stop is None:
        offset_range = parse_offset_range(f"{span}:end", int(time.time() * 1000))

    level = "read_uncommitted" if read_uncommitted else "read_committed"
    reader: GroupReader | RangeReader
    if group_id is not None:
        from penstock.cli.topic_queries import describe_topic

        with open_client(connection) as client:
            describe_topic(client, topic)
        reset = GROUP_BEGINS[offset_range]
        # A member that is terminated leaves the group, so that the others need not wait for its session timeout.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        reader = GroupReader(connection, topic, group_id, reset, level, exit_at_end)
    else:
        with open_client(connection) as client:
            ranges = _ranges(client, topic, numbers, offset_range)
        reader = RangeReader(connection, topic, ranges, level)
    _print_all(reader, printer, count, notes_left=1 if template is not None and shows_headers(template) else 0)


def _print_all(
    reader: GroupReader | RangeReader,
    printer: Callable[[PrintableRecord], bytes],
    count: int | None,
    notes_left: int,
) -> None:
    """Print records. For the first few with missing contents the reason goes to stderr; JSON includes it."""
    shown = 0
    try:
        for message in reader.messages(count):
            shown += 1
            record = _printable(message, shown)
            sys.stdout.buffer.write(printer(record))
            if record.unreadable and notes_left:
                notes_left -= 1
                place = f"{record.topic}-{record.partition} at offset {record.offset}"
                click.echo(f"{place}: {record.unreadable}; there may be others like it, which --json names", err=True)
            if reader.idle:
                sys.stdout.buffer.flush()
                reader.printed()
        sys.stdout.buffer.flush()
        reader.printed()
    except BrokenPipeError:
        # The reader of our output has exited, as `head` does; the interpreter must not complain about it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        sys.stdout.buffer.flush()
        click.echo(f"stopped after {plural(shown, 'record')}", err=True)
        sys.exit(130)
    finally:
        reader.close()


def _json_line(record: PrintableRecord) -> bytes:
    return record_as_json(record).encode() + b"\n"


def _ranges(
    client: WireClient, topic: str, numbers: tuple[int, ...], offset_range: OffsetRange
) -> dict[int, tuple[int, int | None]]:
    """(begin, stop) for each partition to read."""
    from penstock.cli.topic_queries import describe_topic, earliest_offsets, latest_offsets, offsets_at

    present = [partition.partition for partition in describe_topic(client, topic).partitions]
    unknown = sorted(set(numbers) - set(present))
    if unknown:
        held = plural(len(present), "partition")
        raise CommandFailure(f"topic {topic} has no partition {unknown[0]}", f"it has {held}, counted from 0")
    chosen = sorted(set(numbers)) or present
    starts = earliest_offsets(client, topic, chosen)
    ends = latest_offsets(client, topic, chosen)
    moments = {moment: offsets_at(client, topic, chosen, moment) for moment in timestamps_of(offset_range)}
    ranges = {}
    for number in chosen:
        at = {moment: offsets[number] for moment, offsets in moments.items()}
        ranges[number] = resolve(offset_range, PartitionOffsets(starts[number], ends[number], at))
    return ranges


class RangeReader:
    """A consumer without a group, over offset ranges; a partition is paused for good once its range is read."""

    def __init__(
        self, connection: Connection, topic: str, ranges: dict[int, tuple[int, int | None]], isolation_level: str
    ) -> None:
        from confluent_kafka import Consumer, TopicPartition

        settings = {
            "group.id": "penstock-cli",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": isolation_level,
            "fetch.wait.max.ms": 100,
        }
        self._topic = topic
        self._stops = {number: stop for number, (_, stop) in ranges.items() if stop is not None}
        self._left = {number for number, (begin, stop) in ranges.items() if stop is None or begin < stop}
        self.idle = True
        with explaining("librdkafka rejects these settings"):
            self._consumer: Consumer = Consumer(client_settings(connection, **settings))
            self._consumer.assign([TopicPartition(topic, number, ranges[number][0]) for number in sorted(self._left)])

    def messages(self, count: int | None) -> Iterator[Message]:
        """The records of all ranges, at most `count`; `idle` is true if no further record is available yet."""
        given = 0
        while self._left and (count is None or given < count):
            batch = next_batch(self._consumer, None if count is None else count - given)
            records = [message for message in batch if message.error() is None and self._wanted(message)]
            for index, message in enumerate(records, 1):
                self.idle = index == len(records)
                yield message
            given += len(records)
            for message in batch:
                self._heed(message)

    def _heed(self, message: Message) -> None:
        """Handle the end of a partition or an error."""
        error = message.error()
        if error is None:
            return
        number, offset = message.partition(), message.offset()
        if error.name() == "_PARTITION_EOF":
            if number in self._stops and offset is not None and offset >= self._stops[number]:
                self._left.discard(number)
        elif not error.retriable() and (error.fatal() or (number is not None and number >= 0)):
            raise explain(error, f"cannot read {self._topic}-{number}")

    def _wanted(self, message: Message) -> bool:
        number, offset = message.partition(), message.offset()
        assert number is not None
        assert offset is not None
        stop = self._stops.get(number)
        if stop is None:
            return True
        if offset >= stop - 1:
            self._left.discard(number)
        return offset < stop

    def printed(self) -> None:
        """Without a group nothing is committed."""

    def close(self) -> None:
        self._consumer.close()


def _printable(message: Message, number: int) -> PrintableRecord:
    partition, offset, topic = message.partition(), message.offset(), message.topic()
    assert partition is not None
    assert offset is not None
    assert topic is not None
    epoch = message.leader_epoch()
    headers = headers_of(message)
    return PrintableRecord(
        topic,
        partition,
        offset,
        message.timestamp()[1],
        message.key(),
        message.value(),
        headers or (),
        epoch if epoch is not None else -1,
        number,
        HEADERS_UNREADABLE if headers is None else "",
    )
