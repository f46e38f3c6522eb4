"""Topic settings: every topic property of Kafka 4.3, the broker properties that give its default, and their checks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from penstock.config.properties import ConfigError, Finding, Property, Value, check_sizes, config_error, nearest
from penstock.config.tables import BROKER_PROPERTIES, TOPIC_PROPERTIES, TOPIC_SYNONYMS, Synonym
from penstock.config.tiering import check_tiering

CLEANUP_DELETE = "delete"
CLEANUP_COMPACT = "compact"
CREATE_TIME = "CreateTime"
LOG_APPEND_TIME = "LogAppendTime"
UNLIMITED = -1
REMOTE_STORAGE = "remote.storage.enable"
BACKPRESSURE_GROUPS = "penstock.backpressure.groups"
# Brokers ask about each of them at an interval.
BACKPRESSURE_GROUPS_MAX = 16
TIERING = "remote.log.storage.system.enable"
PRODUCER_EXPIRATION = "producer.id.expiration.ms"
TOPIC_NAME_STRATEGY = "io.confluent.kafka.serializers.subject.TopicNameStrategy"
# As a whole, since a list may have thousands of pairs.
_PAIRS = re.compile(r"\s*[0-9]+:[0-9]+\s*(?:,\s*[0-9]+:[0-9]+\s*)*+")
SHOWN_MAX = 200
_REMOVED = {
    "message.format.version": "records are always stored in the current format; leave it out",
    "message.downconversion.enable": "old record formats are no longer served; leave it out",
    "message.timestamp.difference.max.ms": "use message.timestamp.before.max.ms and message.timestamp.after.max.ms",
}


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """What a topic runs with. `TopicSettings()` is Kafka's defaults.

    Times are milliseconds, sizes are bytes, -1 means no limit for retention.
    """

    cleanup_policy: frozenset[str] = frozenset((CLEANUP_DELETE,))
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_type: str = "producer"
    compression_zstd_level: int = 3
    confluent_key_schema_validation: bool = False
    confluent_key_subject_name_strategy: str = TOPIC_NAME_STRATEGY
    confluent_value_schema_validation: bool = False
    confluent_value_subject_name_strategy: str = TOPIC_NAME_STRATEGY
    delete_retention_ms: int = 86_400_000
    errors_deadletterqueue_group_enable: bool = False
    file_delete_delay_ms: int = 60_000
    flush_messages: int = 2**63 - 1
    flush_ms: int = 2**63 - 1
    follower_replication_throttled_replicas: tuple[str, ...] = ()
    index_interval_bytes: int = 4096
    leader_replication_throttled_replicas: tuple[str, ...] = ()
    local_retention_bytes: int = -2
    local_retention_ms: int = -2
    max_compaction_lag_ms: int = 2**63 - 1
    max_message_bytes: int = 1_048_588
    message_timestamp_after_max_ms: int = 3_600_000
    message_timestamp_before_max_ms: int = 2**63 - 1
    message_timestamp_type: str = CREATE_TIME
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    penstock_acks_min: str = "0"
    penstock_backpressure_groups: tuple[str, ...] = ()
    penstock_backpressure_lag_max: int = 100_000
    preallocate: bool = False
    # How long idle producers are remembered; a broker setting.
    producer_id_expiration_ms: int = 86_400_000
    remote_log_copy_disable: bool = False
    remote_log_delete_on_disable: bool = False
    # Whether the cluster has tiered storage at all; a broker setting.
    remote_log_storage_system_enable: bool = False
    remote_storage_enable: bool = False
    retention_bytes: int = UNLIMITED
    retention_ms: int = 604_800_000
    segment_bytes: int = 1_073_741_824
    segment_index_bytes: int = 10_485_760
    segment_jitter_ms: int = 0
    segment_ms: int = 604_800_000
    unclean_leader_election_enable: bool = False

    @property
    def deletes(self) -> bool:
        """Whether old segments are removed by retention."""
        return CLEANUP_DELETE in self.cleanup_policy

    @property
    def compacts(self) -> bool:
        """Whether only the last record of each key is kept."""
        return CLEANUP_COMPACT in self.cleanup_policy

    @property
    def log_append_time(self) -> bool:
        """Whether the broker stamps records with its own time."""
        return self.message_timestamp_type == LOG_APPEND_TIME


_FIELD_NAMES = frozenset(one.name for one in fields(TopicSettings))


def topic_settings(overrides: Mapping[str, str], defaults: TopicSettings) -> TopicSettings:
    """The settings of a topic with these overrides; raises ConfigError naming every property that is wrong."""
    return _checked(_overridden(_parse_overrides(overrides, Property.parse), defaults))


def running_settings(overrides: Mapping[str, str], defaults: TopicSettings) -> TopicSettings:
    """What a topic with these recorded overrides runs with, whatever they are: its replicas must be served.

    They were valid when they were recorded, perhaps with other defaults or by another implementation's controller. What
    cannot be read is left out. Where the limits of compaction contradict each other, records are kept for as long as
    the lower one requires.
    """
    return _reconciled(_overridden(_readable(overrides, lambda some: _parse_overrides(some, Property.parse)), defaults))


def _overridden(changes: dict[str, Any], defaults: TopicSettings) -> TopicSettings:
    internal_segment_bytes = changes.pop("internal_segment_bytes", None)
    if internal_segment_bytes is not None:
        changes["segment_bytes"] = internal_segment_bytes
    if not defaults.remote_log_storage_system_enable:
        changes.pop("remote_storage_enable", None)
    return replace(defaults, **changes)


def _readable(texts: Mapping[str, str], read: Callable[[Mapping[str, str]], dict[str, Any]]) -> dict[str, Any]:
    """What `read` returns, without the properties that it refuses."""
    try:
        return read(texts)
    except ConfigError as error:
        wrong = {finding.name for finding in error.findings}
        rest = {name: text for name, text in texts.items() if name not in wrong}
        assert len(rest) < len(texts), "what is wrong is among what was read"
        return _readable(rest, read)


def check_topic_overrides(
    overrides: Mapping[str, str],
    defaults: TopicSettings,
    changed: Iterable[str] | None = None,
    before: Mapping[str, str] | None = None,
) -> None:
    """Check what a topic is to have; raises ConfigError, for what is `changed` also if Penstock does not offer it.

    `before` are the overrides of a topic that exists.
    """
    names = overrides.keys() if changed is None else overrides.keys() & set(changed)
    check_sizes((name, overrides[name]) for name in names)
    _parse_overrides({name: overrides[name] for name in overrides if name in names}, Property.accept)
    settings = topic_settings(overrides, defaults)
    if BACKPRESSURE_GROUPS in names:
        _check_backpressure(settings)
    enables = REMOTE_STORAGE in names and TOPIC_PROPERTIES[REMOTE_STORAGE].parse(overrides[REMOTE_STORAGE]) is True
    check_tiering(settings, None if before is None else running_settings(before, defaults), enables=enables)


def _check_backpressure(settings: TopicSettings) -> None:
    count = len(settings.penstock_backpressure_groups)
    if count > BACKPRESSURE_GROUPS_MAX:
        raise config_error(
            BACKPRESSURE_GROUPS,
            f"{BACKPRESSURE_GROUPS} names {count} groups: {BACKPRESSURE_GROUPS_MAX} at most, since brokers ask about "
            "each of them again and again",
        )


def broker_defaults(properties: Mapping[str, str]) -> TopicSettings:
    """What a broker with these properties gives to topics that don't say otherwise; raises ConfigError."""
    return _checked(replace(TopicSettings(), **_broker_changes(properties)))


def running_defaults(properties: Mapping[str, str]) -> TopicSettings:
    """The same for properties that are recorded, whatever they are; see `running_settings`."""
    return _reconciled(replace(TopicSettings(), **_readable(properties, _broker_changes)))


def _broker_changes(properties: Mapping[str, str]) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    findings: list[Finding] = []
    for name, synonyms in TOPIC_SYNONYMS.items():
        chosen = next((synonym for synonym in synonyms if synonym.name in properties), None)
        if chosen is None:
            continue
        try:
            changes[TOPIC_PROPERTIES[name].field] = _field_value(name, synonym_value(chosen, properties[chosen.name]))
        except ConfigError as error:
            findings.extend(error.findings)
    for name in (TIERING, PRODUCER_EXPIRATION):
        if name in properties:
            try:
                changes[name.replace(".", "_")] = BROKER_PROPERTIES[name].parse(properties[name])
            except ConfigError as error:
                findings.extend(error.findings)
    if findings:
        raise ConfigError(findings)
    return _acting(changes)


def synonym_value(synonym: Synonym, text: str) -> Value:
    """Read a broker property's text as the value of the topic property that it stands for; raises ConfigError."""
    value = synonym.row.parse(text)
    if synonym.multiplier == 1 or not isinstance(value, int):
        return value
    # -1 hours or minutes mean "no limit", as -1 milliseconds do.
    return UNLIMITED if value < 0 else value * synonym.multiplier


def _parse_overrides(overrides: Mapping[str, str], read: Callable[[Property, str], Value]) -> dict[str, Any]:
    changes: dict[str, object] = {}
    findings: list[Finding] = []
    for name, text in overrides.items():
        row = TOPIC_PROPERTIES.get(name)
        if row is None:
            findings.append(Finding(name, _unknown(name)))
            continue
        try:
            changes[row.field] = _field_value(name, read(row, text))
            if name.endswith(".replication.throttled.replicas"):
                _check_throttled_replicas(name, text)
        except ConfigError as error:
            findings.extend(error.findings)
    if findings:
        raise ConfigError(findings)
    return _acting(changes)


def _acting(changes: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in changes.items() if name in _FIELD_NAMES or name == "internal_segment_bytes"}


def _field_value(name: str, value: Value) -> object:
    if name == "cleanup.policy":
        assert isinstance(value, tuple)
        return frozenset(value)
    return value


def _unknown(name: str) -> str:
    if name in _REMOVED:
        return f"{name} is no longer a topic setting: {_REMOVED[name]}"
    for topic_name, synonyms in TOPIC_SYNONYMS.items():
        if any(synonym.name == name for synonym in synonyms):
            return f"{name} is a broker setting; for a topic use {topic_name}"
    suggestion = nearest(name, TOPIC_PROPERTIES)
    if suggestion is not None:
        return f"{name} is not a topic setting; did you mean {suggestion}?"
    return f"{name} is not a topic setting; docs/configuration.md lists those that are"


def _check_throttled_replicas(name: str, text: str) -> None:
    text = text.strip()
    if text not in ("", "*", "none") and not _PAIRS.fullmatch(text):
        shown = text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"
        raise config_error(name, f"{name}={shown}: expected *, or partition:broker pairs such as 0:101,1:102")


def _checked(settings: TopicSettings) -> TopicSettings:
    if settings.min_compaction_lag_ms > settings.max_compaction_lag_ms:
        text = (
            f"min.compaction.lag.ms={settings.min_compaction_lag_ms} is more than "
            f"max.compaction.lag.ms={settings.max_compaction_lag_ms}: lower the first or raise the second"
        )
        raise config_error("min.compaction.lag.ms", text)
    return settings


def _reconciled(settings: TopicSettings) -> TopicSettings:
    if settings.min_compaction_lag_ms > settings.max_compaction_lag_ms:
        return replace(settings, max_compaction_lag_ms=settings.min_compaction_lag_ms)
    return settings
