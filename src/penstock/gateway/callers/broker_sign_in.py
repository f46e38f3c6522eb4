"""Verifies callers' credentials at the brokers, with the mechanisms that their listener has."""

from __future__ import annotations

import asyncio
import base64
import re
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from penstock.client.connection import Connection
from penstock.client.failures import CredentialsRejected, MechanismMissing, NoAnswer
from penstock.client.settings import OAUTHBEARER, Credentials
from penstock.gateway.kafka.broker_requests import BrokerWire, check, connection_settings
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.web.problem import Problem
from penstock.model.access import USER_PREFIX
from penstock.runtime.fair_turns import FairTurns
from penstock.wire.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from penstock.wire.messages.describe_tenants import DescribeTenantsRequest
from penstock.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest

# In the order that they are tried: those that do not send the password first.
PASSWORD_MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
THREADS = 8
ANSWER_TIMEOUT_S = 10.0
REMEMBERED_MAX = 10_000
# A delegation token's id: 16 bytes in base64. Users may be called like that, too.
TOKEN_ID = re.compile("[A-Za-z0-9_-]{22}")
TOKEN_LIFETIME_MS = 24 * 60 * 60 * 1000


class Rejected(Exception):
    """Brokers rejected these credentials."""


class DelegationToken(NamedTuple):
    """A token that brokers accept in place of its owner's credentials."""

    credentials: Credentials
    secret: bytes
    expires_s: float


class BrokerSignIn:
    """Signs in at the brokers with callers' credentials. `own` sends requests with the gateway's own."""

    def __init__(self, settings: GatewaySettings, own: BrokerWire) -> None:
        self._settings = settings.for_callers({})
        self._own = own
        self._own_user = settings.client_properties.get("sasl.username", "")
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="sign-in")
        self._turns: FairTurns[str] = FairTurns(THREADS)
        # The mechanism that a user was last accepted by.
        self._mechanisms: OrderedDict[str, str] = OrderedDict()

    async def by_password(self, user: str, password: str, address: str) -> Credentials:
        """The credentials that the brokers accept. Raises Rejected, and Problem (503) if no broker answers.

        If more sign-ins wait than there are threads, the addresses that they come from take turns.
        """
        known = self._mechanisms.get(user)
        tried = [name for name in PASSWORD_MECHANISMS if name == known]
        tried += [name for name in PASSWORD_MECHANISMS if name != known]
        found = await self._first([Credentials(name, user, password) for name in tried], address)
        self._mechanisms[user] = found.mechanism
        self._mechanisms.move_to_end(user)
        if len(self._mechanisms) > REMEMBERED_MAX:
            self._mechanisms.popitem(last=False)
        return found

    async def principal_of(self, credentials: Credentials) -> str:
        """Whom the brokers take the user of a password for: the owner, if it is a delegation token."""
        if not TOKEN_ID.fullmatch(credentials.username):
            return USER_PREFIX + credentials.username
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._principal_of, credentials)

    def _principal_of(self, credentials: Credentials) -> str:
        """The same, blocking. A broker that does not know the request has no tokens that the gateway could use."""
        settings = connection_settings(self._settings, credentials)
        for address in settings.bootstrap:
            try:
                with Connection(address, settings, ANSWER_TIMEOUT_S) as connection:
                    told: str = connection.call(DescribeTenantsRequest()).principal
                    if told:
                        return told
            except NoAnswer:
                continue
        return USER_PREFIX + credentials.username

    async def by_token(self, name: str, token: str, address: str) -> Credentials:
        """The same for a bearer token; `name` is only for messages."""
        return await self._first([Credentials(OAUTHBEARER, name, token)], address)

    async def verify(self, credentials: Credentials) -> None:
        """Raises Rejected if they are no longer accepted, and Problem (503) if no broker answers."""
        await self._first([credentials])

    async def delegation_token(self, principal: str) -> DelegationToken:
        """A token for the owner of a certificate, which the gateway creates as its own user (KIP-373)."""
        name = principal.removeprefix(USER_PREFIX)
        renewers = [CreatableRenewers("User", self._own_user)] if self._own_user else []
        made = await self._own.ask(CreateDelegationTokenRequest("User", name, renewers, TOKEN_LIFETIME_MS))
        check(made.error_code, None, f"the gateway may not act for {principal}; it needs CREATE_TOKENS on that user")
        secret = base64.b64encode(bytes(made.hmac)).decode()
        tried = [Credentials(mechanism, made.token_id, secret) for mechanism in PASSWORD_MECHANISMS[:2]]
        try:
            accepted = await self._first(tried)
        except Rejected:
            raise Problem(
                50302, "the brokers don't accept delegation tokens from this gateway", "see docs/security.md"
            ) from None
        return DelegationToken(accepted, bytes(made.hmac), made.expiry_timestamp_ms / 1000)

    async def forget(self, token: DelegationToken) -> None:
        """Expire a token; if that fails, it expires by itself."""
        try:
            await self._own.ask(ExpireDelegationTokenRequest(token.secret, -1))
        except Problem:
            return

    async def stop(self) -> None:
        """Start no more sign-ins."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _first(self, tried: Sequence[Credentials], address: str = "") -> Credentials:
        async with self._turns.turn(address):
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._try_all, tried)

    def _try_all(self, tried: Sequence[Credentials]) -> Credentials:
        """The first that a broker accepts, blocking."""
        why = ""
        is_rejected = False
        for credentials in tried:
            try:
                self._try(credentials)
            except MechanismMissing as error:
                why = str(error)
            except CredentialsRejected:
                is_rejected = True
            else:
                return credentials
        if is_rejected:
            raise Rejected
        raise Problem(50102, why, "enable the mechanism on the brokers' listener")

    def _try(self, credentials: Credentials) -> None:
        settings = connection_settings(self._settings, credentials)
        reasons = []
        for address in settings.bootstrap:
            try:
                Connection(address, settings, ANSWER_TIMEOUT_S).close()
                return
            except (CredentialsRejected, MechanismMissing):
                raise
            except NoAnswer as error:
                reasons.append(str(error))
        raise Problem(50301, f"no broker answers: {'; '.join(reasons)}", "try again", headers={"Retry-After": "1"})
