"""What is counted of topics, APIs and decisions: everything begins at zero and is counted once."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.core.metrics import counters
from penstock.core.metrics.counters import (
    TOPIC_FIELDS,
    ApiCounters,
    ApiCountersOff,
    DecisionCounters,
    ReplicaCounters,
    RequestCounters,
    TopicCounters,
    TopicCountersOff,
)
from penstock.runtime.coordinator.counters import GroupCounters, TransactionCounters
from penstock.runtime.logs.cleaner import CleanerCounters
from penstock.runtime.share.counters import ShareCounters
from penstock.runtime.tier.counters import TierCounters

MAKERS: tuple[Any, ...] = (
    TopicCounters,
    TopicCountersOff,
    ReplicaCounters,
    DecisionCounters,
    lambda: ApiCounters("Fetch"),
    RequestCounters,
    GroupCounters,
    TransactionCounters,
    CleanerCounters,
    ShareCounters,
    TierCounters,
)


def numbers(found: Any) -> dict[str, float]:
    slots = [name for kind in type(found).__mro__ for name in getattr(kind, "__slots__", ())]
    values = {name: getattr(found, name) for name in slots or vars(found)}
    return {name: value for name, value in values.items() if isinstance(value, int | float) and name != "is_on"}


@pytest.mark.parametrize("make", MAKERS)
def test_everything_begins_at_zero(make: Any) -> None:
    found = make()
    assert {name: value for name, value in numbers(found).items() if value and not isinstance(value, bool)} == {}
    for name in getattr(found, "__slots__", ()):
        value = getattr(found, name)
        if isinstance(value, counters.Histogram):
            assert (value.count, value.sum) == (0, 0.0)
        if isinstance(value, list):
            assert sum(value) == 0


def test_a_topics_traffic_is_counted_by_kind() -> None:
    topic = TopicCounters()
    topic.appended(3, 1_000)
    topic.appended(1, 1)
    topic.read(7)
    topic.sent(11)
    topic.followed(13)
    topic.in_sync_changed(3, 2)
    topic.in_sync_changed(2, 3)
    topic.in_sync_changed(3, 5)
    topic.in_sync_changed(3, 3)
    assert (topic.messages_in, topic.bytes_in, topic.bytes_out) == (4, 1_001, 7)
    assert (topic.replicated_bytes_out, topic.replicated_bytes_in) == (11, 13)
    assert (topic.in_sync_shrinks, topic.in_sync_expansions) == (1, 2)


@pytest.mark.parametrize(("size", "bucket"), [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (1 << 31, 31)])
def test_a_batch_size_is_in_the_first_bucket_that_holds_it(size: int, bucket: int) -> None:
    replicas = ReplicaCounters()
    replicas.topic("orders").appended(1, size)
    assert [number for number, count in enumerate(replicas.batch_sizes) if count] == [bucket]
    assert len(replicas.batch_sizes) == 32


def test_topics_that_are_gone_still_count_in_the_sum() -> None:
    replicas = ReplicaCounters()
    first = replicas.topic("orders")
    assert replicas.topic("orders") is first
    for number, field in enumerate(TOPIC_FIELDS):
        setattr(first, field, number + 1)
        setattr(replicas.topic("others"), field, 100)
    replicas.forget("orders")
    replicas.forget("orders")
    assert [replicas.total(field) for field in TOPIC_FIELDS] == [101 + number for number in range(len(TOPIC_FIELDS))]
    assert replicas.topic("orders") is not first
    assert replicas.topic("orders").flushes is replicas.flushes


def test_counting_can_be_switched_off() -> None:
    topic = ReplicaCounters(is_on=False).topic("orders")
    topic.appended(1, 5)
    topic.read(5)
    topic.sent(5)
    topic.followed(5)
    assert all(getattr(topic, field) == 0 for field in TOPIC_FIELDS)
    api = RequestCounters(is_on=False).api("Fetch")
    assert isinstance(api, ApiCountersOff)
    api.answered(1.0)
    api.answered_late(1.0, 1.0)
    assert (api.overall.count, api.local.count) == (0, 0)


def test_requests_are_counted_with_the_time_that_they_took_and_waited() -> None:
    requests = RequestCounters()
    api = requests.api("Fetch")
    assert requests.api("Fetch") is api
    api.answered(0.25)
    api.answered_late(3.0, 2.0)
    assert (api.overall.count, api.overall.sum) == (2, 3.25)
    assert (api.local.count, api.local.sum) == (2, 1.25)
    assert (api.waiting.count, api.waiting.sum) == (1, 2.0)
    assert api.prompt.counts[api.bounds.index(0.25)] == 1
    api.failed(6)
    api.failed(6)
    api.failed(3)
    assert api.errors == {6: 2, 3: 1}


def test_decisions_are_counted_and_elections_among_them() -> None:
    decisions = DecisionCounters()
    decisions.decided(0.5, 0, 0)
    assert (decisions.decision_times.count, decisions.election_times.count) == (1, 0)
    decisions.decided(0.5, 3, 1)
    decisions.decided(0.5, 2, 0)
    assert (decisions.elections, decisions.unclean_elections) == (5, 1)
    assert (decisions.decision_times.count, decisions.election_times.count) == (3, 2)
