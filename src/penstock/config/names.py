"""Which names a configuration file may hold, and what to say about the others."""

from __future__ import annotations

import re
from collections.abc import Iterable

from penstock.config.properties import Effect, Finding, Property, nearest
from penstock.config.tables.broker import (
    BROKER_PROPERTIES,
    REFUSED_BROKER_PROPERTIES,
    REMOVED_BROKER_PROPERTIES,
    REMOVED_PREFIXES,
)
from penstock.config.tables.replication import DYNAMIC_ONLY
from penstock.config.tables.topic import TOPIC_PROPERTIES, TOPIC_SYNONYMS

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
    """Name what Penstock cannot know or use; a likely slip of the pen is an error, a stranger a warning."""
    unused = []
    for name in names:
        row = find_property(name)
        if row is None:
            _check_unknown(name, errors, warnings)
        elif name in DYNAMIC_ONLY:
            warnings.append(Finding(name, f"{name} is ignored here: set it while the broker runs, with kafka-configs"))
        elif row.effect is Effect.ACCEPTED:
            unused.append(name)
    if unused:
        text = f"accepted without effect (docs/configuration.md says why): {', '.join(unused)}"
        warnings.append(Finding("", text))


def unknown_text(name: str) -> tuple[str, bool]:
    """What to say about a name that is no broker property, and whether it must be refused."""
    if name.startswith("zookeeper."):
        text = f"{name}: Penstock, like Kafka 4, runs without ZooKeeper: remove it, and set process.roles, node.id, "
        return text + "controller.quorum.voters and controller.listener.names", True
    if name in REFUSED_BROKER_PROPERTIES:
        return f"{name} is no longer a setting: {REFUSED_BROKER_PROPERTIES[name]}", True
    if name in REMOVED_BROKER_PROPERTIES:
        return f"{name} is no longer a setting and is ignored: {REMOVED_BROKER_PROPERTIES[name]}", False
    for prefix, what in REMOVED_PREFIXES.items():
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
