"""Configures a topology: how many tasks each subtopology has, and the internal topics that it needs.

1. All source topics must exist.
2. A repartition topic has as many partitions as the largest source of the subtopology that writes it, unless the
   application states how many; topics that are copartitioned have equally many.
3. A changelog has as many partitions as the largest source of its subtopology, which is also the number of tasks.
4. Internal topics that exist must have that many partitions; the others are to be created.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from penstock.core.group.streams.status import Status, StatusCode
from penstock.core.group.streams.topology import Topology, refuse, sources_of
from penstock.wire.messages.streams_group_records import Subtopology, TopicInfo

# How many topics a status names at most.
NAMES_MAX = 3

PartitionCount = Callable[[str], int | None]


class InternalTopic(NamedTuple):
    """A topic that belongs to the application; a replication factor of 0 is the brokers' default."""

    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]


class ConfiguredSubtopology(NamedTuple):
    """A subtopology with the number of its tasks, and its internal topics by name."""

    task_count: int
    source_topics: frozenset[str]
    repartition_source_topics: Mapping[str, InternalTopic]
    repartition_sink_topics: frozenset[str]
    state_changelog_topics: Mapping[str, InternalTopic]

    @property
    def is_stateful(self) -> bool:
        """Whether its tasks have state that standbys can copy."""
        return bool(self.state_changelog_topics)

    @property
    def all_sources(self) -> frozenset[str]:
        """Every topic that it reads."""
        return self.source_topics.union(self.repartition_source_topics)


class ConfiguredTopology(NamedTuple):
    """Subtopologies by id, None if they cannot be configured; `problem` is the reason why there are no tasks yet."""

    subtopologies: Mapping[str, ConfiguredSubtopology] | None
    missing: Sequence[InternalTopic] = ()
    problem: Status | None = None

    @property
    def is_ready(self) -> bool:
        """Whether there are tasks."""
        return self.problem is None


class _NotConfigurable(Exception):
    def __init__(self, code: StatusCode, detail: str) -> None:
        self.status = Status(code, detail)
        super().__init__(detail)


def configure(topology: Topology, partition_count: PartitionCount) -> ConfiguredTopology:
    """Configure a topology with the topics there are; raises STREAMS_INVALID_TOPOLOGY if no topics would do."""
    rows = list(topology.subtopologies.values())
    try:
        _check_sources(rows, partition_count)
        counts = _Counts(partition_count)
        _count_repartition_topics(rows, counts)
        _align_copartitioned(rows, counts)
        subtopologies = {row.subtopology_id: _configured(row, counts) for row in rows}
        missing = _missing(subtopologies, partition_count)
    except _NotConfigurable as error:
        return ConfiguredTopology(None, problem=error.status)
    problem = None
    if missing:
        names = summarize([topic.name for topic in missing])
        problem = Status(StatusCode.MISSING_INTERNAL_TOPICS, f"Internal topics are missing: {names}")
    return ConfiguredTopology(dict(sorted(subtopologies.items())), missing, problem)


def summarize(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(names) - NAMES_MAX} additional topics" if len(names) > NAMES_MAX else ""
    return ", ".join(names[:NAMES_MAX]) + more


class _Counts:
    """Partitions of topics: of those that exist, and what is decided for the others."""

    def __init__(self, partition_count: PartitionCount) -> None:
        self._partition_count = partition_count
        self.decided: dict[str, int] = {}

    def of(self, topic: str) -> int:
        """How many partitions a topic has, or is to have."""
        count = self._partition_count(topic)
        return self.decided[topic] if count is None else count


def _check_sources(rows: Sequence[Subtopology], partition_count: PartitionCount) -> None:
    missing = sorted({topic for row in rows for topic in row.source_topics if partition_count(topic) is None})
    if missing:
        raise _NotConfigurable(StatusCode.MISSING_SOURCE_TOPICS, f"Source topics {summarize(missing)} are missing.")


def _count_repartition_topics(rows: Sequence[Subtopology], counts: _Counts) -> None:
    """Follow the topology from its sources; the subtopology that writes a repartition topic may read another one."""
    decided = counts.decided
    for row in rows:
        decided.update({topic.name: topic.partitions for topic in row.repartition_source_topics if topic.partitions})
    readers: dict[str, list[Subtopology]] = {}
    for row in rows:
        for topic in row.repartition_source_topics:
            readers.setdefault(topic.name, []).append(row)
    queue = deque(row for row in rows if _known_sizes(row, counts))
    seen: set[str] = set()
    while queue:
        row = queue.popleft()
        if row.subtopology_id not in seen:
            seen.add(row.subtopology_id)
            size = max(_known_sizes(row, counts))
            for sink in row.repartition_sink_topics:
                if sink not in decided:
                    decided[sink] = size
                    queue += readers.get(sink, ())
    refuse(
        any(sink not in decided for row in rows for sink in row.repartition_sink_topics),
        "Failed to compute number of partitions for all repartition topics. There may be loops in the topology that"
        " cannot be resolved.",
    )
    for row in rows:
        refuse(
            any(topic.name not in decided for topic in row.repartition_source_topics),
            "Failed to compute number of partitions for all repartition topics, because a repartition source topic is"
            " never used as a sink topic.",
        )


def _known_sizes(row: Subtopology, counts: _Counts) -> list[int]:
    repartitions = [topic.name for topic in row.repartition_source_topics if topic.name in counts.decided]
    return [*(counts.decided[name] for name in repartitions), *(counts.of(name) for name in row.source_topics)]


def _align_copartitioned(rows: Sequence[Subtopology], counts: _Counts) -> None:
    infos = {topic.name: topic for row in rows for topic in row.repartition_source_topics}
    for row in rows:
        for group in row.copartition_groups:
            sources = {row.source_topics[index] for index in group.source_topics}
            sources |= {row.repartition_source_topics[index].name for index in group.repartition_source_topics}
            _align(sources, infos, counts)


def _align(topics: Collection[str], infos: Mapping[str, TopicInfo], counts: _Counts) -> None:
    """Have one copartition group agree: on its own source topics, else on fixed numbers, else on the largest."""
    external = [topic for topic in topics if topic not in infos]
    fixed = [topic for topic in topics if topic in infos and infos[topic].partitions]
    sizes = {topic: counts.of(topic) for topic in sorted(external or fixed)}
    if len({*sizes.values()}) > 1:
        shown = ", ".join(f"{topic}={size}" for topic, size in sizes.items())
        detail = f"Following topics do not have the same number of partitions: [{{{shown}}}]"
        raise _NotConfigurable(StatusCode.INCORRECTLY_PARTITIONED_TOPICS, detail)
    size = next(iter(sizes.values()), None) or max((counts.of(topic) for topic in topics), default=0)
    for topic in sorted(fixed):
        if counts.of(topic) != size:
            detail = (
                f"Number of partitions [{counts.of(topic)}] of repartition topic [{topic}] doesn't match number of"
                f" partitions [{size}] of the source topic."
            )
            raise _NotConfigurable(StatusCode.INCORRECTLY_PARTITIONED_TOPICS, detail)
    counts.decided.update({topic: size for topic in topics if topic in infos})


def _configured(row: Subtopology, counts: _Counts) -> ConfiguredSubtopology:
    task_count = max(counts.of(topic) for topic in sources_of(row))
    return ConfiguredSubtopology(
        task_count,
        frozenset(row.source_topics),
        {
            topic.name: _internal(topic, topic.partitions or counts.decided[topic.name])
            for topic in row.repartition_source_topics
        },
        frozenset(row.repartition_sink_topics),
        {topic.name: _internal(topic, task_count) for topic in row.state_changelog_topics},
    )


def _internal(topic: TopicInfo, partitions: int) -> InternalTopic:
    configs = {config.key: config.value for config in topic.topic_configs}
    return InternalTopic(topic.name, partitions, topic.replication_factor, configs)


def _missing(
    subtopologies: Mapping[str, ConfiguredSubtopology], partition_count: PartitionCount
) -> list[InternalTopic]:
    wanted: dict[str, InternalTopic] = {}
    for row in subtopologies.values():
        wanted |= {**row.repartition_source_topics, **row.state_changelog_topics}
    missing = []
    for name in sorted(wanted):
        found = partition_count(name)
        if found is None:
            missing.append(wanted[name])
        elif found != wanted[name].partitions:
            detail = (
                f"Existing topic {name} has different number of partitions: expected {wanted[name].partitions},"
                f" found {found}"
            )
            raise _NotConfigurable(StatusCode.INCORRECTLY_PARTITIONED_TOPICS, detail)
    return missing
