"""How topologies are checked and configured; tests/scenario has what groups do with that."""

from __future__ import annotations

import pytest

from penstock.core.group.streams.internal_topics import ConfiguredTopology, configure
from penstock.core.group.streams.status import StatusCode
from penstock.core.group.streams.topology import check_topology, topology_of
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.messages.streams_group_heartbeat import (
    CopartitionGroup,
    KeyValue,
    Subtopology,
    TopicInfo,
    Topology,
)


def configured(*rows: Subtopology, **counts: int) -> ConfiguredTopology:
    return configure(topology_of(Topology(0, rows)), counts.get)


def missing(found: ConfiguredTopology) -> dict[str, int]:
    return {topic.name: topic.partitions for topic in found.missing}


def tasks(found: ConfiguredTopology) -> dict[str, int]:
    return {name: row.task_count for name, row in (found.subtopologies or {}).items()}


def test_repartition_topics_follow_the_sources_through_the_topology() -> None:
    found = configured(
        Subtopology("2", repartition_source_topics=[TopicInfo("second")], state_changelog_topics=[TopicInfo("store")]),
        Subtopology("1", repartition_source_topics=[TopicInfo("first")], repartition_sink_topics=["second"]),
        Subtopology("0", ["small", "large"], repartition_sink_topics=["first"]),
        small=2,
        large=5,
    )
    assert missing(found) == {"first": 5, "second": 5, "store": 5}
    assert tasks(found) == {"0": 5, "1": 5, "2": 5}
    assert found.problem is not None
    assert found.problem.code is StatusCode.MISSING_INTERNAL_TOPICS
    assert not found.is_ready


def test_a_topology_whose_topics_are_there_is_ready() -> None:
    rows = [
        Subtopology("0", ["t"], repartition_sink_topics=["r"]),
        Subtopology("1", repartition_source_topics=[TopicInfo("r")], state_changelog_topics=[TopicInfo("c")]),
    ]
    found = configured(*rows, t=2, r=2, c=2)
    assert (found.is_ready, missing(found), tasks(found)) == (True, {}, {"0": 2, "1": 2})
    assert found.subtopologies is not None
    assert [row.is_stateful for row in found.subtopologies.values()] == [False, True]


def test_an_internal_topic_keeps_the_settings_of_the_application() -> None:
    topic = TopicInfo("c", 0, 3, [KeyValue("cleanup.policy", "compact")])
    (found,) = configured(Subtopology("0", ["t"], state_changelog_topics=[topic]), t=4).missing
    assert found == ("c", 4, 3, {"cleanup.policy": "compact"})


def test_an_existing_internal_topic_must_suit() -> None:
    rows = [Subtopology("0", ["t"], state_changelog_topics=[TopicInfo("c")])]
    found = configured(*rows, t=4, c=3)
    assert found.problem == (
        StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
        "Existing topic c has different number of partitions: expected 4, found 3",
    )
    assert found.subtopologies is None


def test_missing_source_topics_are_named_up_to_three() -> None:
    found = configured(Subtopology("0", ["e", "d", "c", "b", "a"]), c=1)
    assert found.problem == (
        StatusCode.MISSING_SOURCE_TOPICS,
        "Source topics a, b, d and 1 additional topics are missing.",
    )


@pytest.mark.parametrize(
    ("fixed", "counts", "expected"),
    [
        # Source topics decide about the others.
        ({}, {"t": 3, "u": 3}, {"r": 3, "s": 3}),
        ({"r": 3}, {"t": 3, "u": 3}, {"r": 3, "s": 3}),
        ({"r": 2}, {"t": 3, "u": 3}, "Number of partitions [2] of repartition topic [r] doesn't match number of"),
        ({}, {"t": 3, "u": 4}, "Following topics do not have the same number of partitions: [{t=3, u=4}]"),
    ],
)
def test_copartitioned_topics_agree(fixed: dict[str, int], counts: dict[str, int], expected: object) -> None:
    found = configured(
        Subtopology("0", ["big"], repartition_sink_topics=["r", "s"]),
        Subtopology(
            "1",
            ["t", "u"],
            repartition_source_topics=[TopicInfo(name, fixed.get(name, 0)) for name in ("r", "s")],
            copartition_groups=[CopartitionGroup([0, 1], [], [0, 1])],
        ),
        big=6,
        **counts,
    )
    if isinstance(expected, dict):
        assert missing(found) == expected
    else:
        assert found.problem is not None
        assert found.problem.code is StatusCode.INCORRECTLY_PARTITIONED_TOPICS
        assert found.problem.detail.startswith(str(expected))


@pytest.mark.parametrize(
    ("fixed", "expected"),
    [({}, {"r": 6, "s": 6}), ({"s": 4}, {"r": 4, "s": 4}), ({"r": 4, "s": 5}, None)],
)
def test_repartition_topics_among_themselves(fixed: dict[str, int], expected: dict[str, int] | None) -> None:
    found = configured(
        Subtopology("0", ["big"], repartition_sink_topics=["r"]),
        Subtopology("1", ["small"], repartition_sink_topics=["s"]),
        Subtopology(
            "2",
            repartition_source_topics=[TopicInfo(name, fixed.get(name, 0)) for name in ("r", "s")],
            copartition_groups=[CopartitionGroup(repartition_source_topics=[0, 1])],
        ),
        big=6,
        small=2,
    )
    assert (None if found.subtopologies is None else missing(found)) == expected


def test_a_loop_cannot_be_counted() -> None:
    rows = [
        Subtopology("0", repartition_source_topics=[TopicInfo("a")], repartition_sink_topics=["b"]),
        Subtopology("1", repartition_source_topics=[TopicInfo("b")], repartition_sink_topics=["a"]),
    ]
    with pytest.raises(ApiError, match="loops in the topology") as caught:
        configured(*rows)
    assert caught.value.code is ErrorCode.STREAMS_INVALID_TOPOLOGY


def test_a_repartition_topic_must_be_written() -> None:
    with pytest.raises(ApiError, match="never used as a sink topic"):
        configured(Subtopology("0", ["t"], repartition_source_topics=[TopicInfo("r")]), t=1)


@pytest.mark.parametrize(
    "topology",
    [
        Topology(-1, []),
        Topology(0, [Subtopology("0", ["t"]), Subtopology("0", ["u"])]),
        Topology(0, [Subtopology("0")]),
        Topology(0, [Subtopology("0", ["t"], state_changelog_topics=[TopicInfo("c", 1)])]),
        Topology(0, [Subtopology("0", ["t"], repartition_source_topics=[TopicInfo("r", -1)])]),
        Topology(0, [Subtopology("0", ["t"], copartition_groups=[CopartitionGroup([1])])]),
        Topology(0, [Subtopology("0", ["t"], copartition_groups=[CopartitionGroup([-1])])]),
        Topology(0, [Subtopology("0", ["t"], copartition_groups=[CopartitionGroup([0], [], [0])])]),
    ],
)
def test_what_makes_no_sense_is_refused(topology: Topology) -> None:
    with pytest.raises(ApiError) as caught:
        check_topology(topology)
    assert caught.value.code is ErrorCode.STREAMS_INVALID_TOPOLOGY


def test_a_topology_that_no_batch_would_take_is_refused() -> None:
    names = [f"{number:05}-{'x' * 100}" for number in range(4_000)]
    with pytest.raises(ApiError, match="400000 are allowed") as caught:
        topology_of(Topology(0, [Subtopology("0", names)])).value()
    assert caught.value.code is ErrorCode.STREAMS_INVALID_TOPOLOGY
    topology_of(Topology(0, [Subtopology("0", names[:3_000])])).value()


def test_equal_topologies_are_equal_however_they_came() -> None:
    rows = [Subtopology("0", ["t"], state_changelog_topics=[TopicInfo("c", 0, 1, [KeyValue("a", "b")])])]
    sent = topology_of(Topology(3, rows))
    assert topology_of(sent.value()) == sent
    assert topology_of(Topology(3, [rows[0]._replace(source_topics=["u"])])) != sent
