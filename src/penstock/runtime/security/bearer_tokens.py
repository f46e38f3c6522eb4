"""Checks JSON Web Tokens against the keys of an identity provider.

Only signatures by the provider's private keys count: tokens without one (`alg=none`), or signed with a secret that
anybody could derive from a public key (`HS256`), are rejected before anything else is checked. The clock is passed in.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import jwt
from jwt.types import Options

from penstock.core.security.sasl import Identity, InvalidToken
from penstock.model.access import USER_PREFIX

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
TOKEN_LENGTH_MAX = 64 * 1024
KEY_SET_BYTES_MAX = 1024 * 1024
KEYS_MAX = 100
FETCH_TIMEOUT_S = 10.0

logger = logging.getLogger("penstock.security")


class TokenRules(NamedTuple):
    """What a token must contain."""

    audiences: Sequence[str] = ()
    issuer: str | None = None
    subject_claim: str = "sub"
    scope_claim: str = "scope"
    skew_ms: int = 30_000


class KeySet:
    """The provider's public keys by id, from its JWKS document."""

    def __init__(self, keys: Mapping[str, jwt.PyJWK]) -> None:
        self._keys = keys

    @classmethod
    def read(cls, text: str) -> KeySet:
        """Raises ValueError for a document without a usable key."""
        try:
            listed = json.loads(text)["keys"]
        except (ValueError, KeyError, TypeError):
            raise ValueError('it is not a JWKS document: {"keys": […]}') from None
        keys: dict[str, jwt.PyJWK] = {}
        for number, each in enumerate(listed[:KEYS_MAX]):
            try:
                key = jwt.PyJWK(each)
            except (jwt.PyJWTError, ValueError, TypeError, AttributeError):
                continue
            if key.key_type != "oct" and each.get("use", "sig") == "sig":
                keys[str(key.key_id if key.key_id is not None else number)] = key
        if not keys:
            raise ValueError("it has no public key for signatures")
        return cls(keys)

    def find(self, key_id: str | None) -> jwt.PyJWK | None:
        """The key with an id; a token without one belongs to the only key there is."""
        if key_id is None:
            return next(iter(self._keys.values())) if len(self._keys) == 1 else None
        return self._keys.get(key_id)


def read_key_set(source: str) -> KeySet:
    """Fetch the keys from a file (a path, or a file: URL) or over HTTP; blocks. Raises OSError or ValueError."""
    url = urlsplit(source)
    if url.scheme in ("http", "https"):
        with urlopen(Request(source, headers={"Accept": "application/json"}), timeout=FETCH_TIMEOUT_S) as answer:
            text = answer.read(KEY_SET_BYTES_MAX + 1)
    else:
        text = Path(url.path if url.scheme == "file" else source).read_bytes()
    if len(text) > KEY_SET_BYTES_MAX:
        raise ValueError(f"it is larger than {KEY_SET_BYTES_MAX} bytes")
    return KeySet.read(text.decode())


def key_id_of(token: str) -> str | None:
    """The id of a token's signing key; raises InvalidToken if it is not a JSON Web Token."""
    if len(token) > TOKEN_LENGTH_MAX:
        raise InvalidToken("it is too long")
    try:
        header = jwt.get_unverified_header(token)
    except jwt.PyJWTError as error:
        raise InvalidToken(f"it is not a signed JSON Web Token: {error}") from None
    if header.get("alg") not in ALGORITHMS:
        raise InvalidToken(f"it is not signed by a key that only its issuer has (alg={header.get('alg')})")
    key_id = header.get("kid")
    return key_id if isinstance(key_id, str) else None


def validate(token: str, keys: KeySet, rules: TokenRules, now_ms: Callable[[], int]) -> Identity:
    """The identity in a token; raises InvalidToken."""
    key = keys.find(key_id_of(token))
    if key is None:
        raise InvalidToken("its key is not among those of the provider")
    claims = _verified(token, key)
    now = now_ms()
    expires = _time(claims, "exp")
    if expires is None:
        raise InvalidToken("it has no expiry")
    if expires + rules.skew_ms <= now:
        raise InvalidToken("it has expired")
    for name in ("nbf", "iat"):
        begins = _time(claims, name)
        if begins is not None and begins - rules.skew_ms > now:
            raise InvalidToken("it is not valid yet")
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise InvalidToken(f"it was issued by {claims.get('iss')!r}, not by {rules.issuer!r}")
    if rules.audiences:
        named = claims.get("aud", ())
        named = [named] if isinstance(named, str) else named
        if not isinstance(named, list) or not set(map(str, named)) & set(rules.audiences):
            raise InvalidToken("it is meant for another audience (aud)")
    subject = claims.get(rules.subject_claim)
    if not isinstance(subject, str) or not subject:
        raise InvalidToken(f"it does not say whose it is ({rules.subject_claim})")
    return Identity(USER_PREFIX + subject, expires_ms=expires)


def _verified(token: str, key: jwt.PyJWK) -> dict[str, object]:
    # Times and audiences are checked by the caller, by its own clock.
    options: Options = {
        "verify_exp": False,
        "verify_nbf": False,
        "verify_iat": False,
        "verify_aud": False,
        "verify_iss": False,
        "verify_sub": False,
    }
    try:
        return jwt.decode(token, key, algorithms=list(ALGORITHMS), options=options)
    except jwt.PyJWTError as error:
        raise InvalidToken(f"its signature is wrong: {error}") from None
    except (ValueError, TypeError) as error:
        raise InvalidToken(f"its key cannot be used for it: {error}") from None


def _time(claims: Mapping[str, object], name: str) -> int | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**40:
        raise InvalidToken(f"its {name} is not a time")
    return int(value * 1000)
