"""Checks between settings of a node: contradictions are errors, likely mistakes warnings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from penstock.config.node import NodeSettings
from penstock.config.properties import Finding, config_error, nearest
from penstock.config.tables import TOPIC_PROPERTIES, TOPIC_SYNONYMS

_MEBIBYTE = 1024 * 1024
_JAVA_REPLICA_PACKAGE = "org.apache.kafka.common.replica."
_STORES = ("s3", "s3a", "gs", "az", "abfss", "file")
_REPLICA_SELECTORS = ("RackAwareReplicaSelector", "LeaderSelector")


def check_settings(
    settings: NodeSettings, values: Mapping[str, object], errors: list[Finding], warnings: list[Finding]
) -> None:
    """Everything that needs more than one setting, listeners and roles aside; `values` has every property's."""
    _check_quorum(settings, errors, warnings)
    _check_replication(settings, errors, warnings)
    _check_factors(settings, values, errors, warnings)
    _check_selector(settings, errors)
    _check_groups(values, errors)
    _check_limits(settings, errors, warnings)
    _check_directories(settings, errors, warnings)
    _check_tier(settings, errors)


def check_text(name: str, text: str) -> None:
    """What a setting's type cannot say about its value; raises ConfigError."""
    if name == "penstock.topic.name.pattern":
        try:
            re.compile(text)
        except re.error as error:
            raise config_error(name, f"{name}={text}: not a regular expression: {error}") from None
    elif name == "penstock.topic.required.settings":
        for item in filter(None, text.split(",")):
            setting = item.partition("=")[0].strip()
            if setting not in TOPIC_PROPERTIES:
                guess = nearest(setting, TOPIC_PROPERTIES)
                hint = f"; did you mean {guess}?" if guess else ""
                raise config_error(name, f"{name}={text}: {setting} is not a topic setting{hint}")


def check_units(properties: Mapping[str, str], warnings: list[Finding]) -> None:
    """The same limit given in several units: the finest counts."""
    for synonyms in TOPIC_SYNONYMS.values():
        given = [synonym.name for synonym in synonyms if synonym.name in properties]
        warnings.extend(_ignored(name, given[0], properties) for name in given[1:])
    if "log.dir" in properties and "log.dirs" in properties:
        warnings.append(_ignored("log.dir", "log.dirs", properties))


def _ignored(name: str, winner: str, properties: Mapping[str, str]) -> Finding:
    text = f"{name}={properties[name]} is ignored: {winner}={properties[winner]} counts, remove one of them"
    return Finding(name, text)


def _check_quorum(settings: NodeSettings, errors: list[Finding], warnings: list[Finding]) -> None:
    voter_ids = [voter.node_id for voter in settings.controller_quorum_voters]
    name = "controller.quorum.voters"
    if not voter_ids and not settings.controller_quorum_bootstrap_servers:
        example = f"{name}={settings.node_id}@localhost:9093"
        text = f"{name} and controller.quorum.bootstrap.servers are both missing: say where the controllers are, "
        errors.append(Finding(name, f"{text}for example {example}"))
    if len(set(voter_ids)) != len(voter_ids):
        errors.append(Finding(name, f"{name} names a node twice: each id belongs to one controller"))
    if voter_ids and settings.is_controller and settings.node_id not in voter_ids:
        text = (
            f"{name} does not name node.id={settings.node_id}, which is a controller: add {settings.node_id}@host:port"
        )
        errors.append(Finding(name, text))
    if not settings.is_controller and settings.node_id in voter_ids:
        text = f"{name} names node.id={settings.node_id}, which is only a broker: add controller to process.roles, "
        errors.append(Finding(name, text + "or give this broker another node.id"))
    _check_voter_ports(settings, errors, warnings)


def _check_voter_ports(settings: NodeSettings, errors: list[Finding], warnings: list[Finding]) -> None:
    name = "controller.quorum.voters"
    voters = settings.controller_quorum_voters
    if len(voters) > 1 and any(voter.endpoint.port == 0 for voter in voters):
        text = f"{name}: several controllers find each other by their ports: give each one instead of 0"
        errors.append(Finding(name, text))
    controllers = (*settings.controller_listeners, *settings.advertised_listeners)
    ports = sorted({one.port for one in controllers if one.name in settings.controller_listener_names})
    for voter in voters:
        if voter.node_id == settings.node_id and ports and voter.endpoint.port not in (0, *ports) and 0 not in ports:
            text = f"{name} has port {voter.endpoint.port} for node {voter.node_id}, but its controller listens on "
            warnings.append(Finding(name, f"{text}{ports[0]}: make them agree, unless something forwards between them"))


def _check_replication(settings: NodeSettings, errors: list[Finding], warnings: list[Finding]) -> None:
    wait = settings.replica_fetch_wait_max_ms
    for name, value in (
        ("replica.socket.timeout.ms", settings.replica_socket_timeout_ms),
        ("replica.lag.time.max.ms", settings.replica_lag_time_max_ms),
    ):
        if wait > value:
            errors.append(Finding(name, f"{name}={value} is less than replica.fetch.wait.max.ms={wait}: raise it"))
    if settings.broker_heartbeat_interval_ms * 2 > settings.broker_session_timeout_ms:
        text = (
            f"broker.heartbeat.interval.ms={settings.broker_heartbeat_interval_ms} is more than half of "
            f"broker.session.timeout.ms={settings.broker_session_timeout_ms}: one lost heartbeat fences the broker"
        )
        warnings.append(Finding("broker.heartbeat.interval.ms", text))


def _check_factors(
    settings: NodeSettings, values: Mapping[str, Any], errors: list[Finding], warnings: list[Finding]
) -> None:
    for isr_name, isr, factor_name in (
        ("min.insync.replicas", settings.topic_defaults.min_insync_replicas, "default.replication.factor"),
        *(
            (f"{topic}.min.isr", values[f"{topic}.min.isr"], f"{topic}.replication.factor")
            for topic in ("transaction.state.log", "share.coordinator.state.topic")
        ),
    ):
        if isr > values[factor_name]:
            text = f"{isr_name}={isr} is more than {factor_name}={values[factor_name]}: "
            warnings.append(Finding(isr_name, text + "such topics would refuse every write with acks=all"))
    if settings.default_replication_factor < 1:
        name = "default.replication.factor"
        errors.append(Finding(name, f"{name}={settings.default_replication_factor}: expected at least 1"))


def _check_selector(settings: NodeSettings, errors: list[Finding]) -> None:
    selector = settings.replica_selector_class
    if selector and selector not in [_JAVA_REPLICA_PACKAGE + known for known in _REPLICA_SELECTORS]:
        name = "replica.selector.class"
        known = f"{_JAVA_REPLICA_PACKAGE}{_REPLICA_SELECTORS[0]}"
        text = f"{name}={selector}: Penstock runs no Java classes; it knows {known} by its name, or remove the line"
        errors.append(Finding(name, text))


def _check_groups(values: Mapping[str, Any], errors: list[Finding]) -> None:
    for kind in ("consumer", "share", "streams"):
        for what in ("heartbeat.interval.ms", "session.timeout.ms"):
            _check_order(values, f"group.{kind}.min.{what}", f"group.{kind}.{what}", errors)
            _check_order(values, f"group.{kind}.{what}", f"group.{kind}.max.{what}", errors)
        _check_order(
            values, f"group.{kind}.heartbeat.interval.ms", f"group.{kind}.session.timeout.ms", errors, strictly=True
        )
    _check_order(values, "group.min.session.timeout.ms", "group.max.session.timeout.ms", errors)
    for what in ("record.lock.duration.ms", "delivery.count.limit", "partition.max.record.locks"):
        _check_order(values, f"group.share.min.{what}", f"group.share.{what}", errors)
        _check_order(values, f"group.share.{what}", f"group.share.max.{what}", errors)
    if "classic" not in values["group.coordinator.rebalance.protocols"]:
        name = "group.coordinator.rebalance.protocols"
        errors.append(Finding(name, f"{name} must name classic: it cannot be turned off"))


def _check_order(
    values: Mapping[str, Any], smaller: str, larger: str, errors: list[Finding], strictly: bool = False
) -> None:
    low, high = values[smaller], values[larger]
    if low > high or (strictly and low == high):
        relation = "must be less than" if strictly else "must not be more than"
        errors.append(Finding(smaller, f"{smaller}={low} {relation} {larger}={high}"))


def _check_limits(settings: NodeSettings, errors: list[Finding], warnings: list[Finding]) -> None:
    request_max = settings.socket_request_max_bytes
    queued = settings.queued_max_request_bytes
    if 0 < queued < request_max:
        text = f"queued.max.request.bytes={queued} is less than socket.request.max.bytes={request_max}: raise it"
        errors.append(Finding("queued.max.request.bytes", text))
    message_max = settings.topic_defaults.max_message_bytes
    if message_max > request_max:
        text = f"message.max.bytes={message_max} is more than socket.request.max.bytes={request_max}: raise the latter"
        warnings.append(Finding("message.max.bytes", text))
    if settings.max_connections_per_ip == 0 and not settings.max_connections_per_ip_overrides:
        text = "max.connections.per.ip=0 accepts no connection: raise it, or set max.connections.per.ip.overrides"
        errors.append(Finding("max.connections.per.ip", text))
    if settings.log_cleaner_dedupe_buffer_size <= _MEBIBYTE:
        name = "log.cleaner.dedupe.buffer.size"
        text = f"{name}={settings.log_cleaner_dedupe_buffer_size}: expected more than {_MEBIBYTE}"
        errors.append(Finding(name, text))


def _check_tier(settings: NodeSettings, errors: list[Finding]) -> None:
    name, url = "penstock.tier.url", settings.penstock_tier_url
    if not settings.remote_log_storage_system_enable:
        return
    if not url:
        text = f"{name} is not set: remote.log.storage.system.enable=true needs it, for example s3://bucket/prefix"
        errors.append(Finding(name, text))
    elif url.partition("://")[0] not in _STORES:
        text = f"{name}={url}: expected a URL that begins with {', '.join(f'{store}://' for store in _STORES)}"
        errors.append(Finding(name, text))


def _check_directories(settings: NodeSettings, errors: list[Finding], warnings: list[Finding]) -> None:
    seen = set()
    for directory in settings.log_dirs:
        if directory in seen:
            errors.append(Finding("log.dirs", f"log.dirs names {directory} twice: name each directory once"))
        seen.add(directory)
    for directory in settings.cordoned_log_dirs:
        if directory != "*" and (directory.rstrip("/") or "/") not in seen:
            text = f"cordoned.log.dirs names {directory}, which is not among log.dirs: name directories of this broker"
            errors.append(Finding("cordoned.log.dirs", text))
    name = "log.dirs" if "log.dirs" in settings.properties else "log.dir"
    for directory in sorted(seen):
        if PurePosixPath(directory).is_relative_to("/tmp") or PurePosixPath(directory).is_relative_to("/dev/shm"):
            text = f"{name}: {directory} does not outlive a restart of many systems: choose another for data you need"
            warnings.append(Finding(name, text))
