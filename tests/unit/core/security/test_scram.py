"""SCRAM: the exchange of RFC 7677, wrong and tampered proofs, replays, and users who do not exist."""

from __future__ import annotations

from base64 import b64decode, b64encode

import pytest

from penstock.core.security.scram import (
    FIELDS_MAX,
    ITERATIONS_MIN,
    MECHANISMS,
    SHA_256,
    Account,
    Credential,
    Mechanism,
    ScramClient,
    ScramError,
    ScramServer,
    credential_of,
    credential_of_salted,
    salted_password,
)

SALT = b"salt of sixteen!"
PRETENDED = Credential(SALT[::-1], b"", b"", ITERATIONS_MIN)


def server(mechanism: Mechanism = SHA_256, *, password: str = "secret", nonce: str = "server") -> ScramServer:
    known = {
        ("alice", False): Account("User:alice", credential_of(mechanism, password, SALT, ITERATIONS_MIN)),
        ("a,b=c", False): Account("User:a,b=c", credential_of(mechanism, password, SALT, ITERATIONS_MIN)),
        ("token", True): Account("User:owner", credential_of(mechanism, password, SALT, ITERATIONS_MIN), True),
    }
    return ScramServer(mechanism, nonce, lambda user, is_token: known.get((user, is_token)), lambda _: PRETENDED)


def sign_in(server: ScramServer, client: ScramClient) -> Account:
    answer = client.final(server.first(client.first()))
    verifier, account = server.final(answer)
    client.verify(verifier)
    return account


def test_the_exchange_in_rfc_7677() -> None:
    salt = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    account = Account("User:user", credential_of(SHA_256, "pencil", salt, 4096))
    exchange = ScramServer(SHA_256, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", lambda *_: account, lambda _: PRETENDED)
    first = exchange.first(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert first == b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    final, found = exchange.final(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert final == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert found is account


@pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=lambda mechanism: mechanism.name)
@pytest.mark.parametrize("user", ["alice", "a,b=c"])
def test_a_user_with_the_right_password_is_authenticated(mechanism: Mechanism, user: str) -> None:
    assert sign_in(server(mechanism), ScramClient(mechanism, user, "secret", "client")).principal == f"User:{user}"


def test_a_delegation_token_is_known_by_its_own_name_only() -> None:
    assert sign_in(server(), ScramClient(SHA_256, "token", "secret", "client", is_token=True)).is_token
    with pytest.raises(ScramError):
        sign_in(server(), ScramClient(SHA_256, "token", "secret", "client"))
    with pytest.raises(ScramError):
        sign_in(server(), ScramClient(SHA_256, "alice", "secret", "client", is_token=True))


def test_a_client_may_salt_the_password_itself() -> None:
    salted = salted_password(SHA_256, "secret", SALT, ITERATIONS_MIN)
    assert credential_of_salted(SHA_256, salted, SALT, ITERATIONS_MIN) == credential_of(
        SHA_256, "secret", SALT, ITERATIONS_MIN
    )


@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", "secret"), ("alice", "")])
def test_a_wrong_password_and_an_unknown_user_are_refused_alike(user: str, password: str) -> None:
    client = ScramClient(SHA_256, user, password, "client")
    exchange = server()
    answer = client.final(exchange.first(client.first()))
    with pytest.raises(ScramError, match="the user does not exist, or the password is wrong"):
        exchange.final(answer)


def test_a_client_without_a_user_cannot_tell_who_exists() -> None:
    first = server().first(b"n,,n=nobody,r=client")
    assert first == server().first(b"n,,n=nobody,r=client")
    assert b",i=4096" in first


def test_a_recorded_proof_is_worth_nothing_in_another_exchange() -> None:
    client = ScramClient(SHA_256, "alice", "secret", "client")
    recorded = client.final(server(nonce="one").first(client.first()))
    other = server(nonce="two")
    other.first(client.first())
    with pytest.raises(ScramError, match="nonce"):
        other.final(recorded)
    with pytest.raises(ScramError):
        other.final(recorded.replace(b"clientone", b"clienttwo"))


def test_every_flipped_bit_of_a_proof_is_noticed() -> None:
    client = ScramClient(SHA_256, "alice", "secret", "client")
    exchange = server()
    answer = client.final(exchange.first(client.first()))
    head, _, encoded = answer.rpartition(b",p=")
    proof = b64decode(encoded)
    for position in range(len(proof)):
        tampered = bytearray(proof)
        tampered[position] ^= 1
        with pytest.raises(ScramError):
            exchange.final(head + b",p=" + b64encode(tampered))
    assert exchange.final(answer)[1].principal == "User:alice"


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n",
        b"n,,",
        b"p=tls-unique,,n=alice,r=x",
        b"n,,n=alice",
        b"n,,r=x",
        b"n,,n=,r=x",
        b"n,,m=x,n=alice,r=x",
        b"n,,n=al=ice,r=x",
        b"n,a=root,n=alice,r=x",
        b"\xff\xfe",
        b"n,,n=alice,n=bob,r=x",
        b"n,,n=alice,r=" + b"x" * 300,
        b"n,,n=alice,r=x," + b",".join(b"x%d=" % number for number in range(FIELDS_MAX)),
    ],
)
def test_first_messages_that_make_no_sense(message: bytes) -> None:
    with pytest.raises(ScramError):
        server().first(message)


@pytest.mark.parametrize(
    "message", [b"", b"c=biws", b"c=biws,r=clientserver,p=%%%", b"c=biws,r=clientserver,p=AAAA", b"\xff"]
)
def test_proofs_that_make_no_sense(message: bytes) -> None:
    exchange = server()
    exchange.first(b"n,,n=alice,r=client")
    with pytest.raises(ScramError):
        exchange.final(message)


@pytest.mark.parametrize(
    "message",
    [b"r=other,s=YQ==,i=4096", b"r=client,s=YQ==,i=4096", b"r=clientserver,s=YQ==,i=1", b"r=clientserver,s=*,i=4096"],
)
def test_a_client_does_not_trust_a_weak_or_foreign_server(message: bytes) -> None:
    with pytest.raises(ScramError):
        ScramClient(SHA_256, "alice", "secret", "client").final(message)


def test_a_server_that_does_not_know_the_user_is_found_out() -> None:
    client = ScramClient(SHA_256, "alice", "secret", "client")
    client.final(server().first(client.first()))
    with pytest.raises(ScramError):
        client.verify(b"v=" + b64encode(bytes(32)))
