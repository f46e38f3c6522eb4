"""Every API this broker serves: its key, the versions it advertises, and how its handler is made.

`docs/api_support.md` is generated from this table and from the first lines of the handlers' modules. The versions
are those of Apache Kafka 4.1. Produce advertises 0-2 as Kafka does, because old clients look for them, and serves 3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Generic, NamedTuple, TypeVar

from penstock.api.context import Handler
from penstock.core.metadata.features import SUPPORTED_FEATURES
from penstock.core.metadata.image import Image
from penstock.core.metrics.counters import RequestCounters
from penstock.core.replica.fetch_session import SessionCache
from penstock.core.replica.throttle import Throttle
from penstock.runtime.controller.client import TopicCreator
from penstock.runtime.controller.controller import Controller
from penstock.runtime.coordinator.groups import Groups
from penstock.runtime.coordinator.lag import LagView
from penstock.runtime.coordinator.producer_ids import ProducerIds
from penstock.runtime.coordinator.transactions import Transactions
from penstock.runtime.coordinator.verifier import is_verification_enabled
from penstock.runtime.env import Env
from penstock.runtime.live_settings import LiveSettings
from penstock.runtime.raft.driver import RaftDriver
from penstock.runtime.replication.partition import Partition
from penstock.runtime.replication.partitions import Partitions
from penstock.runtime.schemas.guard import SchemaGuard

API_VERSIONS_KEY = 18
# What Kafka's metrics call the two kinds of Fetch.
FETCH_BY_CONSUMERS = "FetchConsumer"
FETCH_BY_FOLLOWERS = "FetchFollower"

Parts = TypeVar("Parts")

# Feature levels this node understands.
FEATURES: Mapping[str, tuple[int, int]] = SUPPORTED_FEATURES
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@dataclass(frozen=True, slots=True)
class Services:
    """The parts that handlers are made from. Each handler gets only those it uses."""

    env: Env
    image: Image
    raft: RaftDriver
    controller: Controller
    topic_creator: TopicCreator
    partitions: Partitions
    producer_ids: ProducerIds
    sessions: SessionCache
    settings: LiveSettings
    cluster_id: str
    controller_id: Callable[[], int]
    settle_deletions: Callable[[list[Partition]], None]
    groups: Groups
    lag: LagView
    propose: Callable[[Partition], None]
    replication_throttle: Throttle
    transactions: Transactions
    verify: Callable[..., Any]
    schema_guard: SchemaGuard
    write_marker: Callable[..., Any]
    counters: RequestCounters


class Entry(NamedTuple, Generic[Parts]):
    """One API: the versions it advertises, the module that serves it, how that module makes its handler."""

    first_version: int
    last_version: int
    module: str
    make: Callable[[Any, Parts], Handler]


TABLE: Mapping[int, Entry[Services]] = {
    0: Entry(
        0,
        13,
        "produce",
        lambda api, s: api.make_produce(
            s.env,
            s.partitions,
            s.settings.node.penstock_sync_on_ack,
            s.verify,
            lambda: is_verification_enabled(s.settings),
            s.schema_guard,
            s.counters.api("Produce").failed,
        ),
    ),
    1: Entry(
        4,
        18,
        "fetch",
        lambda api, s: api.make_fetch(
            s.env,
            s.partitions,
            s.sessions,
            s.settings.node.fetch_max_bytes,
            by_rack=s.settings.node.replica_selector_class == RACK_AWARE_SELECTOR,
            propose=s.propose,
            throttle=s.replication_throttle,
            failed=s.counters.api(FETCH_BY_CONSUMERS).failed,
        ),
    ),
    2: Entry(1, 10, "list_offsets", lambda api, s: api.make_list_offsets(s.partitions)),
    3: Entry(
        0,
        13,
        "metadata",
        lambda api, s: api.make_metadata(
            s.image, s.topic_creator, s.cluster_id, s.controller_id, s.settings.node.auto_create_topics_enable
        ),
    ),
    8: Entry(2, 9, "offset_commit", lambda api, s: api.make_offset_commit(s.image, s.groups)),
    9: Entry(1, 9, "offset_fetch", lambda api, s: api.make_offset_fetch(s.groups)),
    10: Entry(0, 6, "find_coordinator", lambda api, s: api.make_find_coordinator(s.image, s.groups, s.transactions)),
    11: Entry(0, 9, "join_group", lambda api, s: api.make_join_group(s.groups)),
    12: Entry(0, 4, "heartbeat", lambda api, s: api.make_heartbeat(s.groups)),
    13: Entry(0, 5, "leave_group", lambda api, s: api.make_leave_group(s.groups)),
    14: Entry(0, 5, "sync_group", lambda api, s: api.make_sync_group(s.groups)),
    15: Entry(0, 6, "describe_groups", lambda api, s: api.make_describe_groups(s.groups)),
    16: Entry(0, 5, "list_groups", lambda api, s: api.make_list_groups(s.groups)),
    18: Entry(
        0, 4, "api_versions", lambda api, s: api.make_api_versions(ADVERTISED, FEATURES, api.finalized_in(s.raft))
    ),
    19: Entry(2, 7, "create_topics", lambda api, s: api.make_create_topics(s.controller, s.settings.broker_properties)),
    20: Entry(
        1, 6, "delete_topics", lambda api, s: api.make_delete_topics(s.controller, s.settings.node.delete_topic_enable)
    ),
    21: Entry(0, 2, "delete_records", lambda api, s: api.make_delete_records(s.partitions, s.settle_deletions)),
    22: Entry(0, 5, "init_producer_id", lambda api, s: api.make_init_producer_id(s.producer_ids, s.transactions)),
    23: Entry(2, 4, "offset_for_leader_epoch", lambda api, s: api.make_offset_for_leader_epoch(s.partitions)),
    24: Entry(0, 5, "add_partitions_to_txn", lambda api, s: api.make_add_partitions_to_txn(s.image, s.transactions)),
    25: Entry(
        0, 4, "add_offsets_to_txn", lambda api, s: api.make_add_offsets_to_txn(s.image, s.groups, s.transactions)
    ),
    26: Entry(0, 5, "end_txn", lambda api, s: api.make_end_txn(s.transactions)),
    27: Entry(1, 2, "write_txn_markers", lambda api, s: api.make_write_txn_markers(s.write_marker)),
    28: Entry(
        0,
        5,
        "txn_offset_commit",
        lambda api, s: api.make_txn_offset_commit(
            s.env, s.image, s.partitions, s.groups, s.verify, lambda: is_verification_enabled(s.settings)
        ),
    ),
    29: Entry(1, 3, "describe_acls", lambda api, _: api.make_describe_acls()),
    30: Entry(1, 3, "create_acls", lambda api, _: api.make_create_acls()),
    31: Entry(1, 3, "delete_acls", lambda api, _: api.make_delete_acls()),
    32: Entry(1, 4, "describe_configs", lambda api, s: api.make_describe_configs(s.image, s.settings)),
    33: Entry(0, 2, "alter_configs", lambda api, s: api.make_alter_configs(s.controller, s.settings)),
    35: Entry(1, 4, "describe_log_dirs", lambda api, s: api.make_describe_log_dirs(s.env, s.partitions)),
    37: Entry(0, 3, "create_partitions", lambda api, s: api.make_create_partitions(s.controller)),
    42: Entry(0, 2, "delete_groups", lambda api, s: api.make_delete_groups(s.groups)),
    43: Entry(0, 2, "elect_leaders", lambda api, s: api.make_elect_leaders(s.controller)),
    44: Entry(
        0, 1, "incremental_alter_configs", lambda api, s: api.make_incremental_alter_configs(s.controller, s.settings)
    ),
    45: Entry(
        0, 1, "alter_partition_reassignments", lambda api, s: api.make_alter_partition_reassignments(s.controller)
    ),
    46: Entry(0, 0, "list_partition_reassignments", lambda api, s: api.make_list_partition_reassignments(s.controller)),
    47: Entry(0, 0, "offset_delete", lambda api, s: api.make_offset_delete(s.groups)),
    55: Entry(0, 2, "describe_quorum", lambda api, s: api.make_describe_quorum(s.raft)),
    57: Entry(0, 2, "update_features", lambda api, s: api.make_update_features(s.controller)),
    60: Entry(
        0, 2, "describe_cluster", lambda api, s: api.make_describe_cluster(s.image, s.cluster_id, s.controller_id)
    ),
    61: Entry(0, 0, "describe_producers", lambda api, s: api.make_describe_producers(s.partitions)),
    64: Entry(0, 0, "unregister_broker", lambda api, s: api.make_unregister_broker(s.controller)),
    65: Entry(0, 0, "describe_transactions", lambda api, s: api.make_describe_transactions(s.transactions)),
    66: Entry(0, 2, "list_transactions", lambda api, s: api.make_list_transactions(s.transactions)),
    68: Entry(0, 1, "consumer_group_heartbeat", lambda api, s: api.make_consumer_group_heartbeat(s.image, s.groups)),
    69: Entry(0, 1, "consumer_group_describe", lambda api, s: api.make_consumer_group_describe(s.image, s.groups)),
    74: Entry(0, 1, "list_config_resources", lambda api, s: api.make_list_config_resources(s.image)),
    75: Entry(
        0,
        0,
        "describe_topic_partitions",
        lambda api, s: api.make_describe_topic_partitions(s.image, s.settings.node.max_request_partition_size_limit),
    ),
    80: Entry(0, 0, "add_raft_voter", lambda api, s: api.make_add_raft_voter(s.raft)),
    81: Entry(0, 0, "remove_raft_voter", lambda api, s: api.make_remove_raft_voter(s.raft)),
    10000: Entry(0, 0, "describe_lag", lambda api, s: api.make_describe_lag(s.groups, s.lag)),
}

# Keys from here on are Penstock's own, and nobody else's client needs to know them.
FIRST_OWN_KEY = 10_000

VERSIONS: Mapping[int, tuple[int, int]] = {
    key: (entry.first_version, entry.last_version) for key, entry in TABLE.items()
}

ADVERTISED: Mapping[int, tuple[int, int]] = {key: row for key, row in VERSIONS.items() if key < FIRST_OWN_KEY}


class Handlers(dict[int, Handler]):
    """Handlers by key. Each is imported and made when it is first asked for: most are not, for a long time."""

    def __init__(self, table: Mapping[int, Entry[Parts]], services: Parts) -> None:
        super().__init__()
        self._table: Mapping[int, Entry[Any]] = table
        self._services = services

    def __missing__(self, key: int) -> Handler:
        entry = self._table[key]
        handler = self[key] = entry.make(import_module(f"penstock.api.{entry.module}"), self._services)
        return handler


def make_handlers(services: Services) -> dict[int, Handler]:
    """The handler of every API in the table."""
    return Handlers(TABLE, services)
