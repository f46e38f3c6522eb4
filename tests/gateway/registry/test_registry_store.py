"""The topic `_schemas`: its records, several gateways on it at once, and its contents after they stop."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource

from penstock.testing import Cluster
from support.gateway_process import GatewayProcess

SCHEMA = '{"type":"record","name":"R%d","fields":[{"name":"a","type":"int"}]}'


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A broker whose `_schemas` no other test writes to."""
    with Cluster() as cluster:
        yield cluster


def records_of(cluster: Cluster) -> list[tuple[dict[str, object], dict[str, object] | None]]:
    """Keys and values of all records of the topic."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "reader"})
    try:
        partition = TopicPartition("_schemas", 0, 0)
        consumer.assign([partition])
        _, end = consumer.get_watermark_offsets(partition, timeout=10)
        found = []
        while not found or (found[-1].offset() or 0) < end - 1:
            message = consumer.poll(10)
            assert message is not None
            found.append(message)
    finally:
        consumer.close()
    return [
        (json.loads(message.key() or b"null"), json.loads(message.value() or b"null") if message.value() else None)
        for message in found
    ]


def test_several_gateways_write_at_once_and_agree(cluster: Cluster) -> None:
    with (
        GatewayProcess(cluster.bootstrap_servers) as one,
        GatewayProcess(cluster.bootstrap_servers) as two,
        GatewayProcess(cluster.bootstrap_servers) as three,
    ):
        gateways = [one, two, three]

        def write(number: int) -> int:
            url = f"{gateways[number % 3].registry}/subjects/s{number % 7}/versions"
            response = httpx.post(url, json={"schema": SCHEMA % number}, timeout=60)
            assert response.status_code == 200, response.text
            return int(response.json()["id"])

        httpx.put(f"{one.registry}/config", json={"compatibility": "NONE"}, timeout=30).raise_for_status()
        with ThreadPoolExecutor(9) as pool:
            ids = list(pool.map(write, range(60)))
        assert sorted(ids) == list(range(1, 61)), "each schema has an id of its own"
        # The last writer has read its record; the others are at most a moment behind.
        final = httpx.put(f"{two.registry}/config", json={"compatibility": "FULL"}, timeout=30)
        assert final.status_code == 200
        views = []
        for gateway in gateways:
            listed = httpx.get(f"{gateway.registry}/schemas", timeout=30).json()
            views.append({(each["subject"], each["version"]): each["id"] for each in listed})
        assert views[0] == views[1] == views[2]
        assert len(views[0]) == 60
    last = {json.dumps(key): value for key, value in records_of(cluster)}
    kept = {(value["subject"], value["version"]): value["id"] for value in last.values() if value and "id" in value}
    assert kept == views[0], "what compaction would keep is what counts"
    with GatewayProcess(cluster.bootstrap_servers) as late:
        listed = httpx.get(f"{late.registry}/schemas", timeout=30).json()
        assert {(each["subject"], each["version"]): each["id"] for each in listed} == views[0]


def test_records_have_the_form_that_confluents_registry_reads(cluster: Cluster) -> None:
    with GatewayProcess(cluster.bootstrap_servers) as gateway:
        base = gateway.registry
        httpx.post(f"{base}/subjects/form/versions", json={"schema": SCHEMA % 900}, timeout=30).raise_for_status()
        httpx.put(f"{base}/config/form", json={"compatibility": "FULL"}, timeout=30).raise_for_status()
        httpx.put(f"{base}/mode/form", json={"mode": "READWRITE"}, timeout=30).raise_for_status()
        httpx.delete(f"{base}/subjects/form", timeout=30).raise_for_status()
    analyses = [(key, value) for key, value in records_of(cluster) if key.get("subject") == "form"]
    assert [key for key, _ in analyses] == [
        {"keytype": "SCHEMA", "subject": "form", "version": 1, "magic": 1},
        {"keytype": "CONFIG", "subject": "form", "magic": 0},
        {"keytype": "MODE", "subject": "form", "magic": 0},
        {"keytype": "DELETE_SUBJECT", "subject": "form", "magic": 0},
    ]
    schema, config, mode, deletion = (value for _, value in analyses)
    assert schema is not None
    assert (schema["subject"], schema["version"], schema["schema"], schema["deleted"]) == (
        "form",
        1,
        SCHEMA % 900,
        False,
    )
    assert config == {"subject": "form", "compatibilityLevel": "FULL"}
    assert mode == {"subject": "form", "mode": "READWRITE"}
    assert deletion == {"subject": "form", "version": 1}


def test_records_of_confluents_registry_are_read(cluster: Cluster) -> None:
    cluster.create_topic("_schemas", configs={"cleanup.policy": "compact"})
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    analyses = [
        ('{"keytype":"NOOP","magic":0}', None),
        (
            '{"keytype":"SCHEMA","subject":"theirs","version":3,"magic":1}',
            '{"subject":"theirs","version":3,"id":5000,"md5":"aaaa","schema":"\\"string\\"","deleted":false}',
        ),
        ('{"keytype":"CONFIG","subject":"theirs","magic":0}', '{"compatibilityLevel":"NONE"}'),
        ("not json", "at all"),
    ]
    for key, value in analyses:
        producer.produce("_schemas", value, key)
    assert producer.flush(20) == 0
    with GatewayProcess(cluster.bootstrap_servers) as gateway:
        shown = httpx.get(f"{gateway.registry}/subjects/theirs/versions/latest", timeout=30).json()
        assert (shown["id"], shown["version"], shown["schema"]) == (5000, 3, '"string"')
        assert httpx.get(f"{gateway.registry}/config/theirs", timeout=30).json() == {"compatibilityLevel": "NONE"}
        more = httpx.post(f"{gateway.registry}/subjects/theirs/versions", json={"schema": '"int"'}, timeout=30).json()
        assert (more["id"], more["version"]) == (5001, 4)


@pytest.mark.usefixtures("gateway")
def test_registry_topic_is_compacted_with_a_lag(penstock_cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": penstock_cluster.bootstrap_servers})
    resource = ConfigResource(ConfigResource.Type.TOPIC, "_schemas")
    configs = admin.describe_configs([resource])[resource].result(10)
    assert configs["cleanup.policy"].value == "compact"
    assert int(configs["min.compaction.lag.ms"].value or 0) >= 3_600_000
