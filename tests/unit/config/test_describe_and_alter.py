from __future__ import annotations

from contextlib import suppress

import pytest

from penstock.config.alter import Alteration, AlterOperation, ConfigScope, apply_incremental, validate_overrides
from penstock.config.describe import (
    BrokerProperties,
    ConfigEntry,
    ConfigSource,
    ConfigSynonym,
    describe_broker,
    describe_client_metrics,
    describe_cluster_defaults,
    describe_group,
    describe_topic,
)
from penstock.config.properties import ConfigError, PropertyType
from penstock.config.topic import TopicSettings, topic_settings
from penstock.model.errors import ApiError, ErrorCode

SET, DELETE, APPEND, SUBTRACT = AlterOperation
TOPIC, BROKER, CLUSTER = ConfigScope.TOPIC, ConfigScope.BROKER, ConfigScope.CLUSTER
NODE = BrokerProperties(
    static={
        "log.retention.hours": "100",
        "log.roll.ms": "7000000",
        "num.partitions": "2",
        "ssl.key.password": "secret",
        "my.plugin.setting": "1",
        "listener.name.plaintext.max.connections": "77",
    },
    dynamic_default={"log.retention.ms": "99999999"},
    dynamic={"log.cleaner.backoff.ms": "12000"},
)


def by_name(entries: list[ConfigEntry]) -> dict[str, ConfigEntry]:
    names = [entry.name for entry in entries]
    assert names == sorted(set(names))
    return {entry.name: entry for entry in entries}


def test_a_topic() -> None:
    entries = by_name(describe_topic({"retention.bytes": "12345", "segment.ms": " 100000"}, NODE))
    assert len(entries) == 41
    assert entries["retention.bytes"] == ConfigEntry(
        "retention.bytes",
        "12345",
        ConfigSource.TOPIC,
        (
            ConfigSynonym("retention.bytes", "12345", ConfigSource.TOPIC),
            ConfigSynonym("log.retention.bytes", "-1", ConfigSource.DEFAULT),
        ),
        PropertyType.LONG,
        False,
        False,
        entries["retention.bytes"].doc,
    )
    segment = entries["segment.ms"]
    assert segment.value == "100000"
    assert [(one.name, one.value, int(one.source)) for one in segment.synonyms] == [
        ("segment.ms", "100000", 1),
        ("log.roll.ms", "7000000", 4),
        ("log.roll.hours", "168", 5),
    ]
    retention = entries["retention.ms"]
    assert (retention.value, retention.source) == ("99999999", ConfigSource.DYNAMIC_DEFAULT_BROKER)
    assert [one.name for one in retention.synonyms] == [
        "log.retention.ms",
        "log.retention.hours",
        "log.retention.hours",
    ]
    assert entries["remote.storage.enable"].synonyms == ()
    assert entries["remote.storage.enable"].source is ConfigSource.DEFAULT
    assert not any(entry.read_only or entry.sensitive for entry in entries.values())


def test_a_topic_in_hours_reports_milliseconds_as_kafka_does() -> None:
    entry = by_name(describe_topic({}, BrokerProperties({"log.retention.hours": "2"})))["retention.ms"]
    # Kafka's chain begins at log.retention.ms, which is not set, so it is empty and the source is the default.
    assert (entry.value, entry.source, entry.synonyms) == ("7200000", ConfigSource.DEFAULT, ())


def test_internal_settings_show_once_they_are_set() -> None:
    assert "internal.segment.bytes" in by_name(describe_topic({"internal.segment.bytes": "5"}, BrokerProperties()))


def test_a_broker() -> None:
    entries = by_name(describe_broker(NODE))
    partitions = entries["num.partitions"]
    assert (partitions.value, partitions.source, partitions.read_only) == ("2", ConfigSource.STATIC_BROKER, True)
    backoff = entries["log.cleaner.backoff.ms"]
    assert (backoff.value, backoff.source, backoff.read_only) == ("12000", ConfigSource.DYNAMIC_BROKER, False)
    assert [one.value for one in backoff.synonyms] == ["12000", "15000"]
    password = entries["ssl.key.password"]
    assert (password.value, password.sensitive, password.synonyms[0].value) == (None, True, None)
    plugin = entries["my.plugin.setting"]
    assert (plugin.value, plugin.sensitive, plugin.type) == (None, True, 0)
    assert entries["log.cleanup.policy"].value == "delete"
    assert entries["broker.rack"].value is None
    assert entries["listener.name.plaintext.max.connections"].value == "77"
    assert "log.initial.task.delay.ms" not in entries


def test_no_secret_in_any_answer() -> None:
    assert "secret" not in repr([(entry.value, entry.synonyms) for entry in describe_broker(NODE)])


def test_cluster_defaults() -> None:
    entries = describe_cluster_defaults({"log.retention.ms": "5", "my.own": "1"})
    assert [(entry.name, entry.value, int(entry.source)) for entry in entries] == [
        ("log.retention.ms", "5", 3),
        ("my.own", None, 3),
    ]


def test_a_group_and_a_subscription() -> None:
    broker = BrokerProperties({"group.consumer.session.timeout.ms": "50000"})
    entries = by_name(describe_group({"share.auto.offset.reset": "earliest"}, broker))
    assert entries["share.auto.offset.reset"].source is ConfigSource.GROUP
    assert entries["consumer.session.timeout.ms"].value == "50000"
    metrics = describe_client_metrics({"interval.ms": "1000"})
    assert [(entry.name, entry.value, int(entry.source)) for entry in metrics] == [
        ("interval.ms", "1000", 7),
        ("match", "", 5),
        ("metrics", "", 5),
    ]


@pytest.mark.parametrize(
    ("current", "operations", "expected"),
    [
        ({}, [("retention.ms", SET, "5")], {"retention.ms": "5"}),
        ({"retention.ms": "4"}, [("retention.ms", DELETE, None)], {}),
        ({}, [("nope", DELETE, None)], {}),
        ({}, [("cleanup.policy", APPEND, "compact")], {"cleanup.policy": "delete,compact"}),
        ({"cleanup.policy": "compact"}, [("cleanup.policy", APPEND, "compact")], {"cleanup.policy": "compact"}),
        ({"cleanup.policy": "compact,delete"}, [("cleanup.policy", SUBTRACT, "compact")], {"cleanup.policy": "delete"}),
        ({}, [("cleanup.policy", SUBTRACT, "delete")], {"cleanup.policy": ""}),
        ({"retention.ms": "4"}, [("retention.bytes", SET, "3")], {"retention.ms": "4", "retention.bytes": "3"}),
    ],
)
def test_changes_of_a_topic(current: dict[str, str], operations: list[Alteration], expected: dict[str, str]) -> None:
    before = dict(current)
    assert apply_incremental(current, operations, TOPIC) == expected
    assert current == before


@pytest.mark.parametrize(
    "operation",
    [
        ("retention.ms", SET, "-2"),
        ("retention.ms", APPEND, "5"),
        ("retention.ms", SUBTRACT, "5"),
        ("nope", SET, "5"),
        ("nope", APPEND, "5"),
        ("cleanup.policy", APPEND, "burn"),
        ("remote.storage.enable", SET, "true"),
        ("max.compaction.lag.ms", SET, "1"),
    ],
)
def test_refused_changes_of_a_topic(operation: tuple[str, AlterOperation, str]) -> None:
    with pytest.raises(ConfigError) as caught:
        apply_incremental({"min.compaction.lag.ms": "7"}, [operation], TOPIC)
    assert caught.value.code is ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize(
    "operations",
    [
        [("retention.ms", SET, None)],
        [("retention.ms", SET, "1"), ("retention.ms", DELETE, None)],
    ],
)
def test_requests_that_make_no_sense(operations: list[Alteration]) -> None:
    with pytest.raises(ApiError) as caught:
        apply_incremental({}, operations, TOPIC)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_a_topic_is_checked_with_what_it_inherits() -> None:
    operations = [Alteration("max.compaction.lag.ms", SET, "6")]
    assert apply_incremental({}, operations, TOPIC) == {"max.compaction.lag.ms": "6"}
    with pytest.raises(ConfigError, match=r"min\.compaction\.lag\.ms=7"):
        apply_incremental({}, operations, TOPIC, TopicSettings(min_compaction_lag_ms=7))


def test_tiered_storage_that_there_is_none_of_is_refused_and_its_off_is_not() -> None:
    off = [Alteration("remote.storage.enable", SET, "false"), Alteration("remote.log.copy.disable", SET, " FALSE")]
    assert len(apply_incremental({}, off, TOPIC)) == 2
    with pytest.raises(ConfigError) as caught:
        apply_incremental({}, [Alteration("remote.storage.enable", SET, "true")], TOPIC)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    expected = "remote.storage.enable=true: this cluster has no tiered storage; see remote.log.storage.system.enable"
    assert caught.value.message == expected


def test_a_topic_that_has_what_is_refused_now_can_still_change() -> None:
    current = {"remote.storage.enable": "true"}
    assert apply_incremental(current, [Alteration("retention.ms", SET, "5")], TOPIC)["retention.ms"] == "5"
    assert topic_settings(current, TopicSettings()) == TopicSettings()
    assert by_name(describe_topic(current, NODE))["remote.storage.enable"].value == "true"


# Answers of Apache Kafka 4.1.1 to the same changes; it can also open and close listeners while it runs.
@pytest.mark.parametrize(
    ("name", "value", "broker_takes_it", "cluster_takes_it"),
    [
        ("num.io.threads", "0", False, False),
        ("num.io.threads", "5", True, True),
        ("node.id", "5", False, False),
        ("ssl.keystore.location", "x", False, False),
        ("listener.name.plaintext.ssl.keystore.location", "x", True, False),
        ("my.custom", "1", True, True),
        ("log.retention.hours", "5", False, False),
        ("listeners", "PLAINTEXT://:1", False, False),
        ("max.connections", "5", True, True),
        ("leader.replication.throttled.rate", "5", True, True),
        ("listener.name.plaintext.max.connections", "5", True, True),
        ("log.retention.mss", "5", False, False),
    ],
)
def test_changes_of_brokers(name: str, value: str, broker_takes_it: bool, cluster_takes_it: bool) -> None:
    for scope, takes_it in ((BROKER, broker_takes_it), (CLUSTER, cluster_takes_it)):
        if takes_it:
            assert apply_incremental({}, [(name, SET, value)], scope) == {name: value}
            continue
        with pytest.raises(ConfigError) as caught:
            apply_incremental({}, [(name, SET, value)], scope)
        assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_limits_of_some_addresses_are_checked_before_they_are_taken() -> None:
    name = "max.connections.per.ip.overrides"
    assert apply_incremental({}, [(name, SET, "10.0.0.7:5")], CLUSTER) == {name: "10.0.0.7:5"}
    with pytest.raises(ConfigError, match="expected address:count"):
        apply_incremental({}, [(name, SET, "10.0.0.7")], CLUSTER)


def test_only_what_changes_is_held_against_a_broker() -> None:
    assert apply_incremental({"node.id": "1"}, [("max.connections", SET, "5")], BROKER)["max.connections"] == "5"
    with pytest.raises(ConfigError):
        validate_overrides({"node.id": "1"}, BROKER)


@pytest.mark.parametrize(
    ("scope", "name", "value"),
    [
        (ConfigScope.GROUP, "consumer.session.timeout.ms", "45000"),
        (ConfigScope.GROUP, "share.auto.offset.reset", "by_duration:PT1H"),
        (ConfigScope.CLIENT_METRICS, "interval.ms", "1000"),
    ],
)
def test_groups_and_subscriptions(scope: ConfigScope, name: str, value: str) -> None:
    assert apply_incremental({}, [(name, SET, value)], scope) == {name: value}
    for wrong in ((name, SET, "x"), (name + "s", SET, "1"), ("nope", SET, "1"), (name, APPEND, "1")):
        with pytest.raises(ConfigError):
            apply_incremental({}, [wrong], scope)
    assert apply_incremental({}, [("metrics", APPEND, "a")], ConfigScope.CLIENT_METRICS) == {"metrics": "a"}


@pytest.mark.parametrize("scope", [ConfigScope.TOPIC, ConfigScope.GROUP, ConfigScope.CLUSTER])
def test_settings_larger_than_every_node_can_read_are_rejected(scope: ConfigScope) -> None:
    """The owner of a topic may change its settings, and a long value stopped the controller for half a minute."""
    long = ",".join(f"{number}:1" for number in range(40_000))
    many = [Alteration(f"setting.{number}", AlterOperation.SET, "1") for number in range(1_001)]
    for operations, said in (
        ([Alteration("leader.replication.throttled.replicas", AlterOperation.SET, long)], "262144 are allowed"),
        ([Alteration("leader.replication.throttled.replicas", AlterOperation.APPEND, long)], "262144 are allowed"),
        ([Alteration("n" * 257, AlterOperation.SET, "1")], "257 characters, 256 are allowed"),
        (many, "more than 1000 settings"),
    ):
        with pytest.raises(ConfigError) as caught:
            apply_incremental({}, operations, scope)
        assert said in caught.value.message
        assert len(caught.value.message) < 1_000
    with pytest.raises(ConfigError, match="262144 are allowed"):
        validate_overrides({"leader.replication.throttled.replicas": long}, scope)


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("min.cleanable.dirty.ratio", "1" * 250_000 + "x"),
        ("leader.replication.throttled.replicas", "0:1" + " " * 250_000 + "x"),
        ("leader.replication.throttled.replicas", "0:1," * 60_000),
        ("penstock.backpressure.groups", "a" + " " * 250_000 + "b"),
    ],
)
def test_long_values_are_read_in_no_time(name: str, value: str) -> None:
    with suppress(ConfigError):
        apply_incremental({}, [Alteration(name, AlterOperation.SET, value)], ConfigScope.TOPIC)


def test_long_lists_grow_in_no_time() -> None:
    name = "leader.replication.throttled.replicas"
    half = [",".join(f"{number}:1" for number in range(start, start + 14_000)) for start in (0, 14_000)]
    grown = apply_incremental({name: half[0]}, [Alteration(name, AlterOperation.APPEND, half[1])], ConfigScope.TOPIC)
    assert grown == {name: ",".join(half)}
    left = apply_incremental(grown, [Alteration(name, AlterOperation.SUBTRACT, half[0])], ConfigScope.TOPIC)
    assert left == {name: half[1]}
