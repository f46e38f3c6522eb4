"""The settings of one node, as the rest of Penstock reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.config.listeners import Endpoint, Listener, MetricsListener
from penstock.config.tables import BROKER_PROPERTIES
from penstock.config.topic import TopicSettings

BROKER_ROLE = "broker"
CONTROLLER_ROLE = "controller"


@dataclass(frozen=True, slots=True)
class ConfiguredVoter:
    """A controller of the fixed quorum."""

    node_id: int
    endpoint: Endpoint


# No generated repr: `properties` can hold passwords, which must not reach a log. No generated comparison: no code
# compares nodes, and leaving both out halves the time that this wide class takes to import.
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class NodeSettings:
    """What a node runs with, checked. A field is named after its property, dots as underscores.

    Not fields: what topics inherit (see `topic_defaults`), and TLS and SASL settings, which each listener can
    override (see `listener_property`). `properties` holds what the configuration said, as text, and
    the node's number under both of its names.
    """

    properties: Mapping[str, str]
    roles: frozenset[str]
    node_id: int
    listeners: tuple[Listener, ...]
    advertised_listeners: tuple[Listener, ...]
    controller_listener_names: tuple[str, ...]
    inter_broker_listener_name: str | None
    # Of every listener of the cluster by name.
    security_protocols: Mapping[str, str]
    controller_quorum_voters: tuple[ConfiguredVoter, ...]
    controller_quorum_bootstrap_servers: tuple[Endpoint, ...]
    log_dirs: tuple[str, ...]
    cordoned_log_dirs: tuple[str, ...]
    metadata_log_dir: str
    penstock_metrics_listener: MetricsListener | None
    max_connections_per_ip_overrides: Mapping[str, int]
    topic_defaults: TopicSettings
    allow_everyone_if_no_acl_found: bool
    authorizer_class_name: str
    delegation_token_expiry_check_interval_ms: int
    delegation_token_expiry_time_ms: int
    delegation_token_max_lifetime_ms: int
    delegation_token_secret_key: str | None
    super_users: str
    broker_heartbeat_interval_ms: int
    broker_rack: str | None
    broker_session_timeout_ms: int
    confluent_schema_registry_url: tuple[str, ...]
    confluent_basic_auth_user_info: str | None
    confluent_ssl_truststore_location: str | None
    connections_max_idle_ms: int
    controller_quota_window_num: int
    controller_quota_window_size_seconds: int
    quota_window_num: int
    quota_window_size_seconds: int
    controlled_shutdown_enable: bool
    controller_quorum_election_backoff_max_ms: int
    controller_quorum_election_timeout_ms: int
    controller_quorum_fetch_timeout_ms: int
    controller_quorum_request_timeout_ms: int
    controller_quorum_retry_backoff_ms: int
    fetch_max_bytes: int
    initial_broker_registration_timeout_ms: int
    max_connection_creation_rate: int
    max_connections: int
    max_connections_per_ip: int
    max_incremental_fetch_session_cache_slots: int
    max_request_partition_size_limit: int
    metadata_log_max_record_bytes_between_snapshots: int
    metadata_log_max_snapshot_interval_ms: int
    metadata_log_segment_bytes: int
    metadata_log_segment_ms: int
    penstock_audit_enable: bool
    penstock_audit_log: bool
    penstock_audit_queue_max_events: int
    penstock_audit_retention_ms: int
    penstock_backpressure_check_interval_ms: int
    penstock_backpressure_throttle_max_ms: int
    penstock_connection_write_buffer_bytes: int
    penstock_disk_full_percent: float
    penstock_group_metadata_max_bytes: int
    penstock_group_configs_max: int
    penstock_coordinator_prefix_bytes_max: int
    penstock_tenant_usage_interval_ms: int
    penstock_loop: str
    telemetry_max_bytes: int
    penstock_telemetry_clients_max: int
    penstock_telemetry_series_max: int
    penstock_metrics_counting: bool
    penstock_partition_producer_ids_max: int
    penstock_request_bytes_max: int
    penstock_request_entries_max: int
    penstock_auto_create_topics_max: int
    penstock_fetch_sessions_bytes_max: int
    penstock_request_read_timeout_ms: int
    penstock_sync_on_ack: bool
    penstock_topic_min_insync_replicas_min: int
    penstock_share_delay_index_max_records: int
    penstock_log_scrub_bytes_per_second: int
    penstock_log_scrub_interval_ms: int
    penstock_topic_name_pattern: str
    penstock_topic_partitions_max: int
    penstock_topic_partitions_min: int
    penstock_topic_replication_factor_min: int
    penstock_topic_required_settings: tuple[str, ...]
    penstock_topic_retention_ms_min: int
    penstock_write_stall_timeout_ms: int
    queued_max_request_bytes: int
    request_timeout_ms: int
    socket_listen_backlog_size: int
    socket_receive_buffer_bytes: int
    socket_request_max_bytes: int
    socket_send_buffer_bytes: int
    auto_create_topics_enable: bool
    delete_topic_enable: bool
    log_cleaner_backoff_ms: int
    log_cleaner_dedupe_buffer_size: int
    log_cleaner_enable: bool
    log_cleaner_io_max_bytes_per_second: float
    log_flush_offset_checkpoint_interval_ms: int
    log_retention_check_interval_ms: int
    log_dir_failure_timeout_ms: int
    num_partitions: int
    producer_id_expiration_check_interval_ms: int
    producer_id_expiration_ms: int
    auto_leader_rebalance_enable: bool
    default_replication_factor: int
    leader_imbalance_check_interval_seconds: int
    num_replica_fetchers: int
    remote_log_storage_system_enable: bool
    remote_fetch_max_wait_ms: int
    remote_list_offsets_request_timeout_ms: int
    remote_log_index_file_cache_total_size_bytes: int
    remote_log_manager_copy_max_bytes_per_second: int
    remote_log_manager_fetch_max_bytes_per_second: int
    remote_log_manager_task_interval_ms: int
    remote_log_manager_task_retry_backoff_ms: int
    remote_log_manager_task_retry_backoff_max_ms: int
    remote_log_manager_copier_thread_pool_size: int
    remote_log_manager_expiration_thread_pool_size: int
    remote_log_reader_max_pending_tasks: int
    remote_log_reader_threads: int
    penstock_tier_url: str | None
    penstock_tier_options: str | None
    penstock_tier_request_timeout_ms: int
    penstock_tier_cache_dir: str | None
    penstock_tier_cache_bytes: int
    penstock_tier_memory_bytes: int
    penstock_tier_read_bytes: int
    penstock_tier_read_ahead: int
    penstock_tier_compression: str
    penstock_tier_encryption_keys_file: str | None
    rlmm_config_remote_log_metadata_topic_num_partitions: int
    rlmm_config_remote_log_metadata_topic_replication_factor: int
    rlmm_config_remote_log_metadata_topic_retention_ms: int
    replica_fetch_backoff_ms: int
    replica_fetch_max_bytes: int
    replica_fetch_min_bytes: int
    replica_fetch_response_max_bytes: int
    replica_fetch_wait_max_ms: int
    replica_lag_time_max_ms: int
    replica_selector_class: str | None
    replica_socket_timeout_ms: int
    unclean_leader_election_interval_ms: int
    add_partitions_to_txn_retry_backoff_max_ms: int
    add_partitions_to_txn_retry_backoff_ms: int
    group_consumer_assignors: tuple[str, ...]
    group_consumer_heartbeat_interval_ms: int
    group_consumer_max_heartbeat_interval_ms: int
    group_consumer_max_session_timeout_ms: int
    group_consumer_max_size: int
    group_consumer_migration_policy: str
    group_consumer_min_heartbeat_interval_ms: int
    group_consumer_min_session_timeout_ms: int
    group_consumer_regex_refresh_interval_ms: int
    group_consumer_session_timeout_ms: int
    group_coordinator_append_linger_ms: int
    group_coordinator_rebalance_protocols: tuple[str, ...]
    group_initial_rebalance_delay_ms: int
    group_max_session_timeout_ms: int
    group_max_size: int
    group_min_session_timeout_ms: int
    errors_deadletterqueue_auto_create_topics_enable: bool
    errors_deadletterqueue_topic_name_prefix: str
    group_share_delivery_count_limit: int
    group_share_heartbeat_interval_ms: int
    group_share_max_delivery_count_limit: int
    group_share_max_heartbeat_interval_ms: int
    group_share_max_partition_max_record_locks: int
    group_share_max_record_lock_duration_ms: int
    group_share_max_session_timeout_ms: int
    group_share_max_share_sessions: int
    group_share_max_size: int
    group_share_min_delivery_count_limit: int
    group_share_min_heartbeat_interval_ms: int
    group_share_min_partition_max_record_locks: int
    group_share_min_record_lock_duration_ms: int
    group_share_min_session_timeout_ms: int
    group_share_partition_max_record_locks: int
    group_share_record_lock_duration_ms: int
    group_share_session_timeout_ms: int
    group_streams_assignment_interval_ms: int
    group_streams_heartbeat_interval_ms: int
    group_streams_initial_rebalance_delay_ms: int
    group_streams_max_assignment_interval_ms: int
    group_streams_max_heartbeat_interval_ms: int
    group_streams_max_session_timeout_ms: int
    group_streams_max_size: int
    group_streams_max_standby_replicas: int
    group_streams_min_assignment_interval_ms: int
    group_streams_min_heartbeat_interval_ms: int
    group_streams_min_session_timeout_ms: int
    group_streams_num_standby_replicas: int
    group_streams_session_timeout_ms: int
    offset_metadata_max_bytes: int
    offsets_retention_check_interval_ms: int
    offsets_retention_minutes: int
    offsets_topic_num_partitions: int
    offsets_topic_replication_factor: int
    offsets_topic_segment_bytes: int
    share_coordinator_cold_partition_snapshot_interval_ms: int
    share_coordinator_snapshot_update_records_per_snapshot: int
    share_coordinator_state_topic_min_isr: int
    share_coordinator_state_topic_num_partitions: int
    share_coordinator_state_topic_prune_interval_ms: int
    share_coordinator_state_topic_replication_factor: int
    share_coordinator_state_topic_segment_bytes: int
    share_coordinator_write_timeout_ms: int
    transaction_max_timeout_ms: int
    transaction_partition_verification_enable: bool
    transaction_remove_expired_transaction_cleanup_interval_ms: int
    transaction_state_log_min_isr: int
    transaction_state_log_num_partitions: int
    transaction_state_log_replication_factor: int
    transaction_state_log_segment_bytes: int
    transactional_id_expiration_ms: int

    @property
    def is_broker(self) -> bool:
        return BROKER_ROLE in self.roles

    @property
    def is_controller(self) -> bool:
        return CONTROLLER_ROLE in self.roles

    @property
    def broker_listeners(self) -> tuple[Listener, ...]:
        """The listeners that clients and other brokers connect to."""
        return tuple(one for one in self.listeners if one.name not in self.controller_listener_names)

    @property
    def controller_listeners(self) -> tuple[Listener, ...]:
        """The listeners of this node's controller."""
        return tuple(one for one in self.listeners if one.name in self.controller_listener_names)

    def listener_property(self, listener_name: str, name: str) -> str | None:
        """The text of a property for one listener: its own value, else the node's, else Kafka's default."""
        own = self.properties.get(f"listener.name.{listener_name.lower()}.{name}")
        if own is not None:
            return own
        row = BROKER_PROPERTIES[name]
        return self.properties.get(name, row.default_text)

    def listener_number(self, listener_name: str, name: str, otherwise: int) -> int:
        """A whole number that one listener can have to itself; `otherwise` is the node's."""
        own = self.properties.get(f"listener.name.{listener_name.lower()}.{name}")
        return otherwise if own is None else int(own)
