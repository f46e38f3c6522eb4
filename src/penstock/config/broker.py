"""Parses a node's configuration into its settings, reporting every mistake."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any, TypeVar

from penstock.config.checks import check_settings, check_text, check_units
from penstock.config.listeners import (
    Endpoint,
    Listeners,
    ListenerTexts,
    MetricsListener,
    parse_endpoint,
    resolve_listeners,
)
from penstock.config.names import check_names, find_property, has_listener_prefix
from penstock.config.node import ConfiguredVoter, NodeSettings
from penstock.config.properties import INT_MAX, ConfigError, Finding, UpdateMode, Value
from penstock.config.tables import BROKER_PROPERTIES, TOPIC_SYNONYMS
from penstock.config.topic import broker_defaults

Given = TypeVar("Given")
Result = TypeVar("Result")

# Numbers that a listener can have to itself.
_OF_LISTENERS = ("max.connections", "max.connection.creation.rate")
CONNECTION_OVERRIDES = "max.connections.per.ip.overrides"
_TOPIC_DEFAULT_NAMES = frozenset(synonym.name for synonyms in TOPIC_SYNONYMS.values() for synonym in synonyms)


@dataclass(frozen=True, slots=True)
class Examination:
    """The result of reading a configuration; it has settings if there are no errors."""

    settings: NodeSettings | None
    errors: tuple[Finding, ...]
    warnings: tuple[Finding, ...]


def node_settings(properties: Mapping[str, str]) -> tuple[NodeSettings, list[str]]:
    """The settings in these properties, and warnings; raises ConfigError with everything that is wrong."""
    examination = examine(properties)
    if examination.settings is None:
        raise ConfigError(examination.errors)
    return examination.settings, [warning.text for warning in examination.warnings]


def examine(properties: Mapping[str, str]) -> Examination:
    """Read and check a configuration without raising."""
    errors: list[Finding] = []
    warnings: list[Finding] = []
    check_names(properties, errors, warnings)
    check_units(properties, warnings)
    values = _parse(properties, errors)
    parts = _compose(properties, values, errors, warnings)
    if errors:
        return Examination(None, tuple(errors), tuple(warnings))
    settings = NodeSettings(**parts)
    check_settings(settings, values, errors, warnings)
    return Examination(None if errors else settings, tuple(errors), tuple(warnings))


def with_changes(settings: NodeSettings, changes: Mapping[str, str]) -> NodeSettings:
    """A node's settings after these properties were changed while it runs; raises ConfigError."""
    rows = [BROKER_PROPERTIES[name] for name in changes if name in BROKER_PROPERTIES]
    values = {row.name: row.parse(changes[row.name]) for row in rows if row.update is not UpdateMode.READ_ONLY}
    parts: dict[str, Any] = {name.replace(".", "_"): value for name, value in values.items()}
    if CONNECTION_OVERRIDES in values:
        parts["max_connections_per_ip_overrides"] = connection_overrides(str(values[CONNECTION_OVERRIDES]))
    # TLS and SASL settings are not fields: listeners look for their own value first.
    secured = {name: text for name, text in changes.items() if _is_of_listeners(name)}
    if secured:
        parts["properties"] = MappingProxyType({**settings.properties, **secured})
    return replace(settings, **{name: value for name, value in parts.items() if name in _FIELD_NAMES})


def _is_of_listeners(name: str) -> bool:
    found = find_property(name)
    if found is None or found.update is UpdateMode.READ_ONLY:
        return False
    return found.name.startswith(("ssl.", "sasl.")) or (found.name in _OF_LISTENERS and has_listener_prefix(name))


def _parse(properties: Mapping[str, str], errors: list[Finding]) -> dict[str, Value]:
    values = {name: row.default_value for name, row in BROKER_PROPERTIES.items()}
    for name, text in properties.items():
        found = find_property(name)
        if found is None or name in _TOPIC_DEFAULT_NAMES:
            continue
        try:
            value = found.accept(text)
            check_text(found.name, text)
        except ConfigError as error:
            # A value for one listener is reported under its full name.
            errors.extend(Finding(name, name + finding.text[len(found.name) :]) for finding in error.findings)
            continue
        if name == found.name:
            values[name] = value
    return values


def _compose(
    properties: Mapping[str, str], values: dict[str, Value], errors: list[Finding], warnings: list[Finding]
) -> dict[str, Any]:
    parts: dict[str, Any] = {
        row.field: values[row.name] for row in BROKER_PROPERTIES.values() if row.field in _FIELD_NAMES
    }
    roles = frozenset(_strings(values["process.roles"]))
    if not roles and not any(error.name == "process.roles" for error in errors):
        text = "process.roles is not set: say what this node is, for example process.roles=broker,controller"
        errors.append(Finding("process.roles", text))
    log_dirs = _directories(values, errors)
    internal_segment_bytes = values["internal.metadata.log.segment.bytes"]
    if internal_segment_bytes is not None:
        parts["metadata_log_segment_bytes"] = internal_segment_bytes
    listeners = _listeners(properties, values, roles, errors)
    node_id = _node_id(properties, values, errors, warnings)
    parts |= {
        "properties": MappingProxyType({**properties, "node.id": str(node_id), "broker.id": str(node_id)}),
        "roles": roles,
        "node_id": node_id,
        "listeners": listeners.bound,
        "advertised_listeners": listeners.advertised,
        "controller_listener_names": listeners.controller_names,
        "inter_broker_listener_name": listeners.inter_broker_name,
        "security_protocols": MappingProxyType(dict(listeners.protocols)),
        "controller_quorum_voters": _voters(_strings(values["controller.quorum.voters"]), errors),
        "controller_quorum_bootstrap_servers": _bootstrap_servers(values, errors),
        "log_dirs": log_dirs,
        "metadata_log_dir": values["metadata.log.dir"] or (log_dirs or ("",))[0],
        "penstock_metrics_listener": _metrics_listener(values, errors),
        "max_connections_per_ip_overrides": _or_none(connection_overrides, str(values[CONNECTION_OVERRIDES]), errors),
        "topic_defaults": _or_none(broker_defaults, properties, errors),
    }
    return parts


def _strings(value: Value) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else ()


def _split(text: str, separator: str = ",") -> list[str]:
    return [item.strip() for item in text.split(separator) if item.strip()]


def _node_id(
    properties: Mapping[str, str], values: dict[str, Value], errors: list[Finding], warnings: list[Finding]
) -> Value:
    node_id = values["node.id"]
    broker_id = values["broker.id"] if "broker.id" in properties else None
    if "node.id" not in properties:
        if not isinstance(broker_id, int) or broker_id < 0:
            text = "node.id is not set: give each node of the cluster its own number, for example node.id=1"
            errors.append(Finding("node.id", text))
            return None
        warnings.append(Finding("broker.id", f"broker.id is the old name: write node.id={broker_id}"))
        return broker_id
    if broker_id is not None and node_id is not None and broker_id != node_id:
        text = f"broker.id={broker_id} contradicts node.id={node_id}: remove broker.id, it is the old name"
        errors.append(Finding("broker.id", text))
    return node_id


def _directories(values: dict[str, Value], errors: list[Finding]) -> tuple[str, ...]:
    name = "log.dirs" if values["log.dirs"] is not None else "log.dir"
    directories = tuple(_split(str(values[name])))
    if not directories:
        errors.append(Finding(name, f"{name} is empty: name at least one directory, for example /var/lib/penstock"))
    return tuple(directory.rstrip("/") or "/" for directory in directories)


def _listeners(
    properties: Mapping[str, str], values: dict[str, Value], roles: frozenset[str], errors: list[Finding]
) -> Listeners:
    def text(name: str) -> str | None:
        value = values[name]
        return value if isinstance(value, str) else None

    texts = ListenerTexts(
        listeners=text("listeners") or "",
        advertised=text("advertised.listeners"),
        protocol_map=text("listener.security.protocol.map") or "",
        protocol_map_given="listener.security.protocol.map" in properties,
        controller_names=text("controller.listener.names"),
        inter_broker_name=text("inter.broker.listener.name"),
        inter_broker_protocol=text("security.inter.broker.protocol") or "PLAINTEXT",
        inter_broker_protocol_given="security.inter.broker.protocol" in properties,
    )
    findings: list[Finding] = []
    listeners = resolve_listeners(texts, roles, findings)
    errors.extend(findings)
    return listeners


def _voters(items: tuple[str, ...], errors: list[Finding]) -> tuple[ConfiguredVoter, ...]:
    voters = []
    name = "controller.quorum.voters"
    for item in items:
        node_id, _, address = item.partition("@")
        endpoint = parse_endpoint(address)
        if not (node_id.isascii() and node_id.isdigit() and int(node_id) <= INT_MAX) or endpoint is None:
            errors.append(Finding(name, f"{name}: {item!r}: expected id@host:port, for example 1@localhost:9093"))
            continue
        voters.append(ConfiguredVoter(int(node_id), endpoint))
    return tuple(voters)


def _bootstrap_servers(values: dict[str, Value], errors: list[Finding]) -> tuple[Endpoint, ...]:
    endpoints = []
    name = "controller.quorum.bootstrap.servers"
    for item in _strings(values[name]):
        endpoint = parse_endpoint(item)
        if endpoint is None:
            errors.append(Finding(name, f"{name}: {item!r}: expected host:port, for example localhost:9093"))
            continue
        endpoints.append(endpoint)
    return tuple(endpoints)


def _metrics_listener(values: dict[str, Value], errors: list[Finding]) -> MetricsListener | None:
    name = "penstock.metrics.listener"
    text = str(values[name] or "").strip()
    if not text:
        return None
    scheme, separator, rest = text.rpartition("://")
    # Without a host it is every interface.
    endpoint = parse_endpoint(f"any{rest}" if rest.startswith(":") else rest)
    if endpoint is None or (separator and scheme.lower() not in ("http", "https")):
        example = "expected host:port or :port, with https:// before it for TLS, for example 127.0.0.1:9644"
        errors.append(Finding(name, f"{name}: {text!r}: {example}"))
        return None
    host = "" if rest.startswith(":") else endpoint.host
    return MetricsListener(host, endpoint.port, tls=scheme.lower() == "https")


def connection_overrides(text: str) -> Mapping[str, int]:
    """How many connections some addresses may have, from max.connections.per.ip.overrides; raises ConfigError."""
    overrides: dict[str, int] = {}
    findings = []
    for item in _split(text):
        host, _, count = item.rpartition(":")
        if host and count.isascii() and count.isdigit() and int(count) <= INT_MAX:
            overrides[host] = int(count)
        else:
            example = "expected address:count, for example 10.0.0.7:200"
            findings.append(Finding(CONNECTION_OVERRIDES, f"{CONNECTION_OVERRIDES}: {item!r}: {example}"))
    if findings:
        raise ConfigError(findings)
    return MappingProxyType(overrides)


def _or_none(read: Callable[[Given], Result], given: Given, errors: list[Finding]) -> Result | None:
    """The result of `read`; None and one more error when it raises."""
    try:
        return read(given)
    except ConfigError as error:
        errors.extend(error.findings)
        return None


_FIELD_NAMES = frozenset(field.name for field in fields(NodeSettings))
