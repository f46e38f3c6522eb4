"""SASL's mechanisms on the server's side, and JAAS texts."""

from __future__ import annotations

import pytest

from penstock.core.security.jaas import InvalidJaas, parse_jaas
from penstock.core.security.sasl import (
    BEARER_PARTS_MAX,
    BearerExchange,
    Identity,
    InvalidToken,
    PlainExchange,
    SignInRefused,
)

USERS = {"alice": "secret", "empty": ""}


@pytest.mark.parametrize("message", [b"\0alice\0secret", b"alice\0alice\0secret"])
def test_plain_lets_in_who_knows_the_password(message: bytes) -> None:
    assert PlainExchange(USERS).step(message) == (b"", Identity("User:alice"))


@pytest.mark.parametrize(
    "message",
    [
        b"\0alice\0wrong",
        b"\0alice\0",
        b"\0bob\0secret",
        b"\0empty\0",
        b"\0\0",
        b"admin\0alice\0secret",
        b"",
        b"alice",
        b"a\0b\0c\0d",
        b"\xff\0alice\0secret",
    ],
)
def test_plain_refuses_every_other_user(message: bytes) -> None:
    with pytest.raises(SignInRefused) as refused:
        PlainExchange(USERS).step(message)
    assert "secret" not in refused.value.message


def validate(token: str) -> Identity:
    if token != "good":
        raise InvalidToken("it is bad")
    return Identity("User:alice", expires_ms=5)


def test_a_bearer_token_lets_in() -> None:
    step = BearerExchange(validate).step(b"n,,\x01auth=Bearer good\x01\x01")
    assert step.identity == Identity("User:alice", expires_ms=5)


def test_a_bad_token_is_answered_before_the_exchange_fails() -> None:
    exchange = BearerExchange(validate)
    assert exchange.step(b"n,a=alice,\x01auth=Bearer bad\x01\x01") == (b'{"status": "invalid_token"}', None)
    with pytest.raises(SignInRefused) as refused:
        exchange.step(b"\x01")
    assert refused.value.reason == "it is bad"


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"n,,\x01auth=Basic good\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"\xff",
        # Behind so many parts that looking through them would take an event loop long.
        b"n,,\x01" + b"a=b\x01" * BEARER_PARTS_MAX + b"auth=Bearer good\x01\x01",
    ],
)
def test_messages_without_a_token(message: bytes) -> None:
    with pytest.raises(SignInRefused):
        BearerExchange(validate).step(message)


def test_jaas_has_options_that_matter() -> None:
    login = parse_jaas(
        "org.apache.kafka.common.security.plain.PlainLoginModule Required\n"
        ' username="admin" password="a\\"b;c" user_admin=\'x y\' user_bob=plain ;'
    )
    assert login.module.endswith("PlainLoginModule")
    assert login.options["username"] == "admin"
    assert login.options["password"] == 'a"b;c'
    assert login.passwords == {"admin": "x y", "bob": "plain"}


@pytest.mark.parametrize(
    "text", ["", "Module", "Module required", 'Module required a="b"', 'M required secret="x" 7;', "M required a=b; x"]
)
def test_jaas_texts_that_cannot_be_read(text: str) -> None:
    with pytest.raises(InvalidJaas) as refused:
        parse_jaas(text)
    assert "secret" not in str(refused.value)
