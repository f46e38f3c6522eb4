"""Sign-in on one listener: its mechanisms, the users and credentials they know, and bearer tokens."""

from __future__ import annotations

import asyncio
import hmac
import logging
import math
from base64 import b64encode
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from penstock.config.listeners import listed
from penstock.core.metadata.delegation_tokens import TokenRules as TokenTimes
from penstock.core.metadata.image import Image
from penstock.core.security import scram
from penstock.core.security.jaas import InvalidJaas, parse_jaas
from penstock.core.security.sasl import (
    OAUTHBEARER,
    PLAIN,
    BearerExchange,
    Exchange,
    Identity,
    InvalidToken,
    PlainExchange,
    ScramExchange,
    SignInRefused,
    bearer_token,
)
from penstock.model.access import USER_PREFIX
from penstock.runtime.env import Env
from penstock.runtime.security import bearer_tokens
from penstock.runtime.security.bearer_tokens import KeySet, TokenRules

SUPPORTED = (PLAIN, *scram.MECHANISMS, OAUTHBEARER)
SALT_BYTES = 16
# The answer to an unknown user is like those of this many kinds of credentials.
KINDS_MAX = 20
NONCE_BYTES = 18
# A provider's keys are fetched again when a token names an unknown one, but not more often than this.
KEYS_REFETCH_MS = 10_000

logger = logging.getLogger("penstock.security")


class SignInUnusable(Exception):
    """Settings that don't allow any client to sign in; the text is what to do."""


class SignInSettings(NamedTuple):
    """The settings of one listener's mechanisms."""

    mechanisms: tuple[str, ...]
    plain_users: Mapping[str, str]
    token_keys_source: str | None
    token_rules: TokenRules
    token_keys_refresh_ms: int
    # How long a sign-in lasts; 0 for as long as the connection.
    lifetime_ms: int
    failure_delay_ms: int

    @classmethod
    def read(cls, look_up: Callable[[str], str | None], jaas: Callable[[str], str | None]) -> SignInSettings:
        """`look_up` returns a listener's properties by name, `jaas` its sasl.jaas.config by mechanism."""
        mechanisms = listed(look_up("sasl.enabled.mechanisms"))
        for name in mechanisms:
            if name == "GSSAPI":
                raise SignInUnusable(
                    "Kerberos (GSSAPI) is not supported: set sasl.enabled.mechanisms to some of " + ", ".join(SUPPORTED)
                )
            if name not in SUPPORTED:
                raise SignInUnusable(f"sasl.enabled.mechanisms: {name} is not one of {', '.join(SUPPORTED)}")
        source = look_up("sasl.oauthbearer.jwks.endpoint.url")
        if OAUTHBEARER in mechanisms and not source:
            raise SignInUnusable("OAUTHBEARER needs sasl.oauthbearer.jwks.endpoint.url: where the provider's keys are")
        rules = TokenRules(
            listed(look_up("sasl.oauthbearer.expected.audience")),
            look_up("sasl.oauthbearer.expected.issuer") or None,
            look_up("sasl.oauthbearer.sub.claim.name") or "sub",
            look_up("sasl.oauthbearer.scope.claim.name") or "scope",
            int(look_up("sasl.oauthbearer.clock.skew.seconds") or 30) * 1000,
        )
        return cls(
            mechanisms,
            _plain_users(jaas(PLAIN)) if PLAIN in mechanisms else {},
            source,
            rules,
            int(look_up("sasl.oauthbearer.jwks.endpoint.refresh.ms") or 3_600_000),
            int(look_up("connections.max.reauth.ms") or 0),
            int(look_up("connection.failed.authentication.delay.ms") or 0),
        )


def login_of(properties: Mapping[str, str], listener_name: str, mechanism: str) -> str | None:
    """The `sasl.jaas.config` of a mechanism on one listener, else the node's."""
    own = f"listener.name.{listener_name.lower()}.{mechanism.lower()}.sasl.jaas.config"
    return properties.get(own, properties.get("sasl.jaas.config"))


def _plain_users(text: str | None) -> dict[str, str]:
    try:
        return parse_jaas(text).passwords if text else {}
    except InvalidJaas as error:
        raise SignInUnusable(f"the sasl.jaas.config of PLAIN cannot be read: {error}") from None


class DelegationTokens:
    """The secrets of delegation tokens; all brokers derive the same from the cluster's key.

    Each is computed once, when its token is committed or first needed: a client must not be able to have it done for
    all tokens again and again.
    """

    def __init__(
        self, secret_key: str | None, lifetime_ms_max: int = 604_800_000, renewal_ms: int = 86_400_000
    ) -> None:
        self._key = secret_key.encode() if secret_key else None
        self.rules = TokenTimes(lifetime_ms_max, renewal_ms, self.find)
        self._secrets: dict[str, bytes] = {}
        self._ids: dict[bytes, str] = {}
        self._credentials: dict[tuple[str, int], scram.Credential] = {}

    @property
    def are_on(self) -> bool:
        """Whether this cluster has delegation tokens."""
        return self._key is not None

    def secret(self, token_id: str) -> bytes:
        """The secret that a token's owner gets."""
        secret = self._secrets.get(token_id)
        return self._derive(token_id) if secret is None else secret

    def learn(self, token_ids: Iterable[str]) -> None:
        """These tokens are there."""
        if not self.are_on:
            return
        for token_id in token_ids:
            if token_id not in self._secrets:
                secret = self._secrets[token_id] = self._derive(token_id)
                self._ids[secret] = token_id

    def find(self, token_ids: Collection[str], secret: bytes) -> str | None:
        """The one of all tokens that a secret belongs to."""
        token_id = self._ids.get(secret)
        if token_id is None and len(self._secrets) < len(token_ids):
            # Some may be decided upon and not committed yet.
            self.learn(token_ids)
            token_id = self._ids.get(secret)
        return token_id if token_id in token_ids else None

    def _derive(self, token_id: str) -> bytes:
        assert self._key is not None
        return hmac.digest(self._key, token_id.encode(), "sha512")

    def credential(self, mechanism: scram.Mechanism, token_id: str, salt: bytes) -> scram.Credential:
        """The SCRAM credential of a token; cached, since deriving it is expensive."""
        known = self._credentials.get((token_id, mechanism.code))
        if known is None:
            password = b64encode(self.secret(token_id)).decode()
            known = scram.credential_of(mechanism, password, salt, scram.ITERATIONS_MIN)
            self._credentials[token_id, mechanism.code] = known
        return known

    def forget(self, token_id: str) -> None:
        """The token was removed."""
        secret = self._secrets.pop(token_id, None)
        if secret is not None:
            del self._ids[secret]
        for mechanism in scram.MECHANISMS.values():
            self._credentials.pop((token_id, mechanism.code), None)


class SignIn:
    """Starts exchanges for the peers of one listener."""

    def __init__(
        self, env: Env, settings: SignInSettings, image: Callable[[], Image], tokens: DelegationTokens
    ) -> None:
        self.settings = settings
        self._env = env
        self._image = image
        self._tokens = tokens
        # Gives unknown users a salt while the cluster has no credential to derive it from.
        self._pepper = env.random.randbytes(SALT_BYTES)
        self._keys: KeySet | None = None
        self._keys_fetched_ms = -math.inf
        self._fetching: asyncio.Task[None] | None = None

    def begin(self, mechanism: str) -> Exchange | None:
        """A new exchange of a mechanism; None if it is not enabled on this listener."""
        if mechanism not in self.settings.mechanisms:
            return None
        if mechanism == PLAIN:
            return PlainExchange(self.settings.plain_users)
        if mechanism == OAUTHBEARER:
            return BearerExchange(self._validate)
        kind = scram.MECHANISMS[mechanism]
        nonce = b64encode(self._env.random.randbytes(NONCE_BYTES)).decode()
        server = scram.ScramServer(
            kind,
            nonce,
            lambda user, is_token: self._account(kind, user, is_token),
            lambda user: self._pretend(kind, user),
        )
        return ScramExchange(mechanism, server)

    async def prepare(self, exchange: Exchange, message: bytes) -> None:
        """Fetch what the next step needs but cannot wait for: the provider's keys."""
        if not isinstance(exchange, BearerExchange):
            return
        try:
            key_id = bearer_tokens.key_id_of(bearer_token(message))
        except (InvalidToken, SignInRefused):
            # The exchange will report what is wrong with it.
            return
        age_ms = self._env.monotonic_ms() - self._keys_fetched_ms
        unknown = self._keys is None or self._keys.find(key_id) is None
        if (unknown and age_ms >= KEYS_REFETCH_MS) or age_ms >= self.settings.token_keys_refresh_ms:
            if self._fetching is None:
                self._fetching = self._env.spawn(self._fetch_keys(), "fetch the identity provider's keys")
            if unknown:
                await asyncio.wait([self._fetching])

    async def _fetch_keys(self) -> None:
        source = self.settings.token_keys_source
        assert source is not None
        try:
            self._keys = await asyncio.to_thread(bearer_tokens.read_key_set, source)
        except (OSError, ValueError) as error:
            # Known keys stay valid while the provider cannot be reached.
            logger.error("sasl.oauthbearer.jwks.endpoint.url=%s cannot be read: %s", source, error)
        finally:
            self._keys_fetched_ms = self._env.monotonic_ms()
            self._fetching = None

    def _validate(self, token: str) -> Identity:
        if self._keys is None:
            raise InvalidToken("the identity provider's keys could not be read; see the broker's log")
        return bearer_tokens.validate(token, self._keys, self.settings.token_rules, self._env.now_ms)

    def _account(self, mechanism: scram.Mechanism, user: str, is_token: bool) -> scram.Account | None:
        security = self._image().security
        found = None if is_token else security.credentials.get((user, mechanism.code))
        if found is None:
            # Of the clients only Java's sends tokenauth=true; the others may name a token as they name a user.
            token = security.tokens.get(user)
            if token is None or not self._tokens.are_on or token.expiration_timestamp < self._env.now_ms():
                return None
            credential = self._tokens.credential(mechanism, user, self._salt(user))
            return scram.Account(token.owner, credential, is_token=True, expires_ms=token.expiration_timestamp)
        credential = scram.Credential(found.salt, found.stored_key, found.server_key, found.iterations)
        return scram.Account(USER_PREFIX + user, credential)

    def _salt(self, user: str) -> bytes:
        return self._digest(f"salt {user}")[:SALT_BYTES]

    def _digest(self, text: str) -> bytes:
        """The same on all brokers, and after a restart: an unknown user is not to be told by changing answers.

        Clusters get their pepper when they are formatted with users, or with the first change of a credential. Until
        then the first credential stands in for it, whose user could compute what is derived from it.
        """
        security = self._image().security
        secret = security.pepper or next(iter(security.credentials.values()), None)
        return hmac.digest(self._pepper if secret is None else secret.server_key, text.encode(), "sha512")

    def _pretend(self, mechanism: scram.Mechanism, user: str) -> scram.Credential:
        """A credential like those of users that exist, for one that does not: as many iterations, as long a salt.

        Of several kinds each name gets one, and keeps it when kinds are added, unless it is the new one's turn.
        """
        known = sorted(self._image().security.credential_kinds)
        kinds = [kind[1:] for kind in known if kind[0] == mechanism.code][:KINDS_MAX]
        iterations, salt_bytes = max(
            kinds or [(scram.ITERATIONS_MIN, SALT_BYTES)],
            key=lambda kind: self._digest(f"kind {kind[0]} {kind[1]} {user}"),
        )
        salt = b"".join(self._digest(f"salt {part} {user}") for part in range(-(-salt_bytes // 64)))
        return scram.Credential(salt[:salt_bytes], b"", b"", iterations)

    def is_usable(self, token_id: str) -> bool:
        """Whether a delegation token is there and has not expired."""
        token = self._image().security.tokens.get(token_id)
        return token is not None and token.expiration_timestamp >= self._env.now_ms()

    def lifetime_ms(self, identity: Identity) -> int:
        """How long a new sign-in lasts; 0 for as long as the connection."""
        limits = [self.settings.lifetime_ms] if self.settings.lifetime_ms > 0 else []
        if identity.expires_ms is not None:
            limits.append(max(1, identity.expires_ms - self._env.now_ms()))
        return min(limits, default=0)
