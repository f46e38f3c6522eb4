"""Every API this broker serves: its key, the versions it advertises, and how its handler is made.

`docs/api_support.md` is generated from this table and from the first lines of the handlers' modules. The versions
are those of Apache Kafka 4.1. Produce advertises 0-2 as Kafka does, because old clients look for them, and serves 3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from penstock.api.add_offsets_to_txn import make_add_offsets_to_txn
from penstock.api.add_partitions_to_txn import make_add_partitions_to_txn
from penstock.api.add_raft_voter import make_add_raft_voter
from penstock.api.alter_configs import make_alter_configs
from penstock.api.alter_partition_reassignments import make_alter_partition_reassignments
from penstock.api.api_versions import make_api_versions
from penstock.api.consumer_group_describe import make_consumer_group_describe
from penstock.api.consumer_group_heartbeat import make_consumer_group_heartbeat
from penstock.api.context import Handler
from penstock.api.create_partitions import make_create_partitions
from penstock.api.create_topics import make_create_topics
from penstock.api.delete_groups import make_delete_groups
from penstock.api.delete_records import make_delete_records
from penstock.api.delete_topics import make_delete_topics
from penstock.api.describe_cluster import make_describe_cluster
from penstock.api.describe_configs import make_describe_configs
from penstock.api.describe_groups import make_describe_groups
from penstock.api.describe_lag import make_describe_lag
from penstock.api.describe_log_dirs import make_describe_log_dirs
from penstock.api.describe_producers import make_describe_producers
from penstock.api.describe_quorum import make_describe_quorum
from penstock.api.describe_topic_partitions import make_describe_topic_partitions
from penstock.api.describe_transactions import make_describe_transactions
from penstock.api.elect_leaders import make_elect_leaders
from penstock.api.end_txn import make_end_txn
from penstock.api.fetch import make_fetch
from penstock.api.find_coordinator import make_find_coordinator
from penstock.api.heartbeat import make_heartbeat
from penstock.api.incremental_alter_configs import make_incremental_alter_configs
from penstock.api.init_producer_id import make_init_producer_id
from penstock.api.join_group import make_join_group
from penstock.api.leave_group import make_leave_group
from penstock.api.list_config_resources import make_list_config_resources
from penstock.api.list_groups import make_list_groups
from penstock.api.list_offsets import make_list_offsets
from penstock.api.list_partition_reassignments import make_list_partition_reassignments
from penstock.api.list_transactions import make_list_transactions
from penstock.api.metadata import make_metadata
from penstock.api.offset_commit import make_offset_commit
from penstock.api.offset_delete import make_offset_delete
from penstock.api.offset_fetch import make_offset_fetch
from penstock.api.offset_for_leader_epoch import make_offset_for_leader_epoch
from penstock.api.produce import make_produce
from penstock.api.remove_raft_voter import make_remove_raft_voter
from penstock.api.sync_group import make_sync_group
from penstock.api.txn_offset_commit import make_txn_offset_commit
from penstock.api.unregister_broker import make_unregister_broker
from penstock.api.update_features import make_update_features
from penstock.api.write_txn_markers import make_write_txn_markers
from penstock.core.metadata.features import SUPPORTED_FEATURES
from penstock.core.metadata.image import Image
from penstock.core.replica.fetch_session import SessionCache
from penstock.core.replica.throttle import Throttle
from penstock.runtime.controller import Controller
from penstock.runtime.controller_client import TopicCreator
from penstock.runtime.env import Env
from penstock.runtime.groups import Groups
from penstock.runtime.lag import LagView
from penstock.runtime.live_settings import LiveSettings
from penstock.runtime.partition import Partition
from penstock.runtime.partitions import Partitions
from penstock.runtime.producer_ids import ProducerIds
from penstock.runtime.raft_driver import RaftDriver
from penstock.runtime.transaction_verifier import is_verification_enabled
from penstock.runtime.transactions import Transactions

API_VERSIONS_KEY = 18

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
    write_marker: Callable[..., Any]


class Entry(NamedTuple, Generic[Parts]):
    """One API: the versions it advertises, the module that serves it, how its handler is made."""

    first_version: int
    last_version: int
    module: str
    make: Callable[[Parts], Handler]


TABLE: Mapping[int, Entry[Services]] = {
    0: Entry(
        0,
        13,
        "produce",
        lambda s: make_produce(
            s.env,
            s.partitions,
            s.settings.node.penstock_sync_on_ack,
            s.verify,
            lambda: is_verification_enabled(s.settings),
        ),
    ),
    1: Entry(
        4,
        18,
        "fetch",
        lambda s: make_fetch(
            s.env,
            s.partitions,
            s.sessions,
            s.settings.node.fetch_max_bytes,
            by_rack=s.settings.node.replica_selector_class == RACK_AWARE_SELECTOR,
            propose=s.propose,
            throttle=s.replication_throttle,
        ),
    ),
    2: Entry(1, 10, "list_offsets", lambda s: make_list_offsets(s.partitions)),
    3: Entry(
        0,
        13,
        "metadata",
        lambda s: make_metadata(
            s.image, s.topic_creator, s.cluster_id, s.controller_id, s.settings.node.auto_create_topics_enable
        ),
    ),
    8: Entry(2, 9, "offset_commit", lambda s: make_offset_commit(s.image, s.groups)),
    9: Entry(1, 9, "offset_fetch", lambda s: make_offset_fetch(s.groups)),
    10: Entry(0, 6, "find_coordinator", lambda s: make_find_coordinator(s.image, s.groups, s.transactions)),
    11: Entry(0, 9, "join_group", lambda s: make_join_group(s.groups)),
    12: Entry(0, 4, "heartbeat", lambda s: make_heartbeat(s.groups)),
    13: Entry(0, 5, "leave_group", lambda s: make_leave_group(s.groups)),
    14: Entry(0, 5, "sync_group", lambda s: make_sync_group(s.groups)),
    15: Entry(0, 6, "describe_groups", lambda s: make_describe_groups(s.groups)),
    16: Entry(0, 5, "list_groups", lambda s: make_list_groups(s.groups)),
    18: Entry(0, 4, "api_versions", lambda s: make_api_versions(ADVERTISED, FEATURES, s.image)),
    19: Entry(2, 7, "create_topics", lambda s: make_create_topics(s.controller, s.settings.broker_properties)),
    20: Entry(1, 6, "delete_topics", lambda s: make_delete_topics(s.controller, s.settings.node.delete_topic_enable)),
    21: Entry(0, 2, "delete_records", lambda s: make_delete_records(s.partitions, s.settle_deletions)),
    22: Entry(0, 5, "init_producer_id", lambda s: make_init_producer_id(s.producer_ids, s.transactions)),
    23: Entry(2, 4, "offset_for_leader_epoch", lambda s: make_offset_for_leader_epoch(s.partitions)),
    24: Entry(0, 5, "add_partitions_to_txn", lambda s: make_add_partitions_to_txn(s.image, s.transactions)),
    25: Entry(0, 4, "add_offsets_to_txn", lambda s: make_add_offsets_to_txn(s.image, s.groups, s.transactions)),
    26: Entry(0, 5, "end_txn", lambda s: make_end_txn(s.transactions)),
    27: Entry(1, 1, "write_txn_markers", lambda s: make_write_txn_markers(s.write_marker)),
    28: Entry(
        0,
        5,
        "txn_offset_commit",
        lambda s: make_txn_offset_commit(
            s.env, s.image, s.partitions, s.groups, s.verify, lambda: is_verification_enabled(s.settings)
        ),
    ),
    32: Entry(1, 4, "describe_configs", lambda s: make_describe_configs(s.image, s.settings)),
    33: Entry(0, 2, "alter_configs", lambda s: make_alter_configs(s.controller, s.settings)),
    35: Entry(1, 4, "describe_log_dirs", lambda s: make_describe_log_dirs(s.env, s.partitions)),
    37: Entry(0, 3, "create_partitions", lambda s: make_create_partitions(s.controller)),
    42: Entry(0, 2, "delete_groups", lambda s: make_delete_groups(s.groups)),
    43: Entry(0, 2, "elect_leaders", lambda s: make_elect_leaders(s.controller)),
    44: Entry(0, 1, "incremental_alter_configs", lambda s: make_incremental_alter_configs(s.controller, s.settings)),
    45: Entry(0, 1, "alter_partition_reassignments", lambda s: make_alter_partition_reassignments(s.controller)),
    46: Entry(0, 0, "list_partition_reassignments", lambda s: make_list_partition_reassignments(s.controller)),
    47: Entry(0, 0, "offset_delete", lambda s: make_offset_delete(s.groups)),
    55: Entry(0, 2, "describe_quorum", lambda s: make_describe_quorum(s.raft)),
    57: Entry(0, 2, "update_features", lambda s: make_update_features(s.controller)),
    60: Entry(0, 2, "describe_cluster", lambda s: make_describe_cluster(s.image, s.cluster_id, s.controller_id)),
    61: Entry(0, 0, "describe_producers", lambda s: make_describe_producers(s.partitions)),
    64: Entry(0, 0, "unregister_broker", lambda s: make_unregister_broker(s.controller)),
    65: Entry(0, 0, "describe_transactions", lambda s: make_describe_transactions(s.transactions)),
    66: Entry(0, 2, "list_transactions", lambda s: make_list_transactions(s.transactions)),
    68: Entry(0, 1, "consumer_group_heartbeat", lambda s: make_consumer_group_heartbeat(s.groups)),
    69: Entry(0, 1, "consumer_group_describe", lambda s: make_consumer_group_describe(s.groups)),
    74: Entry(0, 1, "list_config_resources", lambda s: make_list_config_resources(s.image)),
    75: Entry(0, 0, "describe_topic_partitions", lambda s: make_describe_topic_partitions(s.image)),
    80: Entry(0, 0, "add_raft_voter", lambda s: make_add_raft_voter(s.raft)),
    81: Entry(0, 0, "remove_raft_voter", lambda s: make_remove_raft_voter(s.raft)),
    10000: Entry(0, 0, "describe_lag", lambda s: make_describe_lag(s.groups, s.lag)),
}

# Keys from here on are Penstock's own, and nobody else's client needs to know them.
FIRST_OWN_KEY = 10_000

VERSIONS: Mapping[int, tuple[int, int]] = {
    key: (entry.first_version, entry.last_version) for key, entry in TABLE.items()
}

ADVERTISED: Mapping[int, tuple[int, int]] = {key: row for key, row in VERSIONS.items() if key < FIRST_OWN_KEY}


def make_handlers(services: Services, keys: Iterable[int] = TABLE) -> dict[int, Handler]:
    """The handlers of the APIs in the table, or of some of them."""
    return {key: TABLE[key].make(services) for key in keys}
