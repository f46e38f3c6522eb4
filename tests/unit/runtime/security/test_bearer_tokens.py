"""JSON Web Tokens: who they let in, and every way in which they must not."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from penstock.core.security.sasl import Identity, InvalidToken
from penstock.runtime.security import bearer_tokens
from penstock.runtime.security.bearer_tokens import KeySet, TokenRules, read_key_set, validate

NOW_MS = 1_000_000_000_000
KEY = ec.generate_private_key(ec.SECP256R1())
OTHER = rsa.generate_private_key(65537, 2048)
RULES = TokenRules(("penstock",), "https://login.example", skew_ms=1000)


def public(key: Any, key_id: str) -> dict[str, Any]:
    algorithm = (
        jwt.algorithms.ECAlgorithm if isinstance(key, ec.EllipticCurvePrivateKey) else jwt.algorithms.RSAAlgorithm
    )
    return {**json.loads(algorithm.to_jwk(key.public_key())), "kid": key_id, "use": "sig"}


DOCUMENT = json.dumps({"keys": [public(KEY, "one"), public(OTHER, "two"), {"kty": "oct", "k": "AAAA", "kid": "s"}]})
KEYS = KeySet.read(DOCUMENT)


def token(key: Any = KEY, algorithm: str = "ES256", key_id: str | None = "one", **claims: Any) -> str:
    said = {"sub": "alice", "iss": "https://login.example", "aud": "penstock", "exp": NOW_MS // 1000 + 60, **claims}
    said = {name: value for name, value in said.items() if value is not None}
    return jwt.encode(said, key, algorithm, headers={"kid": key_id} if key_id else None)


def check(text: str, rules: TokenRules = RULES) -> Any:
    return validate(text, KEYS, rules, lambda: NOW_MS)


def test_a_valid_token_has_an_owner_and_an_expiry() -> None:
    assert check(token()) == Identity("User:alice", False, NOW_MS + 60_000)
    assert check(token(OTHER, "RS256", "two", aud=["x", "penstock"])).principal == "User:alice"
    assert check(token(name="bob"), RULES._replace(subject_claim="name")).principal == "User:bob"


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"exp": None}, "no expiry"),
        ({"exp": NOW_MS // 1000 - 2}, "expired"),
        ({"exp": "soon"}, "exp is not a time"),
        ({"exp": True}, "exp is not a time"),
        ({"nbf": NOW_MS // 1000 + 5}, "not valid yet"),
        ({"iat": NOW_MS // 1000 + 5}, "not valid yet"),
        ({"iss": "https://evil.example"}, "issued by"),
        ({"iss": None}, "issued by"),
        ({"aud": "other"}, "another audience"),
        ({"aud": None}, "another audience"),
        ({"sub": None}, "whose it is"),
        ({"sub": ""}, "whose it is"),
    ],
)
def test_invalid_claims_are_rejected(claims: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidToken, match=reason):
        check(token(**claims))


def test_a_clock_may_differ_a_little() -> None:
    assert check(token(exp=NOW_MS / 1000 - 0.5))
    assert check(token(nbf=NOW_MS // 1000 + 1))


def part(said: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(said).encode()).rstrip(b"=").decode()


CLAIMS = part({"sub": "admin", "iss": "https://login.example", "aud": "penstock", "exp": NOW_MS // 1000 + 60})


def test_a_token_without_a_signature_is_refused() -> None:
    for algorithm in ("none", "None", "NONE", ""):
        with pytest.raises(InvalidToken):
            check(f"{part({'alg': algorithm, 'kid': 'one'})}.{CLAIMS}.")


def test_a_public_key_is_no_secret() -> None:
    pem = OTHER.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    signed = f"{part({'alg': 'HS256', 'kid': 'two'})}.{CLAIMS}"
    signature = base64.urlsafe_b64encode(hmac.digest(pem, signed.encode(), hashlib.sha256)).rstrip(b"=").decode()
    with pytest.raises(InvalidToken, match="HS256"):
        check(f"{signed}.{signature}")
    with pytest.raises(InvalidToken):
        check(token("a secret that is long enough to be one", "HS256", "s"))


def test_a_key_that_does_not_fit_is_refused() -> None:
    with pytest.raises(InvalidToken):
        check(token(ec.generate_private_key(ec.SECP256R1())))
    with pytest.raises(InvalidToken, match="not among"):
        check(token(key_id="three"))
    with pytest.raises(InvalidToken, match="not among"):
        check(token(key_id=None))
    with pytest.raises(InvalidToken):
        check(token(OTHER, "RS256", "one"))


def test_a_changed_token_is_noticed() -> None:
    head, _, signature = token().split(".")
    with pytest.raises(InvalidToken):
        check(f"{head}.{CLAIMS}.{signature}")


@pytest.mark.parametrize("text", ["", "a", "a.b.c", "." * 5, "x" * 100_000, part({"alg": "ES256"}) + ".."])
def test_malformed_tokens_are_rejected(text: str) -> None:
    with pytest.raises(InvalidToken):
        check(text)


def test_a_token_without_a_key_id_is_for_the_only_key() -> None:
    only = KeySet.read(json.dumps({"keys": [public(KEY, "one")]}))
    assert validate(token(key_id=None), only, RULES, lambda: NOW_MS).principal == "User:alice"


def test_keys_come_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text(DOCUMENT)
    for source in (str(path), path.as_uri()):
        assert validate(token(), read_key_set(source), RULES, lambda: NOW_MS).principal == "User:alice"


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"keys": []}', '{"keys": [{"kty": "oct", "k": "AAAA"}]}', '{"keys": [1]}']
)
def test_documents_without_keys(text: str) -> None:
    with pytest.raises(ValueError, match="it "):
        KeySet.read(text)


@pytest.mark.parametrize("source", ["https://login.example/keys", "file"])
def test_a_document_of_keys_may_have_a_mebibyte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    path = tmp_path / "keys.json"
    monkeypatch.setattr(bearer_tokens, "urlopen", lambda *_, **__: path.open("rb"))
    for size, fits in ((2**20, True), (2**20 + 1, False)):
        path.write_text(DOCUMENT.ljust(size))
        given = source if source.startswith("https") else str(path)
        if fits:
            assert read_key_set(given).find("one") is not None
        else:
            with pytest.raises(ValueError, match="larger than 1048576 bytes"):
                read_key_set(given)
