"""What DescribeConfigs answers: each setting with its value, where that comes from, and what it overrides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum

from penstock.config.names import find_property
from penstock.config.properties import Property, UpdateMode, Value
from penstock.config.tables import (
    BROKER_PROPERTIES,
    CLIENT_METRICS_PROPERTIES,
    GROUP_PROPERTIES,
    GROUP_SYNONYMS,
    TOPIC_PROPERTIES,
    TOPIC_SYNONYMS,
)
from penstock.config.topic import synonym_value

UNKNOWN_TYPE = 0
# log.flush.scheduler.interval.ms is a setting of its own that only lends its value to the other one.
_UNITS_BY_NAME = {
    synonym.name: [one.name for one in synonyms]
    for synonyms in TOPIC_SYNONYMS.values()
    for synonym in synonyms
    if synonym.name != "log.flush.scheduler.interval.ms"
}


class ConfigSource(IntEnum):
    """Where a value comes from, with the codes that DescribeConfigs reports."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """One link of the chain of names and places that a value can come from, the winner first."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting as DescribeConfigs reports it; the value of a sensitive one is None."""

    name: str
    value: str | None
    source: ConfigSource
    synonyms: tuple[ConfigSynonym, ...]
    type: int
    read_only: bool
    sensitive: bool
    doc: str


@dataclass(frozen=True, slots=True)
class BrokerProperties:
    """The broker properties of a node by layer; the first layer that has a name wins."""

    static: Mapping[str, str] = field(default_factory=dict)
    dynamic_default: Mapping[str, str] = field(default_factory=dict)
    dynamic: Mapping[str, str] = field(default_factory=dict)

    def effective(self) -> dict[str, str]:
        """All layers as one."""
        return {**self.static, **self.dynamic_default, **self.dynamic}

    def layers(self) -> tuple[tuple[ConfigSource, Mapping[str, str]], ...]:
        """The layers that are set, the winner first."""
        return (
            (ConfigSource.DYNAMIC_BROKER, self.dynamic),
            (ConfigSource.DYNAMIC_DEFAULT_BROKER, self.dynamic_default),
            (ConfigSource.STATIC_BROKER, self.static),
        )


def describe_topic(overrides: Mapping[str, str], broker: BrokerProperties) -> list[ConfigEntry]:
    """Every setting of a topic, in name order. Internal ones only when they are overridden."""
    effective = broker.effective()
    entries = []
    for name, row in TOPIC_PROPERTIES.items():
        if row.internal and name not in overrides:
            continue
        synonyms = _topic_synonyms(row, overrides, broker)
        value = row.format(_topic_value(row, overrides, effective))
        entries.append(_entry(row, value, synonyms, read_only=False))
    return entries


def describe_broker(broker: BrokerProperties) -> list[ConfigEntry]:
    """Every setting of a broker, in name order, the ones it was given and the ones it was not.

    Settings that Penstock does not know belong to plugins and may be secrets: their values are not shown.
    """
    effective = broker.effective()
    names = [name for name, row in BROKER_PROPERTIES.items() if name in effective or _shown(row)]
    names += [name for name in effective if name not in BROKER_PROPERTIES]
    return [_broker_entry(name, broker, effective) for name in sorted(names)]


def describe_cluster_defaults(dynamic_default: Mapping[str, str]) -> list[ConfigEntry]:
    """The settings of all brokers that were changed while they ran."""
    broker = BrokerProperties(dynamic_default=dynamic_default)
    entries = []
    for name in sorted(dynamic_default):
        entry = _broker_entry(name, broker, dynamic_default)
        synonyms = tuple(one for one in entry.synonyms if one.source is ConfigSource.DYNAMIC_DEFAULT_BROKER)
        entries.append(replace(entry, synonyms=synonyms))
    return entries


def describe_group(overrides: Mapping[str, str], broker: BrokerProperties) -> list[ConfigEntry]:
    """Every setting of a group, in name order; what the group leaves open comes from the broker's group.* settings."""
    entries = []
    effective = broker.effective()
    for name, row in GROUP_PROPERTIES.items():
        if name in overrides:
            value, source = overrides[name], ConfigSource.GROUP
        else:
            broker_rows = [synonym.row for synonym in GROUP_SYNONYMS.get(name, ())]
            inherited = [effective.get(broker_row.name, broker_row.default_text) for broker_row in broker_rows]
            value, source = next(iter(inherited), row.default_text) or "", ConfigSource.DEFAULT
        entries.append(_entry(row, value, (ConfigSynonym(name, value, source),), read_only=False))
    return entries


def describe_client_metrics(overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """Every setting of a client metrics subscription, in name order, the ones it was given and the ones it was not."""
    entries = []
    for name, row in CLIENT_METRICS_PROPERTIES.items():
        source = ConfigSource.CLIENT_METRICS if name in overrides else ConfigSource.DEFAULT
        value = overrides.get(name, row.default_text) or ""
        entries.append(_entry(row, value, (ConfigSynonym(name, value, source),), read_only=False))
    return entries


def _entry(
    row: Property,
    value: str | None,
    synonyms: tuple[ConfigSynonym, ...],
    read_only: bool | None = None,
    name: str | None = None,
) -> ConfigEntry:
    source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
    if read_only is None:
        read_only = row.update is UpdateMode.READ_ONLY
    shown = None if row.sensitive else value
    return ConfigEntry(name or row.name, shown, source, synonyms, int(row.type), read_only, row.sensitive, row.doc)


def _shown(row: Property) -> bool:
    return not row.internal and row.update is not UpdateMode.DYNAMIC_ONLY


def _topic_value(row: Property, overrides: Mapping[str, str], effective: Mapping[str, str]) -> Value:
    if row.name in overrides:
        return row.parse(overrides[row.name])
    for synonym in TOPIC_SYNONYMS.get(row.name, ()):
        if synonym.name in effective:
            return synonym_value(synonym, effective[synonym.name])
    return row.default_value


def _topic_synonyms(row: Property, overrides: Mapping[str, str], broker: BrokerProperties) -> tuple[ConfigSynonym, ...]:
    chain = []
    if row.name in overrides:
        chain.append(ConfigSynonym(row.name, row.format(row.parse(overrides[row.name])), ConfigSource.TOPIC))
    names = [synonym.name for synonym in TOPIC_SYNONYMS.get(row.name, ())]
    if names:
        chain.extend(_broker_synonyms(names[0], names, broker, sensitive=row.sensitive))
    return tuple(chain)


def _broker_entry(name: str, broker: BrokerProperties, effective: Mapping[str, str]) -> ConfigEntry:
    row = find_property(name)
    names = _same_setting(name, row)
    sensitive = row is None or row.sensitive
    synonyms = tuple(_broker_synonyms(name, names, broker, sensitive))
    if row is None:
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
        return ConfigEntry(name, None, source, synonyms, UNKNOWN_TYPE, True, True, "")
    text = effective.get(name)
    value = row.default_text if text is None else row.format(row.parse(text))
    # Kafka reports what is set for one listener as read-only, although it can be changed.
    return _entry(row, value, synonyms, read_only=True if name != row.name else None, name=name)


def _same_setting(name: str, row: Property | None) -> list[str]:
    """The names that stand for the same broker setting, the finest unit first."""
    names = _UNITS_BY_NAME.get(name)
    if names is not None:
        return names
    return [name, row.name] if row is not None and row.name != name else [name]


def _broker_synonyms(name: str, names: list[str], broker: BrokerProperties, sensitive: bool) -> list[ConfigSynonym]:
    chain: list[ConfigSynonym] = []
    for source, layer in broker.layers():
        chain.extend(ConfigSynonym(one, None if sensitive else layer[one], source) for one in names if one in layer)
    for one in names:
        row = BROKER_PROPERTIES.get(one)
        if row is not None and row.default_text is not None:
            chain.append(ConfigSynonym(one, None if sensitive else row.default_text, ConfigSource.DEFAULT))
    # Kafka's chain starts where the described name itself first appears.
    start = next((position for position, synonym in enumerate(chain) if synonym.name == name), len(chain))
    return chain[start:]
