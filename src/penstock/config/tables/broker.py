"""Every broker property by name, and the ones that Kafka 4 no longer has."""

from __future__ import annotations

from penstock.config.properties import index
from penstock.config.tables.coordinators import COORDINATOR_ROWS
from penstock.config.tables.log import LOG_ROWS
from penstock.config.tables.node import NODE_ROWS
from penstock.config.tables.replication import CLUSTER_ROWS
from penstock.config.tables.security import SECURITY_ROWS

BROKER_PROPERTIES = index((*NODE_ROWS, *LOG_ROWS, *COORDINATOR_ROWS, *CLUSTER_ROWS, *SECURITY_ROWS))

_USE_LISTENERS = "say it with listeners, for example listeners=PLAINTEXT://myhost:9092"
_USE_ADVERTISED = "say it with advertised.listeners, for example advertised.listeners=PLAINTEXT://myhost:9092"

# Removed settings that would make a node do something else than its owner meant: refused, with the way out.
REFUSED_BROKER_PROPERTIES = {
    "host.name": _USE_LISTENERS,
    "port": _USE_LISTENERS,
    "advertised.host.name": _USE_ADVERTISED,
    "advertised.port": _USE_ADVERTISED,
}

# Removed settings that are safe to leave out: named in a warning.
REMOVED_BROKER_PROPERTIES = {
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
    "quota.consumer.default": "set a default quota with the cluster's quota commands",
    "quota.producer.default": "set a default quota with the cluster's quota commands",
}
REMOVED_PREFIXES = {"password.encoder.": "dynamic settings are kept in the metadata log"}
