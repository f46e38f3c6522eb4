"""Credentials, limits of failures and rates, and the sessions of the console; without brokers."""

from __future__ import annotations

import asyncio
import base64
import time
from typing import Any

import pytest
from starlette.responses import Response

from penstock.gateway.callers.callers import claimed_name
from penstock.gateway.callers.console_sessions import (
    PLAIN_COOKIE,
    SECURE_COOKIE,
    ConsoleSessions,
    check_token,
    cookie_of,
    set_cookie,
)
from penstock.gateway.callers.credentials import (
    BASIC,
    BEARER,
    CERTIFICATE,
    METHODS,
    Presented,
    not_signed_in,
    presented,
    token_claims,
)
from penstock.gateway.callers.failed_sign_ins import WINDOW_S, FailedSignIns
from penstock.gateway.callers.rates import CallerRates
from penstock.gateway.gateway import open_to_network
from penstock.gateway.registry.api.access import right_of
from penstock.gateway.registry.rights import Right, topic_of
from penstock.gateway.roles import ALL, CONSOLE, EGRESS, INGRESS, serving
from penstock.gateway.settings import GatewaySettings, SettingError
from penstock.gateway.web.application import Application
from penstock.gateway.web.limits import Limits
from penstock.gateway.web.operations import Call, Operation
from penstock.gateway.web.problem import Problem

ALICE = Presented(BASIC, "alice", "secret")


def basic(text: str) -> list[tuple[bytes, bytes]]:
    return [(b"authorization", b"Basic " + base64.b64encode(text.encode()))]


def token_of(body: str) -> str:
    return f"e30.{base64.urlsafe_b64encode(body.encode()).rstrip(b'=').decode()}.AAAA"


def test_credentials_are_read_as_they_were_sent() -> None:
    assert presented(basic("alice:se:cret"), None, METHODS) == Presented(BASIC, "alice", "se:cret")
    assert presented(basic("älice:päss"), None, METHODS) == Presented(BASIC, "älice", "päss")
    assert presented([(b"authorization", b"bearer a.b.c")], None, METHODS) == Presented(BEARER, "", "a.b.c")
    assert presented([], "User:bob", METHODS) == Presented(CERTIFICATE, "User:bob")
    assert presented([], None, METHODS) is None
    # A header takes precedence over the connection's certificate.
    assert presented(basic("alice:secret"), "User:bob", METHODS) == ALICE


@pytest.mark.parametrize(
    "header",
    [
        b"Basic",
        b"Basic !!!!",
        b"Basic YWxpY2U=",
        b"Basic OnNlY3JldA==",
        b"Bearer",
        b"Bearer a b",
        b"Digest x",
        b"",
        b"\xff",
    ],
)
def test_invalid_credentials_are_rejected(header: bytes) -> None:
    with pytest.raises(Problem) as refused:
        presented([(b"authorization", header)], "User:bob", METHODS)
    assert (refused.value.status, refused.value.code) == (401, 40101)


def test_two_authorization_headers_are_rejected() -> None:
    with pytest.raises(Problem) as refused:
        presented([*basic("alice:secret"), *basic("bob:secret")], None, METHODS)
    assert refused.value.status == 400


def test_authentication_method_that_is_off_is_rejected() -> None:
    with pytest.raises(Problem):
        presented(basic("alice:secret"), None, (BEARER,))
    assert presented([], "User:bob", (BASIC, BEARER)) is None


def test_digests_differ_whenever_credentials_do() -> None:
    kinds = [
        ALICE,
        Presented(BASIC, "alice", "Secret"),
        Presented(BASIC, "alic", "esecret"),
        Presented(BEARER, "alice", "secret"),
        Presented(CERTIFICATE, "alice"),
    ]
    assert len({kind.digest for kind in kinds}) == len(kinds)
    assert Presented(BASIC, "alice", "secret").digest == ALICE.digest
    assert "secret" not in repr(ALICE)


def test_challenge_names_the_offered_methods() -> None:
    both = not_signed_in("no", (BASIC, BEARER)).headers["WWW-Authenticate"]
    assert both.startswith('Basic realm="penstock"')
    assert "Bearer" in both
    # Browsers would show a password dialog of their own.
    assert "Basic" not in not_signed_in("no", (BASIC, BEARER), to_browser=True).headers["WWW-Authenticate"]


def test_claims_of_a_token() -> None:
    claims = token_claims(token_of('{"sub":"alice","iss":"x","exp":12.5}'))
    assert claims is not None
    assert (claims.subject, claims.issuer, claims.expires_s) == ("alice", "x", 12.5)
    for odd in ("", "a.b", "a.b.c", token_of("[]"), token_of('{"sub":""}'), token_of('{"sub":1}')):
        assert token_claims(odd) is None
    assert token_claims(token_of('{"sub":"a","exp":true}')) is None
    assert token_claims(token_of('{"sub":"a","exp":"soon"}')) is None


def test_failed_sign_ins_block_the_address_but_not_the_user() -> None:
    failures = FailedSignIns(per_user_max=3, per_address_max=5)
    for _ in range(3):
        failures.check("10.0.0.1", "alice", 0)
        failures.failed("10.0.0.1", "alice", 0)
    with pytest.raises(Problem) as refused:
        failures.check("10.0.0.1", "alice", 1)
    assert refused.value.status == 429
    assert refused.value.headers["Retry-After"] == "59"
    failures.check("10.0.0.2", "alice", 1)
    failures.check("10.0.0.1", "bob", 1)
    for _ in range(2):
        failures.failed("10.0.0.1", "bob", 1)
    with pytest.raises(Problem):
        failures.check("10.0.0.1", "carol", 2)
    # Signing in gives a user its tries back, and not the address: else one password would buy endless guesses.
    failures.succeeded("10.0.0.1", "alice")
    with pytest.raises(Problem):
        failures.check("10.0.0.1", "alice", 2)
    failures.check("10.0.0.1", "alice", WINDOW_S + 1)


def test_token_failures_are_counted_by_the_named_subject() -> None:
    assert claimed_name(ALICE) == "alice"
    assert claimed_name(Presented(BEARER, "", token_of('{"sub":"bob"}'))) == "bob"
    # An empty name would count for the whole address.
    assert claimed_name(Presented(BEARER, "", "nonsense"))


def test_rates_are_for_each_caller() -> None:
    rates = CallerRates(requests_per_s=2, bytes_per_s=100)
    for _ in range(2):
        rates.take("alice", 0)
    with pytest.raises(Problem) as refused:
        rates.take("alice", 0)
    assert (refused.value.status, refused.value.headers["Retry-After"]) == (429, "1")
    rates.take("bob", 0)
    rates.take("alice", 0.5)
    rates.spend("bob", 600, 0)
    with pytest.raises(Problem) as refused:
        rates.take("bob", 1)
    assert refused.value.headers["Retry-After"] == "4"
    rates.take("bob", 5.1)
    assert not CallerRates(0, 0).are_limited
    unlimited = CallerRates(0, 100)
    for _ in range(1000):
        unlimited.take("alice", 0)


def test_console_session_expires() -> None:
    sessions = ConsoleSessions(10, idle_s=60, lifetime_s=200)
    name, session = sessions.create(ALICE, "User:alice", 0)
    assert len(name) >= 43
    assert sessions.find(name, 59) is session
    assert sessions.find(name, 118) is session
    assert sessions.find(name, 179) is None
    other, _ = sessions.create(ALICE, "User:alice", 0)
    for now in range(0, 200, 50):
        assert sessions.find(other, now) is not None
    assert sessions.find(other, 201) is None
    assert len(sessions) == 0
    ended, _ = sessions.create(ALICE, "User:alice", 0)
    sessions.drop(ended)
    assert sessions.find(ended, 1) is None
    assert sessions.find("", 1) is None


def test_console_sessions_are_limited() -> None:
    sessions = ConsoleSessions(3, 60, 60)
    names = [sessions.create(ALICE, "User:alice", 0)[0] for _ in range(5)]
    assert len(set(names)) == 5
    assert [sessions.find(name, 1) is not None for name in names] == [False, False, True, True, True]


def test_changes_require_the_sessions_token() -> None:
    _, session = ConsoleSessions(3, 60, 60).create(ALICE, "User:alice", 0)
    check_token(session, "GET", {})
    check_token(session, "POST", {b"x-csrf-token": session.token.encode()})
    for sent in ({}, {b"x-csrf-token": b""}, {b"x-csrf-token": b"other"}):
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            with pytest.raises(Problem) as refused:
                check_token(session, method, sent)
            assert (refused.value.status, refused.value.code) == (403, 40303)


def test_cookies_are_http_only_and_host_only() -> None:
    secure = set_cookie("x", tls=True)
    assert secure.startswith(f"{SECURE_COOKIE}=x; Path=/")
    assert {"HttpOnly", "SameSite=Strict", "Secure"} <= set(secure.split("; "))
    assert "Domain" not in secure
    assert set_cookie(None, tls=False) == f"{PLAIN_COOKIE}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0"
    header = {b"cookie": f"a=b; {SECURE_COOKIE}=one; {PLAIN_COOKIE}=two".encode()}
    assert cookie_of(header, tls=True) == "one"
    # A man in the middle could have set the other one.
    assert cookie_of(header, tls=False) == "two"
    assert cookie_of({}, tls=True) is None
    assert cookie_of({b"cookie": b"\xff;;==;"}, tls=True) is None
    for other in (f"x{PLAIN_COOKIE}=one", f"a={PLAIN_COOKIE}=one", f"{PLAIN_COOKIE}=", f"{PLAIN_COOKIE}={'x' * 129}"):
        assert cookie_of({b"cookie": other.encode()}, tls=False) is None


@pytest.mark.parametrize("part", [b"a=1;", b"; ", b"\\1", b'\\"', b" ", PLAIN_COOKIE.encode()])
def test_long_cookies_are_searched_in_linear_time(part: bytes) -> None:
    header = b'a="' + part * (1_000_000 // len(part)) + f";{PLAIN_COOKIE}=one".encode()
    began = time.process_time()
    assert cookie_of({b"cookie": header}, tls=False) == "one"
    assert time.process_time() - began < 0.5


@pytest.mark.parametrize(
    ("subject", "topic"),
    [
        ("orders-value", "orders"),
        ("orders-key", "orders"),
        ("a-key-value", "a-key"),
        (":.ctx:orders-value", "orders"),
        ("com.example.Order", None),
        ("-value", None),
        (":.ctx:", None),
        ("orders-Value", None),
    ],
)
def test_the_topic_of_a_subject(subject: str, topic: str | None) -> None:
    assert topic_of(subject) == topic


async def nothing(_: object, call: Call) -> Response:
    del call
    return Response("served")


@pytest.mark.parametrize(
    ("method", "path", "right"),
    [
        ("GET", "/subjects/{subject}/versions", Right.READ),
        ("POST", "/subjects/{subject}", Right.READ),
        ("POST", "/subjects/{subject}/versions", Right.REGISTER),
        ("DELETE", "/subjects/{subject}/versions/{version}", Right.DELETE),
        ("POST", "/compatibility/subjects/{subject}/versions", Right.READ),
        ("PUT", "/config", Right.CONFIGURE),
        ("DELETE", "/mode/{subject}", Right.CONFIGURE),
        ("GET", "/config", Right.READ),
    ],
)
def test_rights_required_by_registry_operations(method: str, path: str, right: Right) -> None:
    assert right_of(Operation(method, path, nothing, "", "")) is right


def test_role_serves_its_operations_and_names_the_role_of_others() -> None:
    operations = [Operation("POST", "/write", nothing, "", "")]
    answers: list[Any] = []

    async def ask(roles: tuple[str, ...]) -> None:
        application = Application(serving(INGRESS, operations, roles), limits=Limits())
        scope = {"type": "http", "method": "POST", "path": "/write", "headers": [], "query_string": b""}

        async def send(message: Any) -> None:
            answers.append(message)

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        await application.serve(None, scope, receive, send)

    asyncio.run(ask(ALL))
    assert answers.pop()["body"] == b"served"
    asyncio.run(ask((EGRESS, CONSOLE)))
    assert b"--role ingress" in answers.pop()["body"]
    assert answers[-1]["status"] == 404


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"sign_in_methods": ("kerberos",)}, "'kerberos' is not one of basic, bearer, certificate"),
        ({"roles": ("everything",)}, "'everything' is not one of ingress"),
        ({"sign_in_methods": (BASIC,)}, "PLAINTEXT has no sign-in"),
        ({"sign_in_methods": (BASIC,), "client_properties": {"security.protocol": "SSL"}}, "SSL has no sign-in"),
        ({"sign_in_methods": (CERTIFICATE,), "caller_properties": {"security.protocol": "SASL_SSL"}}, "needs TLS"),
        ({"http_properties": {"ssl.keystore": "x"}}, "there is no HTTP setting 'ssl.keystore'"),
        ({"http_properties": {"ssl.client.auth": "required"}}, "need a key"),
    ],
)
def test_invalid_settings_are_rejected(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingError, match=words):
        GatewaySettings("localhost:9092", **changed).checked()


def test_callers_do_not_inherit_the_gateways_credentials() -> None:
    own = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": "gateway",
        "sasl.password": "own",
        "ssl.ca.location": "ca.pem",
        "ssl.certificate.location": "own.pem",
        "ssl.key.location": "own.pem",
        "ssl.key.password": "own",
    }
    settings = GatewaySettings("a:1", client_properties=own, caller_properties={"bootstrap.servers": "b:2"})
    theirs = settings.for_callers({"sasl.username": "alice"}).client()
    assert theirs["bootstrap.servers"] == "b:2"
    assert theirs["ssl.ca.location"] == "ca.pem"
    assert theirs["sasl.username"] == "alice"
    assert not {"sasl.password", "ssl.certificate.location", "ssl.key.location", "ssl.key.password"} & theirs.keys()


def test_gateway_open_to_the_network_logs_warnings() -> None:
    tls = {"ssl.keystore.location": "x.pem"}
    assert open_to_network(GatewaySettings("a:1")) == []
    assert len(open_to_network(GatewaySettings("a:1", host="0.0.0.0"))) == 2
    secured = GatewaySettings("a:1", host="0.0.0.0", http_properties=tls, sign_in_methods=(BASIC,))
    assert open_to_network(secured) == []
