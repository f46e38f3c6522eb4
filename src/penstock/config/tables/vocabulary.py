"""Short names for the columns of the tables, and the reasons why some of Kafka's properties have no effect here."""

from __future__ import annotations

from penstock.config.properties import Effect, PropertyType, UpdateMode

BOOLEAN = PropertyType.BOOLEAN
STRING = PropertyType.STRING
INT = PropertyType.INT
SHORT = PropertyType.SHORT
LONG = PropertyType.LONG
DOUBLE = PropertyType.DOUBLE
LIST = PropertyType.LIST
CLASS = PropertyType.CLASS
PASSWORD = PropertyType.PASSWORD

PER_BROKER = UpdateMode.PER_BROKER
CLUSTER_WIDE = UpdateMode.CLUSTER_WIDE

ACCEPTED = Effect.ACCEPTED
PLANNED = Effect.PLANNED

NO_THREAD_POOLS = "A process runs one event loop; start more processes to use more cores."
NO_PURGATORY = "Waiting requests are dropped the moment they complete, so there is nothing to purge."
NO_JAVA = "It names or tunes Java code, which Penstock does not run."
NO_KERBEROS = "Kerberos is not among the mechanisms that Penstock offers."
NO_BUFFER = "Penstock reads logs through memory views and needs no buffer of a set size."
KAFKA_METRICS = "Metrics are exported as Prometheus counters, without windows or reporters."
TIERING = "The tiered storage of Penstock has its own settings."
INTERNAL = "Kafka uses it for its own tests."
