"""The pure parts of `penstock security`: rates, entries of access lists, certificates' names, clients' files."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.cli.failures import CommandFailure
from penstock.cli.main import penstock
from penstock.cli.options import read_client_file
from penstock.cli.security.acl_entries import (
    Grant,
    Resources,
    consumer_entries,
    described,
    entries_for,
    filters_for,
    parse_operations,
    producer_entries,
    sentence,
)
from penstock.cli.security.cert_files import create_authority, issue_certificate, state_of, write_file
from penstock.cli.security.rates import BY_KEY, parse_rate, show_rate
from penstock.model.access import Operation, PatternType, Permission, ResourceType
from penstock.runtime.security.certificates import issue, make_authority, read_certificates

NOW = datetime.datetime(2026, 5, 1, tzinfo=datetime.UTC)
ALICE = Grant(["User:alice"])


@pytest.mark.parametrize(
    ("key", "text", "value", "shown"),
    [
        ("producer_byte_rate", "20MB/s", 20e6, "20MB/s"),
        ("producer_byte_rate", "1.5 KiB", 1536.0, "1.536KB/s"),
        ("consumer_byte_rate", "7", 7.0, "7B/s"),
        ("request_percentage", "50%", 50.0, "50%"),
        ("request_percentage", "12.5", 12.5, "12.5%"),
        ("controller_mutation_rate", "10/s", 10.0, "10/s"),
        ("connection_creation_rate", "5", 5.0, "5/s"),
    ],
)
def test_rates_are_read_and_shown(key: str, text: str, value: float, shown: str) -> None:
    assert parse_rate(BY_KEY[key], text) == value
    assert show_rate(key, value) == shown


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("producer_byte_rate", "20 furlongs"),
        ("producer_byte_rate", "-1"),
        ("producer_byte_rate", "50%"),
        ("request_percentage", "1MB/s"),
        ("controller_mutation_rate", "many"),
    ],
)
def test_what_is_no_rate_is_answered_with_how_to_write_one(key: str, text: str) -> None:
    with pytest.raises(CommandFailure) as failure:
        parse_rate(BY_KEY[key], text)
    assert "write it as" in failure.value.why


def test_operations_are_read_as_people_write_them() -> None:
    assert parse_operations(["read,WRITE", "DescribeConfigs", "read"]) == [
        Operation.READ,
        Operation.WRITE,
        Operation.DESCRIBE_CONFIGS,
    ]
    for text in ("ANY", "UNKNOWN", "destroy"):
        with pytest.raises(CommandFailure):
            parse_operations([text])


def test_an_operation_that_means_nothing_there_is_refused() -> None:
    with pytest.raises(CommandFailure, match="WRITE means nothing on group"):
        entries_for(ALICE, Resources(groups=["g"]), [Operation.WRITE])
    assert entries_for(ALICE, Resources(groups=["g"]), [Operation.ALL])


def test_a_prefix_is_not_the_cluster_and_not_a_star() -> None:
    resources = Resources(topics=["orders.", "*"], cluster=True, prefixed=True)
    found = {
        (ResourceType(one.resource_type), one.resource_name): one.resource_pattern_type
        for one in entries_for(ALICE, resources, [Operation.DESCRIBE])
    }
    assert found == {
        (ResourceType.TOPIC, "orders."): PatternType.PREFIXED,
        (ResourceType.TOPIC, "*"): PatternType.LITERAL,
        (ResourceType.CLUSTER, "kafka-cluster"): PatternType.LITERAL,
    }


def test_producers_and_consumers_need_what_they_use() -> None:
    with pytest.raises(CommandFailure):
        producer_entries(ALICE, Resources(), idempotent=False)
    with pytest.raises(CommandFailure):
        consumer_entries(ALICE, Resources(topics=["t"]))
    idempotent = producer_entries(ALICE, Resources(topics=["t"]), idempotent=True)
    assert described(idempotent[-1])["operation"] == "IDEMPOTENT_WRITE"
    assert sentence(idempotent[0]) == "User:alice may WRITE topic t"
    denied = Grant(["User:bob"], ["192.0.2.1"], Permission.DENY)
    entry = entries_for(denied, Resources(topics=["t."], prefixed=True), [Operation.ALL])[0]
    assert sentence(entry) == "User:bob must not ALL topic t.… from 192.0.2.1"


def test_a_filter_leaves_open_what_is_not_said() -> None:
    (everything,) = filters_for(Resources(), None, [], [], [], Permission.ANY)
    assert everything == (ResourceType.ANY, None, PatternType.ANY, None, None, Operation.ANY, Permission.ANY)
    (one,) = filters_for(Resources(topics=["t"]), None, ["User:a"], [], [Operation.READ], Permission.ALLOW)
    assert one == (ResourceType.TOPIC, "t", PatternType.LITERAL, "User:a", None, Operation.READ, Permission.ALLOW)


@pytest.mark.parametrize(
    "words",
    [
        ["acl", "add", "--operation", "READ", "--topic", "t"],
        ["acl", "add", "--principal", "User:a", "--topic", "t"],
        ["acl", "add", "--principal", "User:a", "--producer", "--deny", "--topic", "t"],
        ["acl", "add", "--principal", "User:a", "--operation", "READ"],
        ["acl", "add", "--principal", "User:a", "--operation", "READ", "--topic", "t", "--allow", "--deny"],
        ["acl", "delete", "--yes"],
        ["acl", "delete", "--all", "--topic", "t", "--yes"],
        ["quota", "set", "--produce", "1MB/s"],
        ["quota", "set", "--user", "a"],
        ["quota", "set", "--user", "a", "--ip", "192.0.2.1", "--connections", "1"],
        ["quota", "set", "--ip", "192.0.2.1", "--produce", "1"],
        ["quota", "set", "--user", "a", "--connections", "1"],
        ["user", "add", "a", "--password", "p", "--password-stdin"],
    ],
)
def test_what_contradicts_itself_is_a_usage_error(words: list[str]) -> None:
    assert CliRunner().invoke(penstock, ["security", *words]).exit_code == 2


def test_a_certificate_covers_its_names_and_no_others() -> None:
    authority = make_authority("test", NOW)
    hosts = ["a.example", "*.b.example", "192.0.2.1", "2001:db8::1"]
    (facts,) = read_certificates(issue(authority, "node", NOW, hosts).certificate.encode())
    for host in ("a.example", "A.EXAMPLE", "x.b.example", "192.0.2.1", "[2001:db8::1]", "2001:db8:0::1"):
        assert facts.covers(host), host
    for host in ("b.example", "x.y.b.example", "x.a.example", "192.0.2.2", "node"):
        assert not facts.covers(host), host


@pytest.mark.parametrize(
    ("days", "said"),
    [(-1, "not valid before"), (1, "good for 99 days"), (80, "expires in 20 days"), (100, "expired")],
)
def test_how_a_certificate_stands(days: int, said: str) -> None:
    authority = make_authority("test", NOW)
    (facts,) = read_certificates(issue(authority, "node", NOW, ["a"], days=100).certificate.encode())
    assert state_of(facts, NOW + datetime.timedelta(days=days)).startswith(said)


def test_files_of_certificates_are_not_replaced_unless_asked(tmp_path: Path) -> None:
    create_authority(tmp_path, "test", NOW)
    with pytest.raises(CommandFailure):
        create_authority(tmp_path, "test", NOW)
    path = issue_certificate(tmp_path, "n1", ["a.example"], 10, NOW)
    before = path.read_text()
    with pytest.raises(CommandFailure):
        issue_certificate(tmp_path, "n1", ["a.example"], 10, NOW)
    assert path.read_text() == before
    issue_certificate(tmp_path, "n1", ["a.example"], 10, NOW, force=True)
    assert path.read_text() != before
    for name in ("ca", "../ca", ".hidden", ""):
        with pytest.raises(CommandFailure):
            issue_certificate(tmp_path, name, [], 10, NOW, force=True)
    with pytest.raises(CommandFailure, match="there is no authority"):
        issue_certificate(tmp_path / "elsewhere", "n1", [], 10, NOW)


def test_a_secret_is_never_readable_by_others(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("old")
    path.chmod(0o644)
    write_file(path, "new")
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["secret"]


def test_a_clients_file_has_librdkafkas_words_or_javas(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SASL_SSL\nsasl.username=alice\n")
    assert read_client_file(str(file)) == {"security.protocol": "SASL_SSL", "sasl.username": "alice"}
    file.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\nssl.truststore.type=PEM\n"
        "ssl.truststore.location=ca.pem\nssl.keystore.type=PEM\nssl.keystore.location=me.pem\n"
        'sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="a" password="p";\n'
    )
    assert read_client_file(str(file)) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": "a",
        "sasl.password": "p",
        "ssl.ca.location": "ca.pem",
        "ssl.key.location": "me.pem",
        "ssl.certificate.location": "me.pem",
    }
