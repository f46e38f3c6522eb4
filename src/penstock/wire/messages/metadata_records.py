"""Messages of the metadata family.

Generated from definitions/metadata_records.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.ids import ZERO_UUID


class BrokerEndpoint(NamedTuple):
    name: str = ""
    host: str = ""
    port: int = 0
    security_protocol: int = 0


class BrokerFeature(NamedTuple):
    name: str = ""
    min_supported_version: int = 0
    max_supported_version: int = 0


class RegisterBrokerRecord(NamedTuple):
    """Versions 0-4, flexible from 0."""

    broker_id: int = 0
    is_migrating_zk_broker: bool = False
    incarnation_id: bytes = ZERO_UUID
    broker_epoch: int = 0
    end_points: Sequence[BrokerEndpoint] = ()
    features: Sequence[BrokerFeature] = ()
    rack: str | None = ""
    fenced: bool = True
    in_controlled_shutdown: bool = False
    log_dirs: Sequence[bytes] = ()
    cordoned_log_dirs: Sequence[bytes] | None = None


class UnregisterBrokerRecord(NamedTuple):
    """Version 0, flexible from 0."""

    broker_id: int = 0
    broker_epoch: int = 0


class TopicRecord(NamedTuple):
    """Version 0, flexible from 0."""

    name: str = ""
    topic_id: bytes = ZERO_UUID


class PartitionRecord(NamedTuple):
    """Versions 0-2, flexible from 0."""

    partition_id: int = -1
    topic_id: bytes = ZERO_UUID
    replicas: Sequence[int] = ()
    isr: Sequence[int] = ()
    removing_replicas: Sequence[int] = ()
    adding_replicas: Sequence[int] = ()
    leader: int = -1
    leader_recovery_state: int = 0
    leader_epoch: int = -1
    partition_epoch: int = -1
    directories: Sequence[bytes] = ()
    eligible_leader_replicas: Sequence[int] | None = None
    last_known_elr: Sequence[int] | None = None
    restored_offset: int = 0
    kept_producer_id: int = 0


class ConfigRecord(NamedTuple):
    """Version 0, flexible from 0."""

    resource_type: int = 0
    resource_name: str = ""
    name: str = ""
    value: str | None = ""


class PartitionChangeRecord(NamedTuple):
    """Versions 0-2, flexible from 0."""

    partition_id: int = -1
    topic_id: bytes = ZERO_UUID
    isr: Sequence[int] | None = None
    leader: int = -2
    replicas: Sequence[int] | None = None
    removing_replicas: Sequence[int] | None = None
    adding_replicas: Sequence[int] | None = None
    leader_recovery_state: int = -1
    directories: Sequence[bytes] | None = None
    eligible_leader_replicas: Sequence[int] | None = None
    last_known_elr: Sequence[int] | None = None


class FenceBrokerRecord(NamedTuple):
    """Version 0, flexible from 0."""

    id: int = 0
    epoch: int = 0


class UnfenceBrokerRecord(NamedTuple):
    """Version 0, flexible from 0."""

    id: int = 0
    epoch: int = 0


class RemoveTopicRecord(NamedTuple):
    """Version 0, flexible from 0."""

    topic_id: bytes = ZERO_UUID


class DelegationTokenRecord(NamedTuple):
    """Version 0, flexible from 0."""

    owner: str = ""
    requester: str = ""
    renewers: Sequence[str] = ()
    issue_timestamp: int = 0
    max_timestamp: int = 0
    expiration_timestamp: int = 0
    token_id: str = ""


class UserScramCredentialRecord(NamedTuple):
    """Version 0, flexible from 0."""

    name: str = ""
    mechanism: int = 0
    salt: bytes = b""
    stored_key: bytes = b""
    server_key: bytes = b""
    iterations: int = 0


class FeatureLevelRecord(NamedTuple):
    """Version 0, flexible from 0."""

    name: str = ""
    feature_level: int = 0


class EntityData(NamedTuple):
    entity_type: str = ""
    entity_name: str | None = ""


class ClientQuotaRecord(NamedTuple):
    """Version 0, flexible from 0."""

    entity: Sequence[EntityData] = ()
    key: str = ""
    value: float = 0.0
    remove: bool = False


class ProducerIdsRecord(NamedTuple):
    """Version 0, flexible from 0."""

    broker_id: int = 0
    broker_epoch: int = -1
    next_producer_id: int = 0


class BrokerRegistrationChangeRecord(NamedTuple):
    """Versions 0-3, flexible from 0."""

    broker_id: int = 0
    broker_epoch: int = 0
    fenced: int = 0
    in_controlled_shutdown: int = 0
    log_dirs: Sequence[bytes] = ()
    cordoned_log_dirs: Sequence[bytes] | None = None


class AccessControlEntryRecord(NamedTuple):
    """Version 0, flexible from 0."""

    id: bytes = ZERO_UUID
    resource_type: int = 0
    resource_name: str = ""
    pattern_type: int = 0
    principal: str = ""
    host: str = ""
    operation: int = 0
    permission_type: int = 0


class RemoveAccessControlEntryRecord(NamedTuple):
    """Version 0, flexible from 0."""

    id: bytes = ZERO_UUID


class NoOpRecord(NamedTuple):
    """Version 0, flexible from 0."""


class ZkMigrationStateRecord(NamedTuple):
    """Version 0, flexible from 0."""

    zk_migration_state: int = 0


class RemoveUserScramCredentialRecord(NamedTuple):
    """Version 0, flexible from 0."""

    name: str = ""
    mechanism: int = 0


class BeginTransactionRecord(NamedTuple):
    """Version 0, flexible from 0."""

    name: str | None = None


class EndTransactionRecord(NamedTuple):
    """Version 0, flexible from 0."""


class AbortTransactionRecord(NamedTuple):
    """Version 0, flexible from 0."""

    reason: str | None = None


class RemoveDelegationTokenRecord(NamedTuple):
    """Version 0, flexible from 0."""

    token_id: str = ""


class ControllerEndpoint(NamedTuple):
    name: str = ""
    host: str = ""
    port: int = 0
    security_protocol: int = 0


class ControllerFeature(NamedTuple):
    name: str = ""
    min_supported_version: int = 0
    max_supported_version: int = 0


class RegisterControllerRecord(NamedTuple):
    """Version 0, flexible from 0."""

    controller_id: int = 0
    incarnation_id: bytes = ZERO_UUID
    zk_migration_ready: bool = False
    end_points: Sequence[ControllerEndpoint] = ()
    features: Sequence[ControllerFeature] = ()


class ClearElrRecord(NamedTuple):
    """Version 0, flexible from 0."""

    topic_name: str = ""


class LinkConfig(NamedTuple):
    name: str = ""
    value: str = ""


class LinkRecord(NamedTuple):
    """Version 0, flexible from 0."""

    link_id: bytes = ZERO_UUID
    name: str = ""
    source_cluster_id: str = ""
    origins: Sequence[str] = ()
    topics: Sequence[str] = ()
    exclude: Sequence[str] = ()
    configs: Sequence[LinkConfig] = ()
    is_paused: bool = False
    kept_producer_id: int = 0


class RemoveLinkRecord(NamedTuple):
    """Version 0, flexible from 0."""

    link_id: bytes = ZERO_UUID


class MirrorTopicRecord(NamedTuple):
    """Version 0, flexible from 0."""

    topic_id: bytes = ZERO_UUID
    link_id: bytes = ZERO_UUID
    link_name: str = ""
    source_topic_id: bytes = ZERO_UUID
    state: int = 0
    promotion_id: int = 0
    kept_producer_id: int = 0
    stopped_epochs: Sequence[int] = ()
