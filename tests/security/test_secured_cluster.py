"""Three nodes that trust only each other: TLS and SCRAM between brokers and controllers, kills and new certificates."""

from __future__ import annotations

import datetime
import ssl
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from penstock.runtime.security.access_control import STANDARD_AUTHORIZER
from penstock.runtime.security.certificates import issue
from support.secure_cluster import ADMIN, PASSWORD, START_TIMEOUT_S, SecureCluster

pytestmark = pytest.mark.slow

RECORDS = 2_000
ACCESS_LISTS = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": f"User:{ADMIN}"}


def test_a_secured_cluster_loses_nothing_when_nodes_are_killed(tmp_path: Path) -> None:
    with SecureCluster(tmp_path, nodes=3, settings=ACCESS_LISTS) as cluster:
        settings = cluster.librdkafka()
        admin = AdminClient(settings)
        admin.create_topics([NewTopic("orders", 3, 3)])["orders"].result(60)
        failed: list[object] = []
        producer = Producer({**settings, "enable.idempotence": "true", "message.timeout.ms": "120000"})
        for number in range(RECORDS):
            producer.produce(
                "orders", str(number).encode(), callback=lambda error, _: failed.append(error) if error else None
            )
            producer.poll(0)
            if number == RECORDS // 3:
                cluster.process(2).kill()
            if number == 2 * RECORDS // 3:
                producer.flush(120)
                cluster.process(2).start(START_TIMEOUT_S)
        assert producer.flush(120) == 0
        assert failed == []
        consumer = Consumer({**settings, "group.id": "readers", "auto.offset.reset": "earliest"})
        consumer.subscribe(["orders"])
        seen: list[int] = []
        deadline = time.monotonic() + 120
        while len(seen) < RECORDS and time.monotonic() < deadline:
            seen += [int(message.value()) for message in consumer.consume(500, 1.0) if message.error() is None]
        consumer.close()
        assert sorted(seen) == list(range(RECORDS))


def test_a_new_certificate_is_taken_up_without_a_restart(tmp_path: Path) -> None:
    with SecureCluster(tmp_path) as cluster:
        host, _, port = cluster.servers().rpartition(":")
        before = ssl.get_server_certificate((host, int(port)))
        now = datetime.datetime.now(datetime.UTC)
        renewed = issue(cluster.authority, "node-1", now, ["localhost", "127.0.0.1"])
        (tmp_path / "node-1.pem").write_text(renewed.pem)
        deadline = time.monotonic() + 60
        while ssl.get_server_certificate((host, int(port))) == before and time.monotonic() < deadline:
            time.sleep(0.5)
        assert ssl.get_server_certificate((host, int(port))).strip() == renewed.certificate.strip()
        assert AdminClient(cluster.librdkafka()).list_topics(timeout=20).brokers
        # One that cannot be used changes nothing.
        (tmp_path / "node-1.pem").write_text("nonsense")
        deadline = time.monotonic() + 60
        while "keeps its old certificate" not in cluster.process(1).log_path.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.5)
        assert ssl.get_server_certificate((host, int(port))).strip() == renewed.certificate.strip()


def test_controllers_that_all_restart_know_the_password_that_they_were_given_last(tmp_path: Path) -> None:
    """They sign in to each other by SCRAM before any of them can know what is committed."""
    with SecureCluster(tmp_path, nodes=3) as cluster:
        change = UserScramCredentialUpsertion(
            ADMIN, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), b"changed-secret"
        )
        admin = AdminClient(cluster.librdkafka())
        admin.alter_user_scram_credentials([change])[ADMIN].result(60)
        for node_id in (1, 2, 3):
            cluster.process(node_id).kill()
            path = cluster.process(node_id).properties_path
            assert path is not None
            path.write_text(path.read_text().replace(f'password="{PASSWORD}";', 'password="changed-secret";'))
        for node_id in (1, 2, 3):
            cluster.process(node_id).launch()
        for node_id in (1, 2, 3):
            cluster.process(node_id).wait_until_ready(START_TIMEOUT_S)
        changed = cluster.librdkafka(password="changed-secret", mechanism="SCRAM-SHA-512")
        assert len(AdminClient(changed).list_topics(timeout=60).brokers) == 3
