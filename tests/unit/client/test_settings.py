"""Where and how to connect: bootstrap lists, and the properties of both Kafka clients."""

from __future__ import annotations

import pytest

from penstock.client.address import Address, parse_addresses
from penstock.client.settings import Credentials, librdkafka_properties, read_settings


def test_bootstrap_lists_are_read_as_clients_read_them() -> None:
    assert parse_addresses("a:1, [::1]:2 ,PLAINTEXT://c:3,d,[::2],a:1,") == (
        Address("a", 1),
        Address("::1", 2),
        Address("c", 3),
        Address("d", 9092),
        Address("::2", 9092),
    )
    assert [str(address) for address in parse_addresses("[::1]:2,c:3")] == ["[::1]:2", "c:3"]


@pytest.mark.parametrize("text", ["", ",", "a:x", "a:0", "a:70000", ":9092", "a:٩"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        parse_addresses(text)


def test_the_java_clients_properties_become_librdkafkas() -> None:
    settings = read_settings(
        {
            "bootstrap.servers": "h:1",
            "security.protocol": "sasl_ssl",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": 'org.apache.kafka.X required username="ann" password="a \\"b\\";c";',
            "ssl.truststore.location": "ca.pem",
            "ssl.truststore.type": "PEM",
        }
    )
    assert settings.tls
    assert settings.credentials == Credentials("PLAIN", "ann", 'a "b";c')
    properties = librdkafka_properties(settings)
    assert properties["sasl.password"] == 'a "b";c'
    assert properties["ssl.ca.location"] == "ca.pem"
    assert "sasl.jaas.config" not in properties


def test_passwords_are_not_shown() -> None:
    properties = {"sasl.mechanisms": "SCRAM-SHA-512", "sasl.username": "ann", "sasl.password": "hidden"}
    settings = read_settings({"bootstrap.servers": "h:1", "security.protocol": "SASL_PLAINTEXT", **properties})
    assert settings.credentials is not None
    assert settings.credentials.password == "hidden"
    assert "hidden" not in repr(settings)
    assert not settings.tls


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"bootstrap.servers": ""}, "bootstrap.servers is empty"),
        ({"security.protocol": "TLS"}, "use one of PLAINTEXT, SSL"),
        ({"security.protocol": "sasl_ssl"}, "sasl.mechanism is not set"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanisms": "GSSAPI"}, "sasl.mechanism is GSSAPI: use one of PLAIN"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "set sasl.username"),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": 'X required a="b"'},
            "sasl.jaas.config cannot be read: one login is expected, ended by a semicolon",
        ),
        ({"request.timeout.ms": "soon"}, "request.timeout.ms is 'soon': write a number of milliseconds"),
        ({"socket.connection.setup.timeout.ms": "0"}, "setup.timeout.ms is '0'"),
    ],
)
def test_wrong_settings_are_rejected_with_advice(wrong: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_settings({"bootstrap.servers": "h:1", **wrong})


def test_times_and_names_are_kafkas() -> None:
    plain = read_settings({"bootstrap.servers": "h:1"})
    assert (plain.client_id, plain.connect_timeout_s, plain.request_timeout_s) == ("penstock", 10, 30)
    more = {"client.id": "me", "socket.connection.setup.timeout.ms": "500", "request.timeout.ms": "2000"}
    given = read_settings({"bootstrap.servers": "h:1", **more})
    assert (given.client_id, given.connect_timeout_s, given.request_timeout_s) == ("me", 0.5, 2)
