"""A line of definitions/*.txt, and the property that it is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.config.properties import INT_MAX, LONG_MAX, REQUIRED, Effect, Property, PropertyType, UpdateMode
from penstock.config.tables import BROKER_PROPERTIES, GROUP_SYNONYMS, TOPIC_PROPERTIES, TOPIC_SYNONYMS


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (
            BROKER_PROPERTIES,
            Property("max.connections", PropertyType.INT, INT_MAX, "", minimum=0, update=UpdateMode.CLUSTER_WIDE),
        ),
        (
            BROKER_PROPERTIES,
            Property("process.roles", PropertyType.LIST, REQUIRED, "", choices=("broker", "controller")),
        ),
        (
            BROKER_PROPERTIES,
            Property("log.retention.minutes", PropertyType.INT, None, "", minimum=1, exceptions=(-1,)),
        ),
        (
            BROKER_PROPERTIES,
            Property(
                "remote.log.manager.task.retry.jitter",
                PropertyType.DOUBLE,
                0.2,
                "",
                minimum=0,
                maximum=0.5,
                effect=Effect.ACCEPTED,
                reason="Object storage is part of Penstock, and keeps no metadata of its own.",
                internal=True,
            ),
        ),
        (
            BROKER_PROPERTIES,
            Property(
                "group.consumer.migration.policy",
                PropertyType.STRING,
                "bidirectional",
                "",
                choices=("disabled", "downgrade", "upgrade", "bidirectional"),
                ignore_case=True,
            ),
        ),
        (
            BROKER_PROPERTIES,
            Property(
                "follower.replication.throttled.rate",
                PropertyType.LONG,
                LONG_MAX,
                "",
                minimum=0,
                update=UpdateMode.DYNAMIC_ONLY,
            ),
        ),
        (
            BROKER_PROPERTIES,
            Property(
                "ssl.provider",
                PropertyType.STRING,
                None,
                "",
                update=UpdateMode.PER_BROKER,
                effect=Effect.ACCEPTED,
                reason="It names or tunes Java code, which Penstock does not run.",
            ),
        ),
        (
            BROKER_PROPERTIES,
            Property("offsets.commit.timeout.ms", PropertyType.INT, 5000, "", minimum=1, effect=Effect.PLANNED),
        ),
        (
            TOPIC_PROPERTIES,
            Property("compression.zstd.level", PropertyType.INT, 3, "", minimum=-131_072, maximum=22),
        ),
        (TOPIC_PROPERTIES, Property("follower.replication.throttled.replicas", PropertyType.LIST, (), "")),
    ],
    ids=lambda value: value.name if isinstance(value, Property) else "",
)
def test_a_line_says_everything(table: dict[str, Property], expected: Property) -> None:
    row = table[expected.name]
    assert row == replace(expected, doc=row.doc)
    assert type(row.default) is type(expected.default)


def test_the_broker_settings_behind_a_default_are_in_order() -> None:
    names = [(synonym.name, synonym.multiplier) for synonym in TOPIC_SYNONYMS["retention.ms"]]
    assert names == [("log.retention.ms", 1), ("log.retention.minutes", 60_000), ("log.retention.hours", 3_600_000)]
    assert "follower.replication.throttled.replicas" not in TOPIC_SYNONYMS
    (synonym,) = GROUP_SYNONYMS["share.record.lock.duration.ms"]
    assert synonym.name == "group.share.record.lock.duration.ms"
