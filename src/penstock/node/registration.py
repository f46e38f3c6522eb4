"""How a broker introduces itself to the controllers."""

from __future__ import annotations

from random import Random

from penstock.config.node import NodeSettings
from penstock.core.metadata.features import SUPPORTED_FEATURES
from penstock.node.directories import Directories
from penstock.node.endpoints import Endpoints
from penstock.wire.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener


def broker_registration(
    settings: NodeSettings, directories: Directories, endpoints: Endpoints, random: Random
) -> BrokerRegistrationRequest:
    """The request with which a broker registers."""
    previous, whole_epoch = directories.predecessor, directories.previous_broker_epoch
    return BrokerRegistrationRequest(
        broker_id=settings.node_id,
        cluster_id=directories.cluster_id,
        incarnation_id=directories.begun_incarnation or random.randbytes(16),
        listeners=[Listener(*address) for address in endpoints.broker_addresses()],
        features=[Feature(name, low, high) for name, (low, high) in SUPPORTED_FEATURES.items()],
        rack=settings.broker_rack,
        log_dirs=[one.directory_id for one in directories.log_directories if one.failure is None],
        previous_broker_epoch=whole_epoch,
        # Controllers of Apache Kafka don't know these, and consider all of its replicas to be incomplete.
        intact_broker_epoch=previous.epoch if whole_epoch < 0 else -1,
        intact_log_dirs=sorted(previous.directories) if whole_epoch < 0 else (),
    )
