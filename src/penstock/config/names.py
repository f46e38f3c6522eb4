"""Which names a configuration file may have, and what to say about the others."""

from __future__ import annotations

import re
from collections.abc import Iterable

from penstock.config.properties import Effect, Finding, Property, UpdateMode, nearest
from penstock.config.tables import BROKER_PROPERTIES, TOPIC_PROPERTIES, TOPIC_SYNONYMS

_LISTENER_PREFIX = re.compile(r"listener\.name\.[^.]+\.(?P<base>.+)", re.ASCII)
# These can be set for one SASL mechanism of a listener: listener.name.<listener>.<mechanism>.<property>.
_MECHANISM_PROPERTIES = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
)
# Settings of plugins, and of Kafka distributions, that Kafka hands on without reading them.
_PLUGIN_PREFIXES = (
    "azure.",
    "aws.",
    "client.quota.callback.",
    "config.providers",
    "confluent.",
    "cruise.control.",
    "io.confluent.",
    "io.strimzi.",
    "metrics.context.",
    "opa.",
    "ranger.",
    "remote.log.metadata.",
    "rlmm.config.",
    "rsm.config.",
    "s3.",
    "strimzi.",
    "xpack.",
)

_USE_LISTENERS = "say it with listeners, for example listeners=PLAINTEXT://myhost:9092"
_USE_ADVERTISED = "say it with advertised.listeners, for example advertised.listeners=PLAINTEXT://myhost:9092"

# Removed settings without which a node would behave differently than intended: rejected, with the alternative.
_REFUSED = {
    "host.name": _USE_LISTENERS,
    "port": _USE_LISTENERS,
    "advertised.host.name": _USE_ADVERTISED,
    "advertised.port": _USE_ADVERTISED,
}

# Removed settings that can safely be ignored: reported as a warning.
_REMOVED = {
    "auto.include.jmx.reporter": "metrics are exported for Prometheus",
    "broker.id.generation.enable": "set node.id",
    "control.plane.listener.name": "controllers have their own listeners, see controller.listener.names",
    "delegation.token.master.key": "use delegation.token.secret.key",
    "eligible.leader.replicas.enable": "it is a feature of the cluster, not a setting",
    "group.coordinator.new.enable": "there is one group coordinator",
    "inter.broker.protocol.version": "the cluster's metadata.version feature decides",
    "log.message.downconversion.enable": "old record formats are no longer served",
    "log.message.format.version": "records are always stored in the current format",
    "log.message.timestamp.difference.max.ms": (
        "use log.message.timestamp.before.max.ms and log.message.timestamp.after.max.ms"
    ),
    "leader.imbalance.per.broker.percentage": "leadership goes back to preferred replicas at any imbalance",
    "offsets.commit.required.acks": "commits always wait for every in-sync replica",
    "reserved.broker.max.id": "set node.id",
    "quota.consumer.default": "set default quotas with `penstock security quota` or kafka-configs",
    "quota.producer.default": "set default quotas with `penstock security quota` or kafka-configs",
}
_REMOVED_PREFIXES = {"password.encoder.": "dynamic settings are kept in the metadata log"}


def find_property(name: str) -> Property | None:
    """The row for a broker property's name, seeing through a listener.name.<listener>. prefix."""
    match = _LISTENER_PREFIX.fullmatch(name)
    if match is None:
        return BROKER_PROPERTIES.get(name)
    base = match["base"]
    for mechanism_property in _MECHANISM_PROPERTIES:
        if base.endswith("." + mechanism_property):
            return BROKER_PROPERTIES[mechanism_property]
    return BROKER_PROPERTIES.get(base)


def has_listener_prefix(name: str) -> bool:
    """Whether the property is set for one listener only."""
    return _LISTENER_PREFIX.fullmatch(name) is not None


def check_names(names: Iterable[str], errors: list[Finding], warnings: list[Finding]) -> None:
    """Report names that Penstock does not know or use: an error if one looks misspelled, a warning otherwise."""
    unused = []
    planned = []
    for name in names:
        row = find_property(name)
        if row is None:
            _check_unknown(name, errors, warnings)
        elif row.update is UpdateMode.DYNAMIC_ONLY:
            warnings.append(Finding(name, f"{name} is ignored here: set it while the broker runs, with kafka-configs"))
        elif row.effect is Effect.ACCEPTED:
            unused.append(name)
        elif row.effect is Effect.PLANNED:
            planned.append(name)
    if unused:
        text = f"accepted without effect (docs/configuration.md has the reasons): {', '.join(unused)}"
        warnings.append(Finding("", text))
    if planned:
        warnings.append(Finding("", f"checked, but without effect in this release: {', '.join(planned)}"))


def unknown_text(name: str) -> tuple[str, bool]:
    """What to say about a name that is not a broker property, and whether it must be refused."""
    if name.startswith("zookeeper."):
        text = f"{name}: Penstock, like Kafka 4, runs without ZooKeeper: remove it, and set process.roles, node.id, "
        return text + "controller.quorum.voters and controller.listener.names", True
    if name in _REFUSED:
        return f"{name} is no longer a setting: {_REFUSED[name]}", True
    if name in _REMOVED:
        return f"{name} is no longer a setting and is ignored: {_REMOVED[name]}", False
    for prefix, what in _REMOVED_PREFIXES.items():
        if name.startswith(prefix):
            return f"{name} is no longer a setting and is ignored: {what}", False
    if name.startswith(_PLUGIN_PREFIXES):
        return f"{name} is ignored: it belongs to a plugin that Penstock does not run", False
    if name in TOPIC_PROPERTIES:
        synonyms = TOPIC_SYNONYMS.get(name)
        advice = f"for all topics use {synonyms[0].name}" if synonyms else "set it on topics"
        return f"{name} is a topic setting; {advice}", True
    match = _LISTENER_PREFIX.fullmatch(name)
    base = name if match is None else match["base"]
    suggestion = nearest(base, BROKER_PROPERTIES)
    if suggestion is not None:
        return f"{name} is not a setting; did you mean {name.removesuffix(base)}{suggestion}?", True
    return f"{name} is not a setting and is ignored", name.startswith("penstock.")


def _check_unknown(name: str, errors: list[Finding], warnings: list[Finding]) -> None:
    text, refused = unknown_text(name)
    (errors if refused else warnings).append(Finding(name, text))
