"""A blocking connection over real sockets: versions, order, TLS, sign-in, and everything that can go wrong."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Any

import pytest

from penstock.client.connection import Connection
from penstock.client.failures import AuthenticationFailed, NoAnswer, NotServed
from penstock.client.settings import read_settings
from penstock.wire.apis import APIS, ApiKey
from penstock.wire.messages.api_versions import ApiVersionsResponse
from penstock.wire.messages.fetch import FetchRequest, FetchResponse
from penstock.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
)
from penstock.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from penstock.wire.messages.vote import VoteRequest
from support.certificates import Authority
from support.scripted_broker import ScriptedBroker

ANSWER = MetadataResponse(brokers=(MetadataResponseBroker(7, "h", 1),))


def connect(broker: ScriptedBroker, **properties: str) -> Connection:
    given = {name.replace("_", "."): value for name, value in properties.items()}
    settings = read_settings({"bootstrap.servers": broker.address, "client.id": "me", **given})
    return Connection(settings.bootstrap[0], settings)


def sign_in(protocol: str, mechanism: str, password: str = "secret") -> dict[str, str]:
    return {
        "security_protocol": protocol,
        "sasl_mechanism": mechanism,
        "sasl_username": "ann",
        "sasl_password": password,
    }


def ask(connection: Connection) -> int:
    with connection:
        response: MetadataResponse = connection.call(MetadataRequest(topics=()))
    return response.brokers[0].node_id


def test_requests_go_out_in_the_newest_version_that_both_know() -> None:
    with ScriptedBroker() as broker:
        broker.answers[ApiKey.METADATA] = lambda _: ANSWER
        broker.answers[ApiKey.FETCH] = lambda _: FetchResponse()
        with connect(broker) as connection:
            assert connection.call(MetadataRequest(topics=())) == ANSWER
            connection.call(FetchRequest())
        newest = APIS[ApiKey.METADATA].last_stable_version
        assert broker.versions == [(ApiKey.API_VERSIONS, 3), (ApiKey.METADATA, newest), (ApiKey.FETCH, 12)]
        assert broker.client_ids == {"me"}


def test_several_requests_may_be_under_way() -> None:
    with ScriptedBroker() as broker:
        broker.answers[ApiKey.METADATA] = lambda request: MetadataResponse(cluster_id=request.topics[0].name)
        with connect(broker) as connection:
            for name in "abc":
                connection.send(MetadataRequest([MetadataRequestTopic(name=name)]))
            assert [connection.receive().cluster_id for _ in "abc"] == ["a", "b", "c"]


def test_an_unsupported_request_fails_and_the_connection_stays_usable() -> None:
    with ScriptedBroker() as broker:
        broker.answers[ApiKey.METADATA] = lambda _: ANSWER
        with connect(broker) as connection:
            with pytest.raises(NotServed, match=f"{broker.address} supports no version of Vote"):
                connection.call(VoteRequest())
            assert connection.call(MetadataRequest(topics=())) == ANSWER
        with pytest.raises(NoAnswer, match="closed"):
            connection.call(MetadataRequest(topics=()))


def test_a_broker_that_hangs_up_or_is_not_there_is_named() -> None:
    with ScriptedBroker() as broker:
        broker.answers[ApiKey.METADATA] = lambda _: None
        with connect(broker) as connection, pytest.raises(NoAnswer, match=f"{broker.address}: it closed"):
            connection.call(MetadataRequest(topics=()))
    with pytest.raises(NoAnswer, match="nothing listens there"):
        connect(broker)


def test_a_broker_that_does_not_report_its_versions_is_not_used() -> None:
    with ScriptedBroker() as broker:
        broker.answers[ApiKey.API_VERSIONS] = lambda _: ApiVersionsResponse(error_code=58)
        with pytest.raises(NoAnswer, match="SASL_AUTHENTICATION_FAILED"):
            connect(broker)


def speak(data: bytes) -> socket.socket:
    """A listener that sends this, and nothing more."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        accepted, _ = server.accept()
        with accepted:
            accepted.sendall(data)
            with contextlib.suppress(OSError):
                while accepted.recv(65536):
                    pass

    threading.Thread(target=serve, daemon=True).start()
    return server


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "is that a Kafka listener"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "announced an answer of 352518912 bytes"),
        (b"\xff\xff\xff\xff", "announced an answer of -1 bytes"),
        (b"\x00\x00\x00\x06\x00\x00\x00\x09\x00\x00", "answer 9 came where 0 was expected"),
        (b"", "did not answer ApiVersions in time"),
    ],
)
def test_peers_that_do_not_speak_the_protocol_are_distinguished(data: bytes, said: str) -> None:
    server = speak(data)
    settings = read_settings({"bootstrap.servers": f"127.0.0.1:{server.getsockname()[1]}"})
    with server, pytest.raises(NoAnswer, match=said):
        Connection(settings.bootstrap[0], settings, timeout_s=0.2)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_it_signs_in(mechanism: str) -> None:
    with ScriptedBroker(mechanism=mechanism) as broker:
        broker.answers[ApiKey.METADATA] = lambda _: ANSWER
        assert ask(connect(broker, **sign_in("SASL_PLAINTEXT", mechanism))) == 7
        assert any(isinstance(request, SaslAuthenticateRequest) for request in broker.asked)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_wrong_password_is_reported_in_the_brokers_words(mechanism: str) -> None:
    with (
        ScriptedBroker(mechanism=mechanism) as broker,
        pytest.raises(AuthenticationFailed, match=f"{broker.address} rejected ann: wrong name or password"),
    ):
        connect(broker, **sign_in("SASL_PLAINTEXT", mechanism, "guess"))


def test_a_mechanism_that_is_not_taken_names_those_that_are() -> None:
    with (
        ScriptedBroker(mechanism="SCRAM-SHA-512") as broker,
        pytest.raises(AuthenticationFailed, match=r"does not support sasl.mechanism PLAIN, only: SCRAM-SHA-512"),
    ):
        connect(broker, **sign_in("SASL_PLAINTEXT", "PLAIN"))


def test_a_broker_without_sign_in_is_reported() -> None:
    with ScriptedBroker() as broker, pytest.raises(AuthenticationFailed, match="does not use SASL"):
        connect(broker, **sign_in("SASL_PLAINTEXT", "PLAIN"))


@pytest.mark.parametrize(("impostor", "iterations", "said"), [(True, 4096, "could not prove"), (False, 17, "17 iter")])
def test_a_broker_that_cannot_prove_its_identity_gets_nothing_more(impostor: bool, iterations: int, said: str) -> None:
    with ScriptedBroker(mechanism="SCRAM-SHA-256") as broker:
        broker.is_impostor, broker.iterations = impostor, iterations
        with pytest.raises(AuthenticationFailed, match=said):
            connect(broker, **sign_in("SASL_PLAINTEXT", "SCRAM-SHA-256"))


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


def trusting(authority: Authority, **more: str) -> dict[str, str]:
    return {"security_protocol": "SSL", "ssl_ca_location": str(authority.file), **more}


def test_tls_and_a_sign_in_over_it(authority: Authority) -> None:
    with ScriptedBroker(authority.server_context(), "SCRAM-SHA-512") as broker:
        broker.answers[ApiKey.METADATA] = lambda _: ANSWER
        assert ask(connect(broker, **{**trusting(authority), **sign_in("SASL_SSL", "SCRAM-SHA-512")})) == 7


def test_a_certificate_of_an_unknown_authority_is_refused(authority: Authority) -> None:
    with ScriptedBroker(authority.server_context()) as broker:
        with pytest.raises(AuthenticationFailed, match=r"not trusted .*set ssl.ca.location"):
            connect(broker, security_protocol="SSL")
        broker.answers[ApiKey.METADATA] = lambda _: ANSWER
        pem = authority.file.read_text()
        assert ask(connect(broker, security_protocol="SSL", ssl_ca_pem=pem)) == 7
        unchecked: dict[str, Any] = {"enable_ssl_certificate_verification": "false"}
        assert ask(connect(broker, security_protocol="SSL", **unchecked)) == 7


def test_a_certificate_for_another_name_is_refused_unless_names_do_not_count(authority: Authority) -> None:
    with ScriptedBroker(authority.server_context("10.1.2.3")) as broker:
        with pytest.raises(AuthenticationFailed, match="for another name"):
            connect(broker, **trusting(authority))
        broker.answers[ApiKey.METADATA] = lambda _: ANSWER
        assert ask(connect(broker, **trusting(authority, ssl_endpoint_identification_algorithm="none"))) == 7


@pytest.mark.parametrize("inline", [False, True])
def test_a_broker_that_wants_certificates_gets_one(authority: Authority, inline: bool) -> None:
    certificate, key = authority.issue("client", password="open")
    shown = {"ssl_certificate_location": str(certificate), "ssl_key_location": str(key)}
    if inline:
        shown = {"ssl_certificate_pem": certificate.read_text(), "ssl_key_pem": key.read_text()}
    with ScriptedBroker(authority.server_context(wants_certificates=True)) as broker:
        broker.answers[ApiKey.METADATA] = lambda _: ANSWER
        assert ask(connect(broker, **trusting(authority, **shown, ssl_key_password="open"))) == 7
        with pytest.raises(NoAnswer, match=r"TLS failed|closed the connection|reset"):
            ask(connect(broker, **trusting(authority)))


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"ssl_ca_location": "/nowhere/ca.pem"}, "ssl.ca.location names /nowhere/ca.pem, which does not exist"),
        ({"ssl_truststore_location": "trust.jks"}, "is a key store, trust.jks: give a PEM file"),
        ({"ssl_ca_pem": "nonsense"}, "cannot be used"),
    ],
)
def test_certificates_that_cannot_be_used_are_named(properties: dict[str, str], said: str) -> None:
    with ScriptedBroker() as broker, pytest.raises(AuthenticationFailed, match=said):
        connect(broker, security_protocol="SSL", **properties)


def test_a_locked_key_without_its_password_fails_instead_of_asking(authority: Authority) -> None:
    certificate, key = authority.issue("locked", password="open")
    shown = {"ssl_certificate_location": str(certificate), "ssl_key_location": str(key)}
    with ScriptedBroker() as broker, pytest.raises(AuthenticationFailed, match="cannot be used"):
        connect(broker, **trusting(authority, **shown))


def test_tls_to_a_plain_listener_fails_with_advice(authority: Authority) -> None:
    # What is seen of a listener that hangs up depends on how fast it does.
    with ScriptedBroker() as broker, pytest.raises(NoAnswer, match=r"check security.protocol|closed|reset"):
        connect(broker, **trusting(authority))
