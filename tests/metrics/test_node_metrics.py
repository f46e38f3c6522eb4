"""What nodes tell of themselves, after traffic that is known."""

from __future__ import annotations

import socket

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from watched_cluster import RECORDS, TIMEOUT_S, Watched, consume, produce

from penstock.client.cluster import ClusterClient
from penstock.client.settings import read_settings
from penstock.core.security import tenant_setup
from support.prometheus_process import eventually

IN = "kafka_server_brokertopicmetrics_messagesin_total"


def test_records_and_bytes_are_counted_once_in_the_cluster(watched: Watched) -> None:
    topic = watched.cluster.create_topic(partitions=3)
    before = watched.total(IN)
    produce(watched.cluster, topic)
    assert watched.total(f'{IN}{{topic="{topic}"}}', "?detail=topics") == RECORDS
    # Others write too, but not the same records again for each replica.
    assert RECORDS <= watched.total(IN) - before < 2 * RECORDS
    labels = f'{{topic="{topic}"}}'
    bytes_in = watched.total(f"kafka_server_brokertopicmetrics_bytesin_total{labels}", "?detail=topics")
    saved = watched.total(f"penstock_compression_saved_bytes_total{labels}", "?detail=topics")
    assert (bytes_in + saved) / bytes_in > 3
    copied = watched.total(f"kafka_server_brokertopicmetrics_replicationbytesin_total{labels}", "?detail=topics")
    assert copied == 2 * bytes_in


def test_every_broker_reports_what_a_tenant_has_in_the_whole_cluster(watched: Watched) -> None:
    limits = {"tenant_topics": 5.0, "tenant_storage_bytes": 1e9}
    with ClusterClient(read_settings({"bootstrap.servers": watched.cluster.bootstrap_servers})) as client:
        (entry,) = client.ask(tenant_setup.limit("acme", limits)).entries
        assert entry.error_code == 0
    topic = watched.cluster.create_topic("acme.orders", partitions=3)
    produce(watched.cluster, topic)
    labels = f'{{topic="{topic}"}}'
    held = watched.total(f"kafka_server_brokertopicmetrics_bytesin_total{labels}", "?detail=topics")
    assert held > 0

    def told(node_id: int) -> bool:
        # With the indexes of three partitions.
        storage = watched.metrics(node_id, "?detail=tenants").get('penstock_tenant_storage_bytes{tenant="acme"}', 0)
        return held <= storage < held + 3 * 1_000_000

    for node_id in watched.nodes:
        eventually(f"node {node_id} knows what acme holds", lambda node_id=node_id: told(node_id))
        assert not [series for series in watched.metrics(node_id) if "tenant=" in series]
        found = watched.metrics(node_id, "/detail?detail=tenants")
        assert found['penstock_tenant_topics{tenant="acme"}'] == 1
        assert found['penstock_tenant_topics_limit{tenant="acme"}'] == 5
        assert found['penstock_tenant_partitions{tenant="acme"}'] == 3
        assert found['penstock_tenant_storage_limit_bytes{tenant="acme"}'] == 1e9
        assert found['penstock_tenant_refused_batches_total{tenant="acme"}'] == 0
        assert 'penstock_tenant_partitions_limit{tenant="acme"}' not in found


def test_what_consumers_read_is_counted(watched: Watched) -> None:
    topic = watched.cluster.create_topic(partitions=1)
    produce(watched.cluster, topic)
    consumer = Consumer({"bootstrap.servers": watched.cluster.bootstrap_servers, "group.id": "unused"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert len(consumer.consume(RECORDS, TIMEOUT_S)) == RECORDS
    consumer.close()
    labels = f'{{topic="{topic}"}}'
    assert watched.total(f"penstock_messages_out_total{labels}", "?detail=topics") == pytest.approx(RECORDS, rel=0.05)
    bytes_in = watched.total(f"kafka_server_brokertopicmetrics_bytesin_total{labels}", "?detail=topics")
    assert watched.total(f"kafka_server_brokertopicmetrics_bytesout_total{labels}", "?detail=topics") == bytes_in


def test_requests_are_counted_and_timed(watched: Watched) -> None:
    count = 'penstock_request_duration_seconds_count{request="Produce"}'
    waited = 'penstock_request_remote_duration_seconds_count{request="Produce"}'
    before, parked_before = watched.total(count), watched.total(waited)
    produce(watched.cluster, watched.topic, 10)
    requests = watched.total(count) - before
    assert 1 <= requests <= 10
    # acks=all waits for the followers.
    assert watched.total(waited) - parked_before == requests
    for node_id in watched.nodes:
        rows = watched.metrics(node_id)
        assert rows['penstock_request_duration_seconds_count{request="FetchFollower"}'] > 0
        assert rows['kafka_network_requestmetrics_totaltimems{request="FetchFollower",quantile="0.99"}'] > 0
        total = rows['penstock_request_duration_seconds_sum{request="Produce"}']
        local = rows['penstock_request_local_duration_seconds_sum{request="Produce"}']
        remote = rows['penstock_request_remote_duration_seconds_sum{request="Produce"}']
        assert local + remote == pytest.approx(total, rel=1e-6)


def test_errors_are_counted_by_api_and_code(watched: Watched) -> None:
    series = 'kafka_network_requestmetrics_errors_total{request="Produce",error="MESSAGE_TOO_LARGE"}'
    topic = watched.cluster.create_topic(configs={"max.message.bytes": "1000"})
    before = watched.total(series)
    producer = Producer({"bootstrap.servers": watched.cluster.bootstrap_servers})
    refused: list[object] = []
    producer.produce(topic, b"x" * 5000, on_delivery=lambda error, _: refused.append(error))
    producer.flush(TIMEOUT_S)
    assert refused
    assert watched.total(series) == before + 1


def test_a_peer_that_makes_no_sense_is_counted(watched: Watched) -> None:
    before = watched.metrics(1)["penstock_protocol_errors_total"]
    host, _, port = watched.cluster.address(1).rpartition(":")
    with socket.create_connection((host, int(port)), TIMEOUT_S) as peer:
        peer.sendall(b"\x00\x00\x00\x08\x7f\xff\x00\x00\x00\x00\x00\x01")
        assert peer.recv(1) == b""
    assert watched.metrics(1)["penstock_protocol_errors_total"] == before + 1


def test_the_lag_of_a_group_is_exposed_on_demand(watched: Watched) -> None:
    topic = watched.cluster.create_topic(partitions=3)
    produce(watched.cluster, topic)
    consume(watched.cluster, topic, f"readers of {topic}")
    labels = f'{{consumergroup="readers of {topic}",topic="{topic}"}}'
    series = f"kafka_consumergroup_lag_sum{labels}"
    assert not any("kafka_consumergroup_lag" in row for node in watched.nodes for row in watched.metrics(node))
    eventually("the lag", lambda: watched.total(series, "/detail?detail=groups") == RECORDS - 3)


def test_rebalances_commits_and_transactions_are_counted(watched: Watched) -> None:
    assert watched.total('penstock_group_rebalances_total{protocol="classic"}') >= 1
    assert watched.total("penstock_offset_commits_total") >= 3
    for result in ("committed", "aborted"):
        # Counted when the last marker is written, which a client does not wait for.
        series = f'penstock_transactions_total{{result="{result}"}}'
        eventually(f"a transaction that was {result}", lambda series=series: watched.total(series) >= 1)
    assert watched.total("kafka_coordinator_group_groupmetadatamanager_numgroups") >= 1


def test_one_node_is_the_active_controller_and_counts_for_the_cluster(watched: Watched) -> None:
    assert watched.total("kafka_controller_kafkacontroller_activecontrollercount") == 1
    assert watched.total("kafka_controller_kafkacontroller_activebrokercount") == 3
    assert watched.total("kafka_controller_kafkacontroller_offlinepartitionscount") == 0
    led = watched.total("kafka_server_replicamanager_leadercount")
    assert watched.total("kafka_controller_kafkacontroller_globalpartitioncount") == led


def test_details_alone_repeat_nothing(watched: Watched) -> None:
    everybody = watched.metrics(1)
    details = watched.metrics(1, "/detail")
    assert details
    assert not set(everybody) & set(details)
    assert watched.get(1, "/metrics?detail=nonsense").status_code == 400


def test_a_topic_that_is_deleted_takes_nothing_from_the_sums(watched: Watched) -> None:
    topic = watched.cluster.create_topic()
    produce(watched.cluster, topic)
    before = watched.total(IN)
    admin = AdminClient({"bootstrap.servers": watched.cluster.bootstrap_servers})
    admin.delete_topics([topic])[topic].result(TIMEOUT_S)
    series = f'{IN}{{topic="{topic}"}}'
    eventually("the topic is gone", lambda: not watched.total(series, "?detail=topics"))
    assert watched.total(IN) >= before
