"""Topics, their offsets and settings, as commands need them. What brokers refuse raises CommandFailure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.cli.failures import CommandFailure
from penstock.cli.render import plural
from penstock.cli.wire_client import WireClient, refusal
from penstock.client.operations import configs, offsets, topics
from penstock.client.operations.configs import Config
from penstock.client.operations.offsets import EARLIEST, LATEST
from penstock.client.operations.routing import Refused
from penstock.client.operations.topics import Topic
from penstock.model.ids import TopicPartition


def list_topics(client: WireClient) -> list[Topic]:
    """All topics by name."""
    return client.attempt("cannot list the topics", topics.list_topics)


def describe_topic(client: WireClient, name: str) -> Topic:
    """One topic; never creates it."""
    return client.attempt(f"cannot describe topic {name}", topics.describe_topic, name)


def chosen_partitions(client: WireClient, topic: str, numbers: Iterable[int]) -> list[int]:
    """These partitions of a topic, or all if none are named; raises CommandFailure for one that there is not."""
    present = [partition.partition for partition in describe_topic(client, topic).partitions]
    unknown = sorted(set(numbers) - set(present))
    if unknown:
        raise CommandFailure(
            f"topic {topic} has no partition {unknown[0]}", f"it has {plural(len(present), 'partition')}"
        )
    return sorted(set(numbers)) or present


def topic_configs(client: WireClient, name: str) -> list[Config]:
    """A topic's settings by name."""
    return client.attempt(f"cannot read the settings of topic {name}", configs.read_configs, configs.TOPIC, name)


def read_offsets(
    client: WireClient, topic: str, partitions: Iterable[int], timestamp_ms: int, *, read_committed: bool = False
) -> dict[int, int]:
    """The first offset at or after a timestamp, by partition, or -1; `EARLIEST` and `LATEST` stand for the ends."""
    wanted = {TopicPartition(topic, number): timestamp_ms for number in partitions}
    what = f"cannot read the offsets of {topic}"
    found = client.attempt(what, offsets.read_positions, wanted, read_committed=read_committed)
    read: dict[int, int] = {}
    for name, position in found.items():
        if isinstance(position, Refused):
            raise refusal(position, f"cannot read the offsets of {topic}-{name.partition}")
        read[name.partition] = position.offset
    return read


def earliest_offsets(client: WireClient, topic: str, partitions: Iterable[int]) -> dict[int, int]:
    """The first offset, by partition."""
    return read_offsets(client, topic, partitions, EARLIEST)


def latest_offsets(
    client: WireClient, topic: str, partitions: Iterable[int], *, read_committed: bool = False
) -> dict[int, int]:
    """The end offset, by partition; with `read_committed` where open transactions begin."""
    return read_offsets(client, topic, partitions, LATEST, read_committed=read_committed)


def offsets_at(client: WireClient, topic: str, partitions: Iterable[int], timestamp_ms: int) -> dict[int, int]:
    """The first offset at or after a timestamp, by partition; the end offset if there is no such record."""
    numbers = list(partitions)
    found = read_offsets(client, topic, numbers, timestamp_ms)
    return found | latest_offsets(client, topic, [number for number in numbers if found[number] < 0])


def delete_records(client: WireClient, topic: str, targets: Mapping[int, int]) -> dict[int, int]:
    """Delete records before the given offsets; returns the new first offset by partition."""
    wanted = {TopicPartition(topic, number): offset for number, offset in targets.items()}
    starts: dict[int, int] = {}
    for name, start in client.attempt(f"cannot trim {topic}", offsets.delete_records, wanted).items():
        if isinstance(start, Refused):
            raise refusal(start, f"cannot trim {topic}-{name.partition}")
        starts[name.partition] = start
    return starts
