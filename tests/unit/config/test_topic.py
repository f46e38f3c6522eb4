from __future__ import annotations

from dataclasses import fields

import pytest

from penstock.config.properties import ConfigError, Effect
from penstock.config.tables import TOPIC_PROPERTIES, TOPIC_SYNONYMS
from penstock.config.topic import (
    BACKPRESSURE_GROUPS_MAX,
    TopicSettings,
    broker_defaults,
    check_topic_overrides,
    running_defaults,
    running_settings,
    topic_settings,
)


def refusal(overrides: dict[str, str]) -> str:
    with pytest.raises(ConfigError) as caught:
        check_topic_overrides(overrides, TopicSettings())
    return caught.value.message


def test_settings_have_a_field_for_each_property_with_its_default() -> None:
    acting = [row for row in TOPIC_PROPERTIES.values() if row.effect is Effect.ACTED_ON]
    rows = {row.field: row for row in acting if not row.internal}
    assert {field.name for field in fields(TopicSettings)} == set(rows) | {
        "remote_log_storage_system_enable",
        "producer_id_expiration_ms",
    }
    settings = TopicSettings()
    for name, row in rows.items():
        value = getattr(settings, name)
        assert value == (frozenset(("delete",)) if name == "cleanup_policy" else row.default), name


def test_synonyms_have_the_same_default() -> None:
    assert broker_defaults({}) == TopicSettings()
    for name, synonyms in TOPIC_SYNONYMS.items():
        last = synonyms[-1]
        assert last.row.default is not None
        expected = TOPIC_PROPERTIES[name].default
        assert expected == (last.row.default if last.multiplier == 1 else last.row.default * last.multiplier)  # type: ignore[operator]


def test_overrides_win_over_the_broker() -> None:
    broker = broker_defaults({"log.retention.bytes": "10", "message.max.bytes": "2000"})
    settings = topic_settings({"retention.bytes": "20", "cleanup.policy": "compact,delete"}, broker)
    assert (settings.retention_bytes, settings.max_message_bytes) == (20, 2000)
    assert settings.deletes
    assert settings.compacts
    assert not topic_settings({"cleanup.policy": ""}, broker).deletes
    assert topic_settings({"message.timestamp.type": "LogAppendTime"}, broker).log_append_time


@pytest.mark.parametrize(
    ("properties", "retention_ms"),
    [
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.minutes": "-1"}, -1),
    ],
)
def test_the_finest_unit_of_retention_counts(properties: dict[str, str], retention_ms: int) -> None:
    assert broker_defaults(properties).retention_ms == retention_ms


def test_other_units_and_names_of_the_broker() -> None:
    topic = broker_defaults({"log.roll.hours": "1", "log.roll.jitter.ms": "9", "log.flush.scheduler.interval.ms": "8"})
    assert (topic.segment_ms, topic.segment_jitter_ms, topic.flush_ms) == (3_600_000, 9, 8)
    assert broker_defaults({"log.flush.scheduler.interval.ms": "8", "log.flush.interval.ms": "7"}).flush_ms == 7


@pytest.mark.parametrize("name", ["log.retention.hours", "log.retention.minutes", "log.retention.ms"])
def test_a_broker_does_not_keep_nothing(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}=0"):
        broker_defaults({name: "0"})


def test_every_mistake_is_named() -> None:
    message = refusal({"retention.ms": "x", "segment.bytes": "1", "nope": "1"})
    assert len(message.splitlines()) == 3


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("retension.ms", "did you mean retention.ms?"),
        ("log.retention.ms", "is a broker setting; for a topic use retention.ms"),
        ("message.format.version", "no longer a topic setting"),
        ("nope", "docs/configuration.md"),
    ],
)
def test_unknown_names(name: str, sentence: str) -> None:
    assert sentence in refusal({name: "1"})


def test_compaction_lags_must_not_cross() -> None:
    assert "min.compaction.lag.ms=5" in refusal({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"})
    topic_settings({"min.compaction.lag.ms": "4", "max.compaction.lag.ms": "4"}, TopicSettings())


def test_recorded_contradictions_and_mistakes_do_not_keep_a_topic_from_running() -> None:
    defaults = running_defaults(
        {
            "log.cleaner.min.compaction.lag.ms": "9",
            "log.cleaner.max.compaction.lag.ms": "4",
            "log.retention.hours": "1",
            "log.retention.ms": "soon",
            "producer.id.expiration.ms": "never",
        }
    )
    assert (defaults.min_compaction_lag_ms, defaults.max_compaction_lag_ms) == (9, 9)
    assert defaults.retention_ms == 3_600_000
    settings = running_settings({"min.compaction.lag.ms": "20", "retention.bytes": "x", "no.such": "1"}, defaults)
    assert (settings.min_compaction_lag_ms, settings.max_compaction_lag_ms) == (20, 20)
    assert settings.retention_bytes == -1


def test_a_topic_with_a_contradiction_can_be_mended() -> None:
    defaults = broker_defaults({"log.cleaner.max.compaction.lag.ms": "4"})
    before = {"min.compaction.lag.ms": "5"}
    with pytest.raises(ConfigError, match="more than max"):
        check_topic_overrides({**before, "retention.ms": "1"}, defaults, ["retention.ms"], before)
    check_topic_overrides({"min.compaction.lag.ms": "3"}, defaults, ["min.compaction.lag.ms"], before)


def test_tests_may_use_small_segments() -> None:
    assert topic_settings({"internal.segment.bytes": "1000"}, TopicSettings()).segment_bytes == 1000


@pytest.mark.parametrize("text", ["", "*", "none", "0:1", "0:1, 1:2"])
def test_throttled_replicas(text: str) -> None:
    topic_settings({"leader.replication.throttled.replicas": text}, TopicSettings())


@pytest.mark.parametrize("text", ["x", "0", "0:1:2", "0:a", "-1:2"])
def test_bad_throttled_replicas(text: str) -> None:
    assert "partition:broker" in refusal({"follower.replication.throttled.replicas": text})


def test_local_retention() -> None:
    assert topic_settings({"local.retention.ms": "9"}, TopicSettings()).local_retention_ms == 9
    assert broker_defaults({"log.local.retention.ms": "9"}).local_retention_ms == 9
    assert "local.retention.ms=-3" in refusal({"local.retention.ms": "-3"})
    with pytest.raises(ConfigError, match=r"log\.local\.retention\.ms=-3"):
        broker_defaults({"log.local.retention.ms": "-3"})


TIERED = broker_defaults({"remote.log.storage.system.enable": "true"})
ON = {"remote.storage.enable": "true"}


def test_tiered_storage_is_refused_where_the_cluster_has_none() -> None:
    assert "no tiered storage" in refusal(ON)
    check_topic_overrides({"remote.storage.enable": "false"}, TopicSettings())
    assert not topic_settings(ON, TopicSettings()).remote_storage_enable
    check_topic_overrides(ON, TIERED)
    assert topic_settings(ON, TIERED).remote_storage_enable


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        ({"cleanup.policy": "compact"}, "compacted topic"),
        ({"cleanup.policy": "compact,delete"}, "compacted topic"),
        ({"retention.ms": "5", "local.retention.ms": "6"}, "more than retention.ms=5"),
        ({"retention.ms": "5", "local.retention.ms": "-1"}, "more than retention.ms=5"),
        ({"retention.bytes": "5", "local.retention.bytes": "6"}, "more than retention.bytes=5"),
        ({"remote.log.copy.disable": "true", "local.retention.ms": "5"}, "nothing more is copied"),
    ],
)
def test_settings_that_do_not_go_with_tiered_storage(overrides: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        check_topic_overrides({**ON, **overrides}, TIERED)
    check_topic_overrides(overrides, TIERED)


def test_tiered_storage_is_only_turned_off_with_what_it_holds() -> None:
    off = {"remote.storage.enable": "false"}
    with pytest.raises(ConfigError, match=r"remote\.log\.delete\.on\.disable=true"):
        check_topic_overrides(off, TIERED, before=ON)
    check_topic_overrides({**off, "remote.log.delete.on.disable": "true"}, TIERED, before=ON)
    check_topic_overrides(off, TIERED, before={})


def test_a_topic_names_few_groups_that_its_producers_wait_for() -> None:
    names = [f"group-{number}" for number in range(BACKPRESSURE_GROUPS_MAX + 1)]
    check_topic_overrides({"penstock.backpressure.groups": ",".join(names[1:])}, TopicSettings())
    assert "names 17 groups: 16 at most" in refusal({"penstock.backpressure.groups": ",".join(names)})
    # One that has more already can still be changed otherwise.
    old = {"penstock.backpressure.groups": ",".join(names), "retention.ms": "5"}
    check_topic_overrides(old, TopicSettings(), ["retention.ms"], {"penstock.backpressure.groups": ",".join(names)})
