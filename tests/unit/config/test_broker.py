from __future__ import annotations

from dataclasses import fields

import pytest

from penstock.config.broker import examine, node_settings
from penstock.config.listeners import Endpoint, Listener
from penstock.config.node import ConfiguredVoter, NodeSettings
from penstock.config.properties import ConfigError

COMBINED = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "controller.listener.names": "CONTROLLER",
    "log.dirs": "/data/one,/data/two/",
}


def settings_of(**changes: str | None) -> tuple[NodeSettings, list[str]]:
    return node_settings(changed(changes))


def changed(changes: dict[str, str | None]) -> dict[str, str]:
    merged = {**COMBINED, **{name.replace("_", "."): value for name, value in changes.items()}}
    return {name: value for name, value in merged.items() if value is not None}


def errors_of(**changes: str | None) -> list[str]:
    return [finding.text for finding in examine(changed(changes)).errors]


def test_a_combined_node() -> None:
    settings, warnings = settings_of()
    assert warnings == []
    assert settings.is_broker
    assert settings.is_controller
    assert settings.node_id == 1
    assert settings.listeners == (
        Listener("PLAINTEXT", "", 9092, "PLAINTEXT"),
        Listener("CONTROLLER", "", 9093, "PLAINTEXT"),
    )
    assert settings.advertised_listeners == settings.listeners
    assert [str(one) for one in settings.broker_listeners] == ["PLAINTEXT://:9092"]
    assert [one.name for one in settings.controller_listeners] == ["CONTROLLER"]
    assert settings.inter_broker_listener_name == "PLAINTEXT"
    assert settings.controller_quorum_voters == (ConfiguredVoter(1, Endpoint("localhost", 9093)),)
    assert settings.log_dirs == ("/data/one", "/data/two")
    assert settings.metadata_log_dir == "/data/one"
    assert settings.num_partitions == 1
    assert settings.socket_request_max_bytes == 104_857_600
    assert settings.penstock_sync_on_ack is True
    assert settings.penstock_disk_full_percent == 90.0
    assert settings.properties["broker.id"] == "1"


def test_fields_hold_values_of_the_type_they_declare() -> None:
    settings, _ = settings_of()
    types = {"int": int, "float": float, "bool": bool, "str": str, "tuple[str, ...]": tuple}
    for field in fields(NodeSettings):
        declared = types.get(str(field.type))
        if declared is not None:
            assert type(getattr(settings, field.name)) is declared, field.name


def test_passwords_do_not_show_in_the_repr() -> None:
    settings, _ = settings_of(ssl_keystore_password="secret-word")
    assert "secret-word" not in repr(settings)
    assert settings.listener_property("PLAINTEXT", "ssl.keystore.password") == "secret-word"


def test_what_topics_inherit() -> None:
    settings, _ = settings_of(log_retention_hours="1", min_insync_replicas="2", default_replication_factor="3")
    assert settings.topic_defaults.retention_ms == 3_600_000
    assert settings.topic_defaults.min_insync_replicas == 2


def test_a_broker_and_a_controller_of_their_own() -> None:
    broker, _ = settings_of(process_roles="broker", node_id="2", listeners="PLAINTEXT://:9092")
    assert not broker.is_controller
    controller, _ = settings_of(process_roles="controller", listeners="CONTROLLER://:9093")
    assert not controller.is_broker
    assert controller.inter_broker_listener_name is None


def test_a_node_of_a_quorum_of_three() -> None:
    settings, warnings = settings_of(controller_quorum_voters="1@one:9093,2@two:9093,3@three:9093")
    assert warnings == []
    assert settings.controller_quorum_voters[2] == ConfiguredVoter(3, Endpoint("three", 9093))


def test_a_broker_that_bootstraps_from_its_controllers() -> None:
    settings, warnings = settings_of(
        process_roles="broker",
        node_id="7",
        listeners="PLAINTEXT://:9092",
        controller_quorum_voters=None,
        controller_quorum_bootstrap_servers="one:9093,two:9093",
    )
    assert warnings == []
    assert settings.controller_quorum_bootstrap_servers == (Endpoint("one", 9093), Endpoint("two", 9093))


def test_a_controller_on_every_interface_advertises_the_name_of_its_machine() -> None:
    bound = "PLAINTEXT://10.0.0.1:9092,CONTROLLER://0.0.0.0:9093"
    settings, _ = settings_of(listeners=bound)
    assert [str(one) for one in settings.advertised_listeners] == ["PLAINTEXT://10.0.0.1:9092", "CONTROLLER://:9093"]
    settings, _ = settings_of(listeners=bound, advertised_listeners="PLAINTEXT://kafka:9092,CONTROLLER://one:19093")
    assert [str(one) for one in settings.advertised_listeners] == ["PLAINTEXT://kafka:9092", "CONTROLLER://one:19093"]


def test_a_silent_broker_is_fenced_before_clients_give_up() -> None:
    settings, _ = settings_of()
    assert (settings.broker_session_timeout_ms, settings.broker_heartbeat_interval_ms) == (4000, 1000)


def test_kafkas_replica_selectors_are_known_by_name() -> None:
    name = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    settings, _ = settings_of(replica_selector_class=name)
    assert settings.replica_selector_class == name


def test_broker_id_alone_is_understood() -> None:
    settings, _ = settings_of(node_id=None, broker_id="0", controller_quorum_voters="0@localhost:9093")
    assert settings.node_id == 0


def test_several_listeners() -> None:
    settings, _ = settings_of(
        listeners="INTERNAL://10.0.0.1:19092,EXTERNAL://0.0.0.0:9092,CONTROLLER://[::1]:9093",
        advertised_listeners="internal://10.0.0.1:19092,EXTERNAL://kafka.example.com:9092",
        listener_security_protocol_map="INTERNAL:PLAINTEXT,EXTERNAL:plaintext,CONTROLLER:PLAINTEXT",
        inter_broker_listener_name="INTERNAL",
    )
    assert [str(one) for one in settings.advertised_listeners] == [
        "INTERNAL://10.0.0.1:19092",
        "EXTERNAL://kafka.example.com:9092",
        "CONTROLLER://[::1]:9093",
    ]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"node_id": None}, "node.id is not set"),
        ({"process_roles": None}, "process.roles is not set"),
        ({"process_roles": "broker,zookeeper"}, "list of broker, controller"),
        ({"broker_id": "2"}, "broker.id=2 contradicts node.id=1"),
        ({"controller_quorum_voters": None}, "both missing"),
        ({"controller_quorum_voters": "2@localhost:9093"}, "does not name node.id=1"),
        ({"controller_quorum_voters": "1@localhost"}, "expected id@host:port"),
        ({"controller_quorum_voters": "1@localhost:70000"}, "expected id@host:port"),
        ({"controller_quorum_voters": "1@a:9093,1@b:9093"}, "names a node twice"),
        ({"controller_quorum_voters": "1@a:9093,2@b:0"}, "give each one instead of 0"),
        ({"controller_quorum_bootstrap_servers": "here"}, "expected host:port"),
        ({"replica_selector_class": "com.example.Nearest"}, "runs no Java classes"),
        ({"process_roles": "broker", "listeners": "PLAINTEXT://:9092"}, "which is only a broker"),
        ({"process_roles": "broker", "node_id": "2"}, "this node is not a controller"),
        ({"process_roles": "controller"}, "this node is not a broker"),
        ({"controller_listener_names": None}, "controller.listener.names is not set"),
        ({"listeners": "PLAINTEXT://:9092"}, "CONTROLLER is not among listeners"),
        ({"listeners": "CONTROLLER://:9093"}, "a broker needs a listener for clients"),
        ({"listeners": "PLAINTEXT://:9093,CONTROLLER://:9093"}, "the same port 9093"),
        ({"listeners": "PLAINTEXT://:9092,PLAINTEXT://:9094,CONTROLLER://:9093"}, "used twice"),
        (
            {"listeners": "PLAINTEXT://0.0.0.0:9092,CONTROLLER://:9093"},
            "add advertised.listeners=PLAINTEXT://myhost:9092",
        ),
        ({"advertised_listeners": "PLAINTEXT://0.0.0.0:9092"}, "clients cannot connect to 0.0.0.0"),
        ({"advertised_listeners": "SSL://myhost:9092"}, "SSL is not among listeners"),
        ({"listeners": "PLAINTEX://:9092,CONTROLLER://:9093"}, "did you mean PLAINTEXT?"),
        ({"listeners": "localhost:9092"}, "expected NAME://host:port"),
        ({"listeners": "PLAINTEXT://:99999,CONTROLLER://:9093"}, "expected NAME://host:port"),
        ({"listener_security_protocol_map": "CONTROLLER:TLS"}, "expected NAME:PROTOCOL"),
        ({"inter_broker_listener_name": "OTHER"}, "set inter.broker.listener.name=PLAINTEXT"),
        ({"inter_broker_listener_name": "PLAINTEXT", "security_inter_broker_protocol": "PLAINTEXT"}, "both set"),
        ({"log_dirs": "/data/one,/data/one/"}, "names /data/one twice"),
        ({"log_dirs": " , "}, "log.dirs is empty"),
        ({"num_partitions": "0"}, "num.partitions=0: expected a whole number, at least 1"),
        ({"log_segment_bytes": "4"}, "log.segment.bytes=4"),
        ({"zookeeper_connect": "localhost:2181"}, "runs without ZooKeeper"),
        ({"port": "9092"}, "say it with listeners"),
        ({"log_retention_hour": "1"}, "log.retention.hour is not a setting; did you mean log.retention.hours?"),
        ({"retention_ms": "1"}, "is a topic setting; for all topics use log.retention.ms"),
        ({"penstock_unheard": "1"}, "penstock.unheard is not a setting"),
        ({"listener_name_plaintext_num_partitionz": "1"}, "not a setting"),
        ({"listener_name_plaintext_ssl_client_auth": "maybe"}, "listener.name.plaintext.ssl.client.auth=maybe"),
        ({"replica_fetch_wait_max_ms": "40000"}, "replica.lag.time.max.ms=30000 is less than"),
        ({"queued_max_request_bytes": "5"}, "queued.max.request.bytes=5 is less than"),
        ({"max_connections_per_ip": "0"}, "accepts no connection"),
        ({"max_connections_per_ip_overrides": "host"}, "expected address:count"),
        ({"group_consumer_session_timeout_ms": "61000"}, "group.consumer.max.session.timeout.ms=60000"),
        ({"group_min_session_timeout_ms": "1800001"}, "group.max.session.timeout.ms=1800000"),
        ({"log_cleaner_dedupe_buffer_size": "1048576"}, "expected more than 1048576"),
        ({"default_replication_factor": "0"}, "expected at least 1"),
        ({"group_share_heartbeat_interval_ms": "4000"}, "must not be more than group.share.heartbeat.interval.ms=4000"),
        ({"group_streams_session_timeout_ms": "61000"}, "group.streams.max.session.timeout.ms=60000"),
        ({"group_share_min_delivery_count_limit": "5", "group_share_delivery_count_limit": "4"}, "limit=4"),
        ({"group_coordinator_rebalance_protocols": "consumer"}, "must name classic"),
        ({"remote_log_storage_system_enable": "true"}, "penstock.tier.url is not set"),
        ({"remote_log_storage_system_enable": "true", "penstock_tier_url": "ftp://a"}, "expected a URL that begins"),
        (
            {"listeners": "SSL://:9092,CONTROLLER://:9093", "inter_broker_listener_name": "SSL"},
            "CONTROLLER has no security",
        ),
    ],
)
def test_what_is_wrong_is_said(changes: dict[str, str | None], sentence: str) -> None:
    texts = errors_of(**changes)
    assert any(sentence in text for text in texts), texts
    with pytest.raises(ConfigError):
        node_settings(changed(changes))


def test_tiered_storage_that_is_off_is_accepted() -> None:
    _, warnings = settings_of(remote_log_storage_system_enable="false", remote_log_manager_task_interval_ms="30000")
    assert warnings == []


def test_everything_wrong_is_named_at_once() -> None:
    texts = errors_of(node_id=None, num_partitions="x", log_segment_bytes="1", zookeeper_connect="x")
    assert len(texts) == 4


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"num_io_threads": "4"}, "accepted without effect"),
        ({"offsets_commit_timeout_ms": "4"}, "without effect in this release: offsets.commit.timeout.ms"),
        ({"quota_producer_default": "4"}, "is ignored: set default quotas with"),
        ({"confluent_metrics_enable": "true"}, "belongs to a plugin"),
        ({"entirely_unheard_of": "true"}, "is ignored"),
        ({"inter_broker_protocol_version": "3.9"}, "no longer a setting"),
        ({"password_encoder_secret": "x"}, "no longer a setting"),
        (
            {"log_retention_hours": "5", "log_retention_ms": "7"},
            "log.retention.hours=5 is ignored: log.retention.ms=7 counts",
        ),
        ({"log_dir": "/data/three"}, "log.dir=/data/three is ignored"),
        ({"log_dirs": "/tmp/kraft-combined-logs"}, "does not outlive a restart"),
        ({"log_dirs": "/dev/shm/kafka"}, "does not outlive a restart"),
        ({"min_insync_replicas": "2"}, "min.insync.replicas=2 is more than default.replication.factor=1"),
        ({"transaction_state_log_replication_factor": "1"}, "transaction.state.log.min.isr=2"),
        ({"message_max_bytes": "200000000"}, "more than socket.request.max.bytes"),
        ({"broker_heartbeat_interval_ms": "5000"}, "one lost heartbeat"),
        ({"controller_quorum_voters": "1@localhost:9095"}, "its controller listens on 9093"),
        ({"leader_replication_throttled_rate": "5000"}, "is ignored here"),
        ({"broker_id": "3", "node_id": None, "controller_quorum_voters": "3@localhost:9093"}, "write node.id=3"),
    ],
)
def test_what_is_odd_is_a_warning(changes: dict[str, str | None], sentence: str) -> None:
    _, warnings = settings_of(**changes)
    assert len(warnings) == 1
    assert sentence in warnings[0]


def test_settings_of_one_listener() -> None:
    changes = {
        "listener.name.external.ssl.client.auth": "required",
        "listener.name.external.scram-sha-512.sasl.jaas.config": "x",
        "ssl.client.auth": "requested",
    }
    settings, warnings = node_settings({**COMBINED, **changes})
    assert warnings == []
    assert settings.listener_property("EXTERNAL", "ssl.client.auth") == "required"
    assert settings.listener_property("PLAINTEXT", "ssl.client.auth") == "requested"
    assert settings.listener_property("PLAINTEXT", "sasl.enabled.mechanisms") == "GSSAPI"


def test_lists_with_their_own_form() -> None:
    settings, _ = settings_of(
        max_connections_per_ip_overrides="10.0.0.7:5, ::1:6",
        controller_quorum_bootstrap_servers="one:9093,[fe80::1]:9093",
        internal_metadata_log_segment_bytes="4096",
    )
    assert settings.max_connections_per_ip_overrides == {"10.0.0.7": 5, "::1": 6}
    assert settings.controller_quorum_bootstrap_servers == (Endpoint("one", 9093), Endpoint("fe80::1", 9093))
    assert settings.metadata_log_segment_bytes == 4096
