"""`penstock security` against a real secured node: what it makes, lists and removes is what the node goes by."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from penstock.local.layout import node_layouts, node_properties, write_properties
from penstock.local.process import BrokerProcess
from support.secure_cluster import ADMIN, PASSWORD, SecureCluster, java_properties, sign_in_refusal

Run = Callable[..., subprocess.CompletedProcess[str]]
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:{ADMIN}",
    "delegation.token.secret.key": "the cluster's own",
    "connection.failed.authentication.delay.ms": "10",
}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    """One node with access lists."""
    with SecureCluster(tmp_path_factory.mktemp("guarded"), settings=AUTHORIZER) as cluster:
        yield cluster


def runner(cluster: SecureCluster, directory: Path) -> Run:
    """Runs `penstock security …` as the administrator, who is named in a file."""
    file = directory / "admin.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in cluster.librdkafka().items()))

    def run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "penstock", "security", *arguments, "--command-config", str(file)],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


@pytest.fixture
def on_secured(secured: SecureCluster, tmp_path: Path) -> Run:
    return runner(secured, tmp_path)


@pytest.fixture
def on_guarded(guarded: SecureCluster, tmp_path: Path) -> Run:
    return runner(guarded, tmp_path)


def done(result: subprocess.CompletedProcess[str]) -> str:
    assert result.returncode == 0, result.stderr
    return result.stdout


def read(result: subprocess.CompletedProcess[str]) -> Any:
    return json.loads(done(result))


def name() -> str:
    return f"u-{uuid.uuid4().hex[:8]}"


def signs_in(settings: dict[str, str]) -> bool:
    return sign_in_refusal(settings) is None


def test_a_user_is_added_changed_and_deleted(secured: SecureCluster, on_secured: Run) -> None:
    user = name()
    added = on_secured("user", "add", user, "--password-stdin", stdin="first one\n")
    assert "first one" not in done(added) + added.stderr
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        assert signs_in(secured.librdkafka(user, "first one", mechanism))
    rows = [row for row in read(on_secured("user", "list", "-o", "json")) if row["user"] == user]
    assert [row["mechanism"] for row in rows] == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    done(on_secured("user", "add", user, "--mechanism", "SCRAM-SHA-512", "--password", "second"))
    assert signs_in(secured.librdkafka(user, "second", "SCRAM-SHA-512"))
    assert signs_in(secured.librdkafka(user, "first one", "SCRAM-SHA-256"))
    assert not signs_in(secured.librdkafka(user, "first one", "SCRAM-SHA-512"))
    asked = on_secured("user", "delete", user)
    assert asked.returncode == 1
    assert "add --yes" in asked.stderr
    done(on_secured("user", "delete", user, "--yes"))
    assert not signs_in(secured.librdkafka(user, "second", "SCRAM-SHA-512"))
    gone = on_secured("user", "delete", user, "--yes")
    assert gone.returncode == 1
    assert f"there is no user {user}" in gone.stderr


def test_a_password_is_never_empty_and_never_guessed(on_secured: Run) -> None:
    assert "password is empty" in on_secured("user", "add", name(), "--password-stdin", stdin="\n").stderr
    assert "no terminal" in on_secured("user", "add", name()).stderr


def test_javas_properties_are_understood(secured: SecureCluster, run_penstock: Run, tmp_path: Path) -> None:
    file = tmp_path / "java.properties"
    jaas = f'org.apache.kafka.common.security.scram.ScramLoginModule required username="{ADMIN}" password="{PASSWORD}";'
    servers = f"bootstrap.servers={secured.servers()}"
    file.write_text(java_properties(secured.librdkafka(), jaas, [servers]))
    for command in (["security", "user", "list"], ["topic", "list"]):
        done(run_penstock(*command, "--command-config", str(file)))
    assert "cannot read" in run_penstock("topic", "list", "--command-config", str(tmp_path / "none")).stderr


def test_without_access_lists_the_advice_is_how_to_turn_them_on(tmp_path: Path) -> None:
    with SecureCluster(tmp_path) as cluster:
        refused = runner(cluster, tmp_path)("acl", "list")
    assert refused.returncode == 1
    assert "SECURITY_DISABLED" in refused.stderr
    assert "authorizer.class.name" in refused.stderr


def test_entries_of_access_lists_come_and_go(on_guarded: Run) -> None:
    user, topic = name(), name()
    principal = f"User:{user}"
    said = done(on_guarded("acl", "add", "--principal", principal, "--operation", "read,Write", "--topic", topic))
    assert said.splitlines() == [f"{principal} may READ topic {topic}", f"{principal} may WRITE topic {topic}"]
    denied = ["--deny", "--operation", "DELETE", "--topic", topic[:4], "--prefixed", "--host", "192.0.2.1"]
    assert "must not DELETE" in done(on_guarded("acl", "add", "--principal", principal, *denied))
    rows = read(on_guarded("acl", "list", "--principal", principal, "--topic", topic, "-o", "json"))
    assert {(row["operation"], row["pattern"], row["permission"], row["host"]) for row in rows} == {
        ("READ", "LITERAL", "ALLOW", "*"),
        ("WRITE", "LITERAL", "ALLOW", "*"),
        ("DELETE", "PREFIXED", "DENY", "192.0.2.1"),
    }
    assert "add --yes" in on_guarded("acl", "delete", "--principal", principal, "--topic", topic).stderr
    assert "deleted 2" in done(on_guarded("acl", "delete", "--principal", principal, "--topic", topic, "--yes"))
    rest = read(on_guarded("acl", "list", "--principal", principal, "-o", "json"))
    assert [row["operation"] for row in rest] == ["DELETE"]
    assert "deleted 1" in done(on_guarded("acl", "delete", "--principal", principal, "--yes"))
    assert "no entry fits" in done(on_guarded("acl", "delete", "--principal", principal, "--yes"))


def test_a_producer_and_a_consumer_get_what_kafkas_tool_gives_them(on_guarded: Run) -> None:
    user, topic, group = name(), name(), name()
    words = ["--principal", f"User:{user}", "--producer", "--consumer", "--topic", topic, "--group", group]
    done(on_guarded("acl", "add", *words, "--transactional-id", "t"))
    rows = read(on_guarded("acl", "list", "--principal", f"User:{user}", "-o", "json"))
    assert {(row["resource_type"], row["operation"]) for row in rows} == {
        ("TOPIC", "WRITE"),
        ("TOPIC", "CREATE"),
        ("TOPIC", "DESCRIBE"),
        ("TOPIC", "READ"),
        ("GROUP", "READ"),
        ("TRANSACTIONAL_ID", "WRITE"),
        ("TRANSACTIONAL_ID", "DESCRIBE"),
    }


def test_changing_access_lists_without_the_right_is_an_error(
    guarded: SecureCluster, on_guarded: Run, tmp_path: Path
) -> None:
    user = name()
    done(on_guarded("user", "add", user, "--password", "secret of the user"))
    (tmp_path / "other").mkdir()
    file = tmp_path / "other" / "user.properties"
    settings = guarded.librdkafka(user, "secret of the user")
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    wanted = ["acl", "add", "--principal", f"User:{user}", "--operation", "ALL", "--topic", "*"]
    command = [sys.executable, "-m", "penstock", "security", *wanted, "--command-config", str(file)]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode == 1
    assert "CLUSTER_AUTHORIZATION_FAILED" in refused.stderr
    assert "super user" in refused.stderr


def test_a_token_is_made_renewed_and_ended(on_secured: Run) -> None:
    made = read(on_secured("token", "create", "--renewer", "User:bob", "--days", "1", "-o", "json"))
    assert made["owner"] == f"User:{ADMIN}"
    listed = on_secured("token", "list", "-o", "json")
    row = next(row for row in read(listed) if row["token_id"] == made["token_id"])
    assert row["renewers"] == ["User:bob"]
    assert made["secret"] not in listed.stdout
    assert "good until" in done(on_secured("token", "renew", made["token_id"], "--days", "0.5"))
    assert "ended" in done(on_secured("token", "expire", made["secret"], "--yes"))
    assert made["token_id"] not in done(on_secured("token", "list"))
    assert "no such token" in on_secured("token", "renew", "?").stderr
    unknown = on_secured("token", "renew", "AAAA")
    assert "DELEGATION_TOKEN_NOT_FOUND" in unknown.stderr


def test_quotas_are_set_listed_and_deleted(on_secured: Run) -> None:
    user = name()
    done(on_secured("quota", "set", "--user", user, "--produce", "20MB/s", "--requests", "50%"))
    done(on_secured("quota", "set", "--user", user, "--client-id", "default", "--consume", "1.5MiB/s"))
    found = read(on_secured("quota", "list", "--user", user, "-o", "json"))
    assert [row["quotas"] for row in found] == [
        {"consumer_byte_rate": 1572864.0},
        {"producer_byte_rate": 20000000.0, "request_percentage": 50.0},
    ]
    assert {part["type"]: part["name"] for part in found[0]["entity"]} == {"user": user, "client-id": None}
    assert "20MB/s" in done(on_secured("quota", "list", "--user", user))
    assert "producer_byte_rate" in done(on_secured("quota", "delete", "--user", user, "--produce", "--yes"))
    assert "request_percentage" in done(on_secured("quota", "delete", "--user", user, "--yes"))
    assert "no such limit" in done(on_secured("quota", "delete", "--user", user, "--yes"))
    assert len(read(on_secured("quota", "list", "--user", user, "-o", "json"))) == 1
    done(on_secured("quota", "set", "--ip", "192.0.2.7", "--connections", "5/s"))
    done(on_secured("quota", "delete", "--ip", "192.0.2.7", "--yes"))
    assert "not an IP address" in on_secured("quota", "set", "--ip", "nowhere", "--connections", "5").stderr


def test_certificates_of_an_own_authority_serve_a_client(
    secured: SecureCluster, run_penstock: Run, tmp_path: Path
) -> None:
    directory = tmp_path / "ca"
    assert "ca.pem" in done(run_penstock("security", "cert", "authority", str(directory)))
    assert "is there already" in run_penstock("security", "cert", "authority", str(directory)).stderr
    issued = done(
        run_penstock("security", "cert", "issue", str(directory), "n1", "--host", "a.example", "--days", "10")
    )
    assert "a.example" in issued
    assert "is there already" in run_penstock("security", "cert", "issue", str(directory), "n1").stderr
    for file, mode in (("ca.key", 0o600), ("n1.pem", 0o600), ("ca.pem", 0o644)):
        assert stat.S_IMODE(os.stat(directory / file).st_mode) == mode
    shown = read(run_penstock("security", "cert", "show", str(directory / "n1.pem"), "-o", "json"))
    assert shown["has_key"]
    assert shown["certificates"][0]["hosts"] == ["a.example"]
    assert shown["certificates"][0]["state"].startswith("expires in 9 days")
    assert shown["certificates"][1]["authority"]
    # The authority of the node's own clients, as the command writes it.
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "ca.pem").write_text(secured.authority.certificate)
    (tmp_path / "own" / "ca.key").write_text(secured.authority.key)
    done(run_penstock("security", "cert", "issue", str(tmp_path / "own"), "duke"))
    settings = {
        "bootstrap.servers": secured.servers("SSL"),
        "security.protocol": "SSL",
        "ssl.ca.location": str(secured.ca_path),
        "ssl.certificate.location": str(tmp_path / "own" / "duke.pem"),
        "ssl.key.location": str(tmp_path / "own" / "duke.pem"),
    }
    producer = Producer(settings)
    producer.produce("from-duke", b"hello")
    assert producer.flush(20) == 0


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ("sasl.mechanisms=SCRAM-SHA-512", ""),
        ("sasl.password=wrong", "rejected admin"),
        ("security.protocol=plaintext", "speaks TLS"),
        ("ssl.ca.location=probe", "its certificate is not trusted"),
    ],
)
def test_the_doctor_reports_why_a_client_cannot_connect(
    secured: SecureCluster, run_penstock: Run, other: str, said: str
) -> None:
    # One of librdkafka's two names for it, which -X is to win over.
    settings = {**secured.librdkafka(), "sasl.mechanisms": "SCRAM-SHA-256"}
    del settings["sasl.mechanism"]
    words = [f"-X{name}={value}" for name, value in settings.items()]
    found = run_penstock("doctor", *words, "-X", other, "-o", "json")
    wrong = [each for each in json.loads(found.stdout)["findings"] if each["level"] == "wrong"]
    assert bool(wrong) == bool(said), wrong
    assert found.returncode == bool(said)
    assert said in "".join(each["what"] + each["why"] for each in wrong)


def test_a_node_that_is_open_to_the_network_warns(tmp_path: Path) -> None:
    (place,) = node_layouts(tmp_path, "0.0.0.0", [0], [0])
    write_properties(place, node_properties(place, [place]) | {"advertised.listeners": "PLAINTEXT://127.0.0.1:0"})
    process = BrokerProcess(place.properties, place.log)
    try:
        process.start(60)
    finally:
        process.kill()
    (said,) = [line for line in place.log.read_text().splitlines() if "open to the network" in line]
    assert "WARNING" in said
    assert "PLAINTEXT://0.0.0.0" in said
