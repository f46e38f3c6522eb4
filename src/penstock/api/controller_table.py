"""Every API of the controller listener: what controllers, brokers and administrators' tools ask a controller.

The versions are those of Apache Kafka 4.1. Administrators reach the same handlers through any broker, which forwards
their requests, or here directly (`--bootstrap-controller`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.api.context import Handler
from penstock.api.table import FEATURES, Entry, Handlers
from penstock.core.metadata.image import Image
from penstock.runtime.controller.controller import Controller
from penstock.runtime.live_settings import LiveSettings
from penstock.runtime.raft.driver import RaftDriver

ENVELOPE_KEY = 58


@dataclass(frozen=True, slots=True)
class ControllerServices:
    """The parts that a controller's handlers are made from."""

    image: Image
    raft: RaftDriver
    controller: Controller
    settings: LiveSettings
    cluster_id: str


CONTROLLER_TABLE: Mapping[int, Entry[ControllerServices]] = {
    1: Entry(4, 18, "controller_fetch", lambda api, s: api.make_controller_fetch(s.raft)),
    18: Entry(
        0,
        4,
        "api_versions",
        lambda api, s: api.make_api_versions(CONTROLLER_VERSIONS, FEATURES, api.finalized_in(s.raft)),
    ),
    19: Entry(2, 7, "create_topics", lambda api, s: api.make_create_topics(s.controller, s.settings.broker_properties)),
    20: Entry(
        1, 6, "delete_topics", lambda api, s: api.make_delete_topics(s.controller, s.settings.node.delete_topic_enable)
    ),
    29: Entry(1, 3, "describe_acls", lambda api, _: api.make_describe_acls()),
    30: Entry(1, 3, "create_acls", lambda api, _: api.make_create_acls()),
    31: Entry(1, 3, "delete_acls", lambda api, _: api.make_delete_acls()),
    32: Entry(1, 4, "describe_configs", lambda api, s: api.make_describe_configs(s.image, s.settings)),
    33: Entry(0, 2, "alter_configs", lambda api, s: api.make_alter_configs(s.controller, s.settings)),
    37: Entry(0, 3, "create_partitions", lambda api, s: api.make_create_partitions(s.controller)),
    43: Entry(0, 2, "elect_leaders", lambda api, s: api.make_elect_leaders(s.controller)),
    44: Entry(
        0, 1, "incremental_alter_configs", lambda api, s: api.make_incremental_alter_configs(s.controller, s.settings)
    ),
    45: Entry(
        0, 1, "alter_partition_reassignments", lambda api, s: api.make_alter_partition_reassignments(s.controller)
    ),
    46: Entry(0, 0, "list_partition_reassignments", lambda api, s: api.make_list_partition_reassignments(s.controller)),
    52: Entry(0, 2, "vote", lambda api, s: api.make_vote(s.raft)),
    53: Entry(0, 1, "begin_quorum_epoch", lambda api, s: api.make_begin_quorum_epoch(s.raft)),
    54: Entry(0, 1, "end_quorum_epoch", lambda api, s: api.make_end_quorum_epoch(s.raft)),
    55: Entry(0, 2, "describe_quorum", lambda api, s: api.make_describe_quorum(s.raft)),
    56: Entry(2, 3, "alter_partition", lambda api, s: api.make_alter_partition(s.controller)),
    57: Entry(0, 2, "update_features", lambda api, s: api.make_update_features(s.controller)),
    59: Entry(0, 1, "fetch_snapshot", lambda api, s: api.make_fetch_snapshot(s.raft)),
    60: Entry(
        0,
        2,
        "describe_cluster",
        lambda api, s: api.make_describe_controllers(
            s.image, lambda: s.raft.leader_id, lambda: voter_addresses(s.raft), s.cluster_id
        ),
    ),
    62: Entry(0, 4, "broker_registration", lambda api, s: api.make_broker_registration(s.controller)),
    63: Entry(0, 1, "broker_heartbeat", lambda api, s: api.make_broker_heartbeat(s.controller)),
    64: Entry(0, 0, "unregister_broker", lambda api, s: api.make_unregister_broker(s.controller)),
    67: Entry(0, 0, "allocate_producer_ids", lambda api, s: api.make_allocate_producer_ids(s.controller)),
    70: Entry(0, 0, "controller_registration", lambda api, s: api.make_controller_registration(s.controller)),
    73: Entry(0, 0, "assign_replicas_to_dirs", lambda api, s: api.make_assign_replicas_to_dirs(s.controller)),
    74: Entry(0, 1, "list_config_resources", lambda api, s: api.make_list_config_resources(s.image)),
    80: Entry(0, 0, "add_raft_voter", lambda api, s: api.make_add_raft_voter(s.raft)),
    81: Entry(0, 0, "remove_raft_voter", lambda api, s: api.make_remove_raft_voter(s.raft)),
    82: Entry(0, 0, "update_raft_voter", lambda api, s: api.make_update_raft_voter(s.raft)),
}

CONTROLLER_VERSIONS: Mapping[int, tuple[int, int]] = {
    **{key: (entry.first_version, entry.last_version) for key, entry in CONTROLLER_TABLE.items()},
    ENVELOPE_KEY: (0, 0),
}


def make_controller_handlers(services: ControllerServices) -> dict[int, Handler]:
    """The handler of every API in the table. The envelope's needs the dispatcher and is made with it."""
    return Handlers(CONTROLLER_TABLE, services)


def voter_addresses(raft: RaftDriver) -> dict[int, tuple[str, int]]:
    """Where each voter listens, as far as that is known."""
    found = ((voter, raft.addresses.of(voter)) for voter in raft.quorum.voters.ids)
    return {voter: address for voter, address in found if address is not None}
