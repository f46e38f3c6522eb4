"""Rules about topics: what a request would newly break is refused, with the rule's name and what to do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from penstock.config.broker import examine
from penstock.config.topic import TopicSettings
from penstock.core.metadata.topic_policy import TopicPolicy
from penstock.model.errors import ApiError, ErrorCode

DEFAULTS = TopicSettings()
STRICT: dict[str, Any] = {
    "name_pattern": re.compile(r"team\.[a-z]+"),
    "partitions_min": 2,
    "partitions_max": 4,
    "replication_factor_min": 3,
    "min_insync_replicas_min": 2,
    "retention_ms_min": 3_600_000,
    "required": {"cleanup.policy": "compact", "retention.bytes": None},
}
FINE: dict[str, str] = {"cleanup.policy": "compact", "retention.bytes": "5", "min.insync.replicas": "2"}


def refused(check: Any, *arguments: Any) -> str:
    with pytest.raises(ApiError) as caught:
        check(*arguments)
    assert caught.value.code is ErrorCode.POLICY_VIOLATION
    return caught.value.message


def without(name: str) -> dict[str, str]:
    return {key: value for key, value in FINE.items() if key != name}


@pytest.mark.parametrize(
    ("rule", "name", "partitions", "factor", "configs"),
    [
        ("penstock.topic.name.pattern", "xteam.a", 2, 3, FINE),
        ("penstock.topic.name.pattern", "team.a1", 2, 3, FINE),
        ("penstock.topic.partitions.min", "team.a", 1, 3, FINE),
        ("penstock.topic.partitions.max", "team.a", 5, 3, FINE),
        ("penstock.topic.replication.factor.min", "team.a", 2, 2, FINE),
        ("penstock.topic.min.insync.replicas.min", "team.a", 2, 3, without("min.insync.replicas")),
        ("penstock.topic.min.insync.replicas.min", "team.a", 2, 3, FINE | {"min.insync.replicas": "1"}),
        ("penstock.topic.retention.ms.min", "team.a", 2, 3, FINE | {"retention.ms": "3599999"}),
        ("penstock.topic.retention.ms.min", "team.a", 2, 3, FINE | {"retention.ms": "0"}),
        ("penstock.topic.required.settings", "team.a", 2, 3, without("retention.bytes")),
        ("penstock.topic.required.settings", "team.a", 2, 3, FINE | {"cleanup.policy": "delete"}),
    ],
)
def test_a_topic_against_a_rule(rule: str, name: str, partitions: int, factor: int, configs: Mapping[str, str]) -> None:
    message = refused(TopicPolicy(**STRICT).check_new, name, partitions, factor, configs, DEFAULTS)
    assert f"(a rule of this cluster, {rule})" in message


@pytest.mark.parametrize("retention", ["3600000", "-1"])
def test_a_topic_that_keeps_all_rules(retention: str) -> None:
    policy = TopicPolicy(**STRICT)
    for partitions in (2, 4):
        policy.check_new("team.a", partitions, 3, FINE | {"retention.ms": retention}, DEFAULTS)
    TopicPolicy().check_new("any", 1, 1, {"retention.ms": "0"}, DEFAULTS)


def test_penstocks_own_topics_are_exempt() -> None:
    policy = TopicPolicy(**STRICT)
    policy.check_new("__consumer_offsets", 50, 1, {}, DEFAULTS)
    policy.check_change("_audit", {}, {"retention.ms": "1"}, DEFAULTS)
    policy.check_growth("_schemas", 100)


def test_a_topic_grows_up_to_the_limit() -> None:
    TopicPolicy(**STRICT).check_growth("anything", 4)
    assert "partitions.max" in refused(TopicPolicy(**STRICT).check_growth, "anything", 5)


def test_only_a_change_that_breaks_a_rule_is_refused() -> None:
    policy = TopicPolicy(**STRICT)
    old = {"retention.ms": "1", "min.insync.replicas": "1"}
    policy.check_change("old", old, old | {"segment.ms": "5"}, DEFAULTS)
    policy.check_change("old", old, {"min.insync.replicas": "1"}, DEFAULTS)
    assert "retention.ms.min" in refused(policy.check_change, "old", old, old | {"retention.ms": "2"}, DEFAULTS)
    assert "min.insync" in refused(policy.check_change, "old", FINE, without("min.insync.replicas"), DEFAULTS)
    assert "required" in refused(policy.check_change, "old", FINE, without("cleanup.policy"), DEFAULTS)


def test_rules_come_from_settings_which_are_checked() -> None:
    base = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": "1@localhost:9093",
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": "/data",
    }
    settings = examine(base).settings
    assert settings is not None
    assert TopicPolicy.of(settings) == TopicPolicy()
    rules = {
        "penstock.topic.name.pattern": r"team\.[a-z]+",
        "penstock.topic.partitions.min": "2",
        "penstock.topic.partitions.max": "4",
        "penstock.topic.replication.factor.min": "3",
        "penstock.topic.min.insync.replicas.min": "2",
        "penstock.topic.retention.ms.min": "3600000",
        "penstock.topic.required.settings": "cleanup.policy=compact, retention.bytes",
    }
    settings = examine(base | rules).settings
    assert settings is not None
    assert TopicPolicy.of(settings) == TopicPolicy(**STRICT)
    wrong = examine(base | {"penstock.topic.name.pattern": "(", "penstock.topic.required.settings": "retention.m"})
    assert [finding.name for finding in wrong.errors] == [
        "penstock.topic.name.pattern",
        "penstock.topic.required.settings",
    ]
    assert "did you mean retention.ms?" in wrong.errors[1].text
