"""What AlterConfigs and IncrementalAlterConfigs may do to the settings of a topic, a broker or a group.

A change is computed and checked as a whole: either the new settings are returned, or nothing has changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import Enum, IntEnum
from typing import NamedTuple

from penstock.config.broker import CONNECTION_OVERRIDES, connection_overrides
from penstock.config.checks import check_text
from penstock.config.client_metrics import parse_subscription
from penstock.config.names import find_property, has_listener_prefix, unknown_text
from penstock.config.offset_reset import LATEST, OFFSET_RESET, parse_offset_reset
from penstock.config.properties import (
    ConfigError,
    Finding,
    Property,
    PropertyType,
    UpdateMode,
    check_sizes,
    config_error,
    nearest,
)
from penstock.config.tables import CLIENT_METRICS_PROPERTIES, GROUP_PROPERTIES, TOPIC_PROPERTIES
from penstock.config.topic import TopicSettings, check_topic_overrides
from penstock.model.errors import ApiError, ErrorCode

DEAD_LETTER_TOPIC = "errors.deadletterqueue.topic.name"
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_CLUSTER_MODES = (UpdateMode.CLUSTER_WIDE, UpdateMode.DYNAMIC_ONLY)


class ConfigScope(Enum):
    """Whose settings are changed. CLUSTER is the default of all brokers, Kafka's broker resource without a name."""

    TOPIC = "topic"
    BROKER = "broker"
    CLUSTER = "cluster"
    CLIENT_METRICS = "client metrics"
    GROUP = "group"


class AlterOperation(IntEnum):
    """The operations of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Alteration(NamedTuple):
    """One operation on one setting; DELETE ignores the value."""

    name: str
    operation: AlterOperation
    value: str | None


def apply_incremental(
    current: Mapping[str, str],
    operations: Iterable[Alteration | tuple[str, AlterOperation, str | None]],
    scope: ConfigScope,
    defaults: TopicSettings | None = None,
) -> dict[str, str]:
    """The settings after these operations. `defaults` are what a topic inherits, Kafka's own when not given.

    Raises ConfigError when the result is not valid (INVALID_CONFIG; for brokers INVALID_REQUEST, as Kafka does), and
    ApiError (INVALID_REQUEST) when the request names a setting twice or leaves a value out.
    """
    wanted = [*operations]
    check_sizes((name, value) for name, _, value in wanted)
    result = dict(current)
    seen = set()
    for name, operation, value in wanted:
        if name in seen:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{name} is changed twice in one request: send one operation")
        seen.add(name)
        if operation == AlterOperation.DELETE:
            result.pop(name, None)
            continue
        if value is None:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{name} has no value: give one, or use DELETE to remove it")
        if operation == AlterOperation.SET:
            result[name] = value
        else:
            result[name] = _changed_list(name, AlterOperation(operation), value, result.get(name), scope)
    validate_overrides(result, scope, changed=seen, defaults=defaults, before=current)
    return result


def validate_overrides(
    overrides: Mapping[str, str],
    scope: ConfigScope,
    changed: Iterable[str] | None = None,
    defaults: TopicSettings | None = None,
    before: Mapping[str, str] | None = None,
) -> None:
    """Check a whole set of overrides; raises ConfigError. Names outside `changed` were valid before.

    `before` are the overrides until now.
    """
    given = overrides if changed is None else [name for name in changed if name in overrides]
    check_sizes((name, overrides[name]) for name in given)
    match scope:
        case ConfigScope.TOPIC:
            check_topic_overrides(overrides, defaults or TopicSettings(), changed, before)
        case ConfigScope.BROKER | ConfigScope.CLUSTER:
            _check_broker(given, overrides, scope)
        case ConfigScope.GROUP:
            _check_table(overrides, GROUP_PROPERTIES, "group")
            _check_offset_reset(overrides)
            _check_dead_letter_topic(overrides)
        case ConfigScope.CLIENT_METRICS:
            _check_table(overrides, CLIENT_METRICS_PROPERTIES, "client metrics", ErrorCode.INVALID_REQUEST)
            parse_subscription(overrides)


def _check_offset_reset(overrides: Mapping[str, str]) -> None:
    try:
        parse_offset_reset(overrides.get(OFFSET_RESET, LATEST))
    except ValueError as error:
        raise config_error(OFFSET_RESET, f"{OFFSET_RESET}: {error}") from error


def _check_dead_letter_topic(overrides: Mapping[str, str]) -> None:
    name = overrides.get(DEAD_LETTER_TOPIC, "")
    if name and (name.startswith("__") or not _TOPIC_NAME.fullmatch(name)):
        raise config_error(DEAD_LETTER_TOPIC, f"{DEAD_LETTER_TOPIC}: {name!r} cannot be a topic for dead letters")


def _row(name: str, scope: ConfigScope) -> Property | None:
    match scope:
        case ConfigScope.TOPIC:
            return TOPIC_PROPERTIES.get(name)
        case ConfigScope.GROUP:
            return GROUP_PROPERTIES.get(name)
        case ConfigScope.CLIENT_METRICS:
            return CLIENT_METRICS_PROPERTIES.get(name)
        case _:
            return find_property(name)


def _changed_list(name: str, operation: AlterOperation, value: str, current: str | None, scope: ConfigScope) -> str:
    row = _row(name, scope)
    if row is None or row.type is not PropertyType.LIST:
        verb = operation.name.lower()
        raise config_error(name, f"{name}: cannot {verb} {value!r}, as it is not a list: use SET with the whole value")
    text = (row.default_text or "") if current is None else current
    # In order, and each once.
    items = dict.fromkeys(item for item in text.split(",") if item)
    for item in value.split(","):
        if operation == AlterOperation.APPEND:
            items[item] = None
        else:
            items.pop(item, None)
    return ",".join(items)


def _check_table(
    overrides: Mapping[str, str],
    table: Mapping[str, Property],
    kind: str,
    code: ErrorCode = ErrorCode.INVALID_CONFIG,
) -> None:
    findings: list[Finding] = []
    for name, text in overrides.items():
        row = table.get(name)
        if row is None:
            suggestion = nearest(name, table)
            hint = f"did you mean {suggestion}?" if suggestion else f"the known ones are {', '.join(table)}"
            findings.append(Finding(name, f"{name} is not a {kind} setting; {hint}"))
            continue
        try:
            row.accept(text)
        except ConfigError as error:
            findings.extend(error.findings)
    if findings:
        raise ConfigError(findings, code)


def _check_broker(names: Iterable[str], overrides: Mapping[str, str], scope: ConfigScope) -> None:
    findings: list[Finding] = []
    for name in names:
        row = find_property(name)
        if row is None:
            text, refused = unknown_text(name)
            if refused:
                findings.append(Finding(name, text))
            continue
        refusal = _refusal(name, row, scope)
        if refusal is not None:
            findings.append(Finding(name, refusal))
            continue
        try:
            row.accept(overrides[name])
            check_text(row.name, overrides[name])
            if row.name == CONNECTION_OVERRIDES:
                connection_overrides(overrides[name])
        except ConfigError as error:
            findings.extend(Finding(name, name + finding.text[len(row.name) :]) for finding in error.findings)
    if findings:
        # Kafka answers INVALID_CONFIG for topics and groups, but INVALID_REQUEST for brokers.
        raise ConfigError(findings, ErrorCode.INVALID_REQUEST)


def _refusal(name: str, row: Property, scope: ConfigScope) -> str | None:
    per_listener = has_listener_prefix(name)
    if row.update is UpdateMode.READ_ONLY and not per_listener:
        return f"{name} cannot change while the broker runs: set it in the configuration file and restart"
    if name.startswith("ssl."):
        return f"{name} can only change for one listener: use listener.name.<listener>.{name}"
    if scope is ConfigScope.CLUSTER and row.update not in _CLUSTER_MODES:
        return f"{name} belongs to one broker: name the broker instead of setting it for all"
    return None
