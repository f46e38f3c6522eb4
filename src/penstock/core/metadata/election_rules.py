"""What decides which replicas may lead: settings of a topic, and the live brokers."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from penstock.core.metadata.image import Image, PartitionState, ResourceType

MIN_INSYNC_REPLICAS = "min.insync.replicas"
UNCLEAN_LEADER_ELECTION = "unclean.leader.election.enable"

CanLead = Callable[[PartitionState, int], bool]


class ElectionRules(NamedTuple):
    """How many replicas must be in sync for a commit, and whether a replica that lacks records may lead."""

    min_insync_replicas: int = 1
    unclean_leader_election: bool = False


def rules_for(image: Image, topic: str, defaults: ElectionRules) -> ElectionRules:
    """The rules of one topic: its own settings, else the cluster's."""
    overrides = image.overrides(ResourceType.TOPIC, topic)
    if MIN_INSYNC_REPLICAS not in overrides and UNCLEAN_LEADER_ELECTION not in overrides:
        return defaults
    unclean = overrides.get(UNCLEAN_LEADER_ELECTION)
    return ElectionRules(
        int(overrides.get(MIN_INSYNC_REPLICAS, defaults.min_insync_replicas)),
        defaults.unclean_leader_election if unclean is None else unclean.lower() == "true",
    )


def leader_check(image: Image, *, without: int = -1, with_broker: int = -1) -> CanLead:
    """Whether a replica may lead: its broker is active and its directory is online.

    `without` is a broker that is about to go, `with_broker` one that is about to come; the image does not show it yet.
    """
    brokers = image.brokers

    def can_lead(state: PartitionState, broker_id: int) -> bool:
        broker = brokers.get(broker_id)
        if broker is None or broker_id == without:
            return False
        return (broker.active or broker_id == with_broker) and broker.has_online_directory(state.directory(broker_id))

    return can_lead
