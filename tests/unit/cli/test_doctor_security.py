"""What `penstock doctor` finds in matters of security, in a node's settings and at a listener."""

from __future__ import annotations

import datetime
import socket
import threading
from pathlib import Path

import pytest

from penstock.cli.doctor.command import NOTE, OK, WRONG, Finding
from penstock.cli.doctor.security import check_listeners, check_plain_text, check_sign_in, peer_certificate
from penstock.cli.options import Connection
from penstock.config.listeners import Listener, unprotected
from penstock.config.load import load_node_settings
from penstock.runtime.security.certificates import issue, make_authority
from support.certificates import Authority

NOW = datetime.datetime(2026, 5, 1, tzinfo=datetime.UTC)
JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="node" password="p";'


def findings(directory: Path, hosts: list[str], now: datetime.datetime = NOW, **other: str) -> list[Finding]:
    """What is found about a node whose only listener for clients uses TLS and SCRAM at b1.example."""
    authority = make_authority("test", NOW)
    (directory / "ca.pem").write_text(authority.certificate)
    (directory / "node.pem").write_text(issue(authority, "node", NOW, hosts, days=100).pem)
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": "SASL_SSL://:9092,CONTROLLER://127.0.0.1:9093",
        "advertised.listeners": "SASL_SSL://b1.example:9092",
        "listener.security.protocol.map": "SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "1@127.0.0.1:9093",
        "inter.broker.listener.name": "SASL_SSL",
        "ssl.keystore.location": str(directory / "node.pem"),
        "ssl.truststore.location": str(directory / "ca.pem"),
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": JAAS,
        "log.dirs": str(directory / "data"),
    }
    properties |= {name.replace("_", "."): value for name, value in other.items()}
    file = directory / "server.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    return check_listeners(load_node_settings(file)[0], now)


def test_a_sound_node_has_nothing_to_mend(tmp_path: Path) -> None:
    assert {finding.level for finding in findings(tmp_path, ["b1.example"])} == {OK}


@pytest.mark.parametrize(("days", "level", "said"), [(90, NOTE, "expires in 10 days"), (101, WRONG, "expired 1 day")])
def test_a_certificate_near_or_past_its_end_is_found(tmp_path: Path, days: int, level: str, said: str) -> None:
    found = findings(tmp_path, ["b1.example"], NOW + datetime.timedelta(days=days))
    assert [(finding.level, said in finding.what) for finding in found if finding.level != OK] == [(level, True)]


def test_a_name_that_is_not_in_the_certificate_is_found(tmp_path: Path) -> None:
    (found,) = [finding for finding in findings(tmp_path, ["b2.example"]) if finding.level == WRONG]
    assert "is not for b1.example" in found.what
    assert "b2.example" in found.why
    assert "--host b1.example" in found.advice


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("sasl_mechanism_inter_broker_protocol", "PLAIN", "sasl.mechanism.inter.broker.protocol=PLAIN does not fit"),
        ("sasl_enabled_mechanisms", "GSSAPI", "no client could sign in"),
        ("ssl_keystore_location", "/nowhere/node.pem", "cannot speak TLS"),
    ],
)
def test_what_does_not_fit_is_found(tmp_path: Path, name: str, value: str, said: str) -> None:
    wrong = [finding for finding in findings(tmp_path, ["b1.example"], **{name: value}) if finding.level == WRONG]
    assert any(said in finding.what for finding in wrong), wrong


def test_a_listener_without_tls_is_found_where_others_reach_it(tmp_path: Path) -> None:
    found = findings(
        tmp_path,
        ["b1.example"],
        listeners="SASL_SSL://:9092,OPEN://0.0.0.0:9094,CONTROLLER://127.0.0.1:9093",
        listener_security_protocol_map="SASL_SSL:SASL_SSL,OPEN:PLAINTEXT,CONTROLLER:PLAINTEXT",
        advertised_listeners="SASL_SSL://b1.example:9092,OPEN://b1.example:9094",
    )
    (note,) = [finding for finding in found if finding.level == NOTE]
    assert "OPEN://0.0.0.0:9094 is open to the network" in note.what
    assert "may do everything" in note.why


@pytest.mark.parametrize(
    ("host", "protocol", "lists", "said"),
    [
        ("127.0.0.1", "PLAINTEXT", False, None),
        ("localhost", "SASL_PLAINTEXT", False, None),
        ("", "SASL_SSL", False, None),
        ("", "PLAINTEXT", False, "may do everything"),
        ("10.0.0.1", "PLAINTEXT", True, "can read"),
        ("::", "SASL_PLAINTEXT", True, "passwords"),
    ],
)
def test_which_listeners_are_unprotected(host: str, protocol: str, lists: bool, said: str | None) -> None:
    found = unprotected([Listener("ONE", host, 9092, protocol)], lists)
    assert [said in why for _, why in found if said] == ([] if said is None else [True])


def test_a_broker_in_plain_text_on_the_network_is_found() -> None:
    plain = Connection("b1.example:9092", {})
    assert "without TLS" in check_plain_text(plain, 1, "b1.example", 9092)[0].what
    assert check_plain_text(plain, 1, "127.0.0.1", 9092) == []
    assert check_plain_text(Connection("b1.example:9092", {"security.protocol": "ssl"}), 1, "b1.example", 9092) == []


def test_a_client_without_tls_learns_that_the_port_speaks_tls(tmp_path: Path) -> None:
    context = Authority(tmp_path).server_context()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def shake_hands(times: int) -> None:
            for _ in range(times):
                accepted, _ = server.accept()
                with accepted, context.wrap_socket(accepted, server_side=True) as wrapped:
                    wrapped.recv(1)

        thread = threading.Thread(target=shake_hands, args=(2,), daemon=True)
        thread.start()
        found = peer_certificate("127.0.0.1", port)
        assert found is not None
        assert found.covers("127.0.0.1")
        (said,) = check_sign_in(Connection(f"127.0.0.1:{port}", {}), [("127.0.0.1", port)])
        thread.join(10)
    assert said.level == WRONG
    assert "speaks TLS" in said.what


def test_there_is_no_certificate_where_no_tls_is_spoken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def refuse() -> None:
            accepted, _ = server.accept()
            accepted.close()

        thread = threading.Thread(target=refuse, daemon=True)
        thread.start()
        assert peer_certificate("127.0.0.1", port) is None
        thread.join(10)
