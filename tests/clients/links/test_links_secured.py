"""A link signs in to its source by password and by certificate, over TLS, with certificates that are sent as text."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from link_pair import PATIENCE_S, describe, partitions

from penstock.cli.main import penstock
from penstock.runtime.security.certificates import issue
from penstock.testing import Cluster
from support.processes import eventually
from support.secure_cluster import ADMIN, PASSWORD, SecureCluster

COUNT = 50


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    with SecureCluster(tmp_path_factory.mktemp("secure")) as running:
        yield running


@pytest.fixture
def destination() -> Iterator[Cluster]:
    with Cluster() as running:
        yield running


def password_settings(source: SecureCluster, password: str = PASSWORD) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": ADMIN,
        "sasl.password": password,
        "ssl.ca.location": str(source.ca_path),
    }


def certificate_settings(source: SecureCluster) -> dict[str, str]:
    made = issue(source.authority, ADMIN, datetime.datetime.now(datetime.UTC), [])
    certificate, key = source.directory / "link.pem", source.directory / "link.key"
    certificate.write_text(made.certificate)
    key.write_text(made.key)
    return {
        "security.protocol": "SSL",
        "ssl.ca.location": str(source.ca_path),
        "ssl.certificate.location": str(certificate),
        "ssl.key.location": str(key),
    }


def write(source: SecureCluster, topic: str) -> None:
    settings = {**password_settings(source), "bootstrap.servers": source.servers(), "log_level": "0"}
    admin = AdminClient(settings)
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    producer = Producer(settings)
    for number in range(COUNT):
        producer.produce(topic, str(number))
    assert producer.flush(30) == 0


def create(destination: Cluster, servers: str, topic: str, settings: dict[str, str], directory: Path) -> Result:
    file = directory / "source.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    words = ["link", "create", "eu", "--source", servers, "--topics", topic, "--config-file", str(file)]
    return CliRunner().invoke(penstock, ["-b", destination.bootstrap_servers, *words])


def is_mirrored(destination: Cluster, topic: str) -> bool:
    row = partitions(destination, topic).get(0)
    return row is not None and row.mirrored_offset == COUNT


def test_a_password_over_tls(source: SecureCluster, destination: Cluster, tmp_path: Path) -> None:
    write(source, "by-password")
    wrong = create(destination, source.servers(), "by-password", password_settings(source, "wrong-one"), tmp_path)
    assert (wrong.exit_code, "sign-in" in wrong.output, "wrong-one" in wrong.output) == (1, True, False)
    untrusted = password_settings(source)
    del untrusted["ssl.ca.location"]
    assert create(destination, source.servers(), "by-password", untrusted, tmp_path).exit_code == 1
    made = create(destination, source.servers(), "by-password", password_settings(source), tmp_path)
    assert made.exit_code == 0, made.output
    assert eventually(lambda: is_mirrored(destination, "by-password"), PATIENCE_S)
    (found,) = describe(destination)
    shown = {row.name: row.value for row in found.configs}
    assert (shown["sasl.password"], shown["sasl.username"]) == (None, ADMIN)
    assert "BEGIN CERTIFICATE" in (shown["ssl.ca.pem"] or "")


def test_a_certificate(source: SecureCluster, destination: Cluster, tmp_path: Path) -> None:
    write(source, "by-certificate")
    made = create(destination, source.servers("SSL"), "by-certificate", certificate_settings(source), tmp_path)
    assert made.exit_code == 0, made.output
    assert eventually(lambda: is_mirrored(destination, "by-certificate"), PATIENCE_S)
    (found,) = describe(destination)
    assert {row.name: row.value for row in found.configs}["ssl.key.pem"] is None
