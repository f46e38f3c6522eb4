"""The client's side of SASL: as the RFCs show it, and against servers that are not what they say."""

from __future__ import annotations

import base64

import pytest

from penstock.client.failures import AuthenticationFailed
from penstock.client.sasl import conversation
from penstock.client.settings import Credentials

USER = Credentials("SCRAM-SHA-256", "user", "pencil")
NONCE = "rOprNGfwEbeRWgbNEkqO"
SALT = "W22ZaJ0SNY7soEsUEjb6gQ=="


def test_plain_sends_everything_at_once() -> None:
    steps = conversation(Credentials("PLAIN", "ann", "söme"))
    assert next(steps) == b"\0ann\0" + "söme".encode()
    with pytest.raises(StopIteration):
        steps.send(b"")


def test_scram_speaks_as_rfc_7677_shows() -> None:
    steps = conversation(USER, NONCE)
    assert next(steps) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    server_first = f"r={NONCE}%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s={SALT},i=4096".encode()
    assert steps.send(server_first).endswith(b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    with pytest.raises(StopIteration):
        steps.send(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


def test_names_that_would_break_a_message_are_escaped() -> None:
    assert next(conversation(Credentials("SCRAM-SHA-512", "a=b,c", ""), "n")) == b"n,,n=a=3Db=2Cc,r=n"


def test_an_impostor_cannot_prove_that_it_knows_the_password() -> None:
    steps = conversation(USER, "abc")
    next(steps)
    steps.send(f"r=abcdef,s={SALT},i=4096".encode())
    with pytest.raises(AuthenticationFailed, match="could not prove"):
        steps.send(b"v=" + base64.b64encode(bytes(32)))


@pytest.mark.parametrize(
    ("challenge", "said"),
    [
        (f"r=other,s={SALT},i=4096", "does not match"),
        (f"r=abc,s={SALT},i=4096", "does not match"),
        (f"r=abcdef,s={SALT},i=1", "1 iterations"),
        (f"r=abcdef,s={SALT},i=100000000", "100000000 iterations"),
    ],
)
def test_a_challenge_that_is_not_sound_is_refused(challenge: str, said: str) -> None:
    steps = conversation(USER, "abc")
    next(steps)
    with pytest.raises(AuthenticationFailed, match=said):
        steps.send(challenge.encode())


@pytest.mark.parametrize("challenge", [b"r=abcdef,s=!,i=4096", b"r=abcdef,s=,i=many", b"\xff"])
def test_a_challenge_that_makes_no_sense_is_refused(challenge: bytes) -> None:
    steps = conversation(USER, "abc")
    next(steps)
    with pytest.raises(AuthenticationFailed, match="given up"):
        steps.send(challenge)
