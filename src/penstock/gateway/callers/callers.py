"""All callers that have signed in, and how requests find theirs.

Theory of operation. A request presents credentials. If the brokers have accepted the same ones within the last seconds
(`sign_in_s`), the request goes to the session that they opened. If not, the brokers are asked, once for all requests
that wait for the same answer. A rejection closes the session that the credentials opened, and is not remembered: the
next request checks again, as far as the limits on failures let it.

Sessions are found by who the caller is, and never by anything else in a request: by user and password, by the
issuer and subject of a token that the brokers have accepted, by the principal of a certificate. A caller that sends
nothing for a while loses its session, with its consumers. Sessions with streams that last longer than a sign-in are
verified meanwhile, so that a deleted user's streams end.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass

from penstock.client.settings import Credentials
from penstock.core.fairness import FairCache
from penstock.gateway.callers.broker_sign_in import BrokerSignIn, DelegationToken, Rejected
from penstock.gateway.callers.credentials import BASIC, BEARER, NAME_LENGTH_MAX, Presented, not_signed_in, token_claims
from penstock.gateway.callers.failed_sign_ins import FailedSignIns
from penstock.gateway.callers.session import CallerSession, caller_settings
from penstock.gateway.services import SharedParts
from penstock.gateway.web.problem import Problem, too_busy
from penstock.model.access import USER_PREFIX

log = logging.getLogger(__name__)

TICK_S = 1.0
# What a failed sign-in waits for its answer.
FAILURE_DELAY_S = 0.5
# A delegation token is replaced this long before it expires.
TOKEN_MARGIN_S = 300.0
KNOWN_MAX = 10_000
# Accepted credentials, and the approximate size of each besides its secret.
KNOWN_BYTES_MAX = 32 * 1024 * 1024
ENTRY_BYTES = 1_000
WRONG = "the brokers don't accept this user and password"
WRONG_TOKEN = "the brokers don't accept this token"

# What distinguishes sessions.
Key = tuple[str, ...]


@dataclass(slots=True)
class Accepted:
    """Credentials that the brokers have accepted, until when that counts, and the session that they opened."""

    credentials: Credentials
    session: CallerSession
    valid_until: float
    # When the credentials themselves end, in seconds of the wall clock; 0 for never.
    expires_s: float = 0.0

    def is_valid(self) -> bool:
        """Whether requests may be served without asking the brokers."""
        return time.monotonic() < self.valid_until and not self.session.is_closed


def claimed_name(presented: Presented) -> str:
    """The name that a request claims, by which its failures are counted; never empty."""
    if presented.method != BEARER:
        return presented.name
    claims = token_claims(presented.secret)
    return "a bearer" if claims is None else claims.subject[:NAME_LENGTH_MAX]


class Callers:
    """The sessions of a gateway's callers; all methods belong to the loop."""

    def __init__(self, parts: SharedParts, brokers: BrokerSignIn, clock: Callable[[], float] = time.monotonic) -> None:
        self._parts = parts
        self._settings = parts.settings
        self._brokers = brokers
        self._clock = clock
        self._failures = FailedSignIns(
            self._settings.failed_sign_ins_max, self._settings.failed_sign_ins_per_address_max
        )
        self._accepted: FairCache[str, bytes, Accepted] = FairCache(KNOWN_MAX, KNOWN_BYTES_MAX)
        self._sessions: dict[Key, CallerSession] = {}
        # The address that each session was opened from.
        self._opened_from: dict[Key, str] = {}
        self._tokens: dict[Key, DelegationToken] = {}
        # The last token of each session of a bearer, which librdkafka requests.
        self._bearers: dict[Key, tuple[str, float]] = {}
        self._verifying: dict[bytes, asyncio.Task[Accepted]] = {}
        # Sign-ins that wait for others of their address or user to end.
        self._waiting = 0
        self._one_ended = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._stopping: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def sessions(self) -> list[CallerSession]:
        """All open sessions."""
        return list(self._sessions.values())

    def start(self) -> None:
        """Start to look after sessions."""
        self._keeper = asyncio.create_task(self._keep(), name="callers")

    async def stop(self) -> None:
        """Close all sessions."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        for key in list(self._sessions):
            self._close(key)
        if self._stopping:
            await asyncio.wait(self._stopping)
        await self._brokers.stop()

    def known(self, presented: Presented) -> Accepted | None:
        """What the brokers have lately accepted, without waiting."""
        found = self._accepted.get(presented.digest)
        return found if found is not None and found.is_valid() else None

    async def sign_in(self, presented: Presented, address: str) -> CallerSession:
        """The caller's session. Raises Problem: 401 if the brokers reject it, 429 after too many failures."""
        known = self.known(presented)
        if known is not None:
            return known.session
        digest, name = presented.digest, claimed_name(presented)
        # What was accepted before is no guess: its owner is not kept out by what others at the address do.
        is_guess = digest not in self._accepted
        task = self._verifying.get(digest)
        is_first = task is None
        if task is not None:
            if is_guess:
                self._failures.check(address, name, self._clock())
        else:
            task = await self._begin(presented, address, name, is_guess=is_guess)
        try:
            accepted = await asyncio.shield(task)
        except Rejected:
            if not is_first:
                self._failures.failed(address, name, self._clock())
            log.warning("a sign-in from %s by %s as %r was rejected", address, presented.method, name[:100])
            await asyncio.sleep(FAILURE_DELAY_S)
            why = WRONG_TOKEN if presented.method == BEARER else WRONG
            raise not_signed_in(why, self._settings.sign_in_methods) from None
        self._failures.succeeded(address, name)
        return accepted.session

    async def _begin(self, presented: Presented, address: str, name: str, *, is_guess: bool) -> asyncio.Task[Accepted]:
        """Have the brokers asked, once there cannot be too many failures even if all that are under way fail."""
        settings, digest = self._settings, presented.digest
        while True:
            task = self._verifying.get(digest)
            if task is not None:
                return task
            if not is_guess or self._failures.begin(address, name, self._clock()):
                break
            if self._waiting >= settings.sign_ins_max:
                raise too_busy(f"{settings.named('sign_ins_max')} sign-ins are under way")
            self._waiting += 1
            try:
                await self._one_ended.wait()
            finally:
                self._waiting -= 1
        if len(self._verifying) >= settings.sign_ins_max:
            if is_guess:
                self._failures.end(address, name)
            raise too_busy(f"{settings.named('sign_ins_max')} sign-ins are under way")
        task = asyncio.create_task(self._verified(presented, address), name="sign-in")
        self._verifying[digest] = task

        def done(task: asyncio.Task[Accepted]) -> None:
            del self._verifying[digest]
            # The clients that waited may have disconnected, which makes a wrong guess no better.
            if not task.cancelled() and isinstance(task.exception(), Rejected):
                self._failures.failed(address, name, self._clock())
            if is_guess:
                self._failures.end(address, name)
            self._one_ended.set()
            self._one_ended = asyncio.Event()

        task.add_done_callback(done)
        return task

    async def _verified(self, presented: Presented, address: str) -> Accepted:
        """Ask the brokers, and open or keep the session. Raises Rejected."""
        digest = presented.digest
        old = self._accepted.peek(digest)
        try:
            if presented.method == BASIC:
                accepted = await self._by_password(presented, old, address)
            elif presented.method == BEARER:
                accepted = await self._by_bearer(presented, address)
            else:
                accepted = await self._by_certificate(presented, old, address)
        except Rejected:
            self._accepted.pop(digest)
            if old is not None:
                self._close_session(old.session)
            raise
        size = ENTRY_BYTES + len(presented.name) + len(presented.secret)
        self._accepted.put(accepted.session.principal, digest, accepted, size)
        return accepted

    async def _by_password(self, presented: Presented, old: Accepted | None, address: str) -> Accepted:
        credentials = await self._brokers.by_password(presented.name, presented.secret, address)
        # Two passwords of one user, as while it is being changed, are two sessions: each signs in with its own.
        key = (BASIC, presented.digest.hex())
        if old is not None and old.credentials != credentials:
            self._close(key)
        # All tokens of a user count as that user.
        known = self._sessions.get(key)
        principal = known.principal if known is not None else await self._brokers.principal_of(credentials)
        session = self._session(key, principal, credentials, address)
        return Accepted(credentials, session, time.monotonic() + self._settings.sign_in_s)

    async def _by_bearer(self, presented: Presented, address: str) -> Accepted:
        claims = token_claims(presented.secret)
        if claims is None or (claims.expires_s and claims.expires_s <= time.time()):
            raise Rejected
        credentials = await self._brokers.by_token(claims.subject, presented.secret, address)
        key = (BEARER, claims.issuer, claims.subject)
        expires_s = claims.expires_s or time.time() + 3600
        held, held_until = self._bearers.get(key, ("", 0.0))
        is_newer = held != presented.secret and expires_s > held_until
        if is_newer:
            self._bearers[key] = (presented.secret, expires_s)
        is_open = key in self._sessions
        session = self._session(key, USER_PREFIX + claims.subject, credentials, address)
        if is_open and is_newer:
            await session.renew(credentials)
        left_s = max(0.0, expires_s - time.time())
        return Accepted(credentials, session, time.monotonic() + min(self._settings.sign_in_s, left_s), expires_s)

    async def _by_certificate(self, presented: Presented, old: Accepted | None, address: str) -> Accepted:
        key = (presented.method, presented.name)
        token = self._tokens.get(key)
        if token is not None and token.expires_s - TOKEN_MARGIN_S > time.time() and old is not None:
            try:
                await self._brokers.verify(token.credentials)
            except Rejected:
                token = None
        else:
            token = None
        if token is None:
            self._close(key)
            token = self._tokens[key] = await self._brokers.delegation_token(presented.name)
        session = self._session(key, presented.name, token.credentials, address)
        return Accepted(
            token.credentials, session, time.monotonic() + self._settings.sign_in_s, token.expires_s - TOKEN_MARGIN_S
        )

    def _session(self, key: Key, principal: str, credentials: Credentials, address: str) -> CallerSession:
        """The open session of a key, or a new one; 429 if there is no room for it."""
        found = self._sessions.get(key)
        if found is not None and not found.is_closed:
            return found
        self._make_room(address)
        session: CallerSession
        callbacks: dict[str, object] = {"throttle_cb": lambda event: session.throttled(event)}
        if key[0] == BEARER:
            callbacks["oauth_cb"] = lambda _: self._bearers.get(key, ("", 0.0))
        session = CallerSession(
            self._parts, caller_settings(self._settings, credentials, callbacks), principal, credentials
        )
        self._sessions[key] = session
        self._opened_from[key] = address
        return session

    def _make_room(self, address: str) -> None:
        """Close a session if there are too many: of the address that has opened the most of them.

        A user may have any number of passwords and delegation tokens, each with a session; so what counts is where a
        session was opened from. Sessions in use are closed only for an address that has fewer of them.
        """
        if len(self._sessions) < self._settings.callers_max:
            return
        counts = Counter(self._opened_from.values())
        counts[address] += 1
        most = max(counts.values())
        crowded = [key for key, opened_from in self._opened_from.items() if counts[opened_from] == most]
        idle = [key for key in crowded if not self._sessions[key].active]
        if not idle and counts[address] >= most - 1:
            raise too_busy(f"{self._settings.named('callers_max')} callers are being served")
        self._close(min(idle or crowded, key=lambda key: self._sessions[key].used_at))

    def _close_session(self, session: CallerSession) -> None:
        for key, found in self._sessions.items():
            if found is session:
                self._close(key)
                return

    def _close(self, key: Key) -> None:
        session = self._sessions.pop(key, None)
        self._opened_from.pop(key, None)
        if session is not None:
            session.end()
            self._later(session.stop())
        token = self._tokens.pop(key, None)
        if token is not None:
            self._later(self._brokers.forget(token))
        self._bearers.pop(key, None)

    def _later(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(work, name="close a caller")
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            for key, session in list(self._sessions.items()):
                if not session.active and now - session.used_at > self._settings.caller_idle_s:
                    self._close(key)
            for digest in list(self._accepted):
                accepted = self._accepted.peek(digest)
                if accepted is not None and accepted.session.is_closed:
                    self._accepted.pop(digest)
            streaming = {id(session): session for session in self._sessions.values() if session.active}
            for session in streaming.values():
                await self._verify_again(session)

    async def _verify_again(self, session: CallerSession) -> None:
        """End a session that is in use and whose credentials have expired or are rejected."""
        ways = [each for each in self._accepted.values() if each.session is session]
        if any(each.is_valid() for each in ways):
            return
        for each in sorted(ways, key=lambda way: way.expires_s, reverse=True):
            if each.expires_s and each.expires_s <= time.time():
                continue
            try:
                await self._brokers.verify(each.credentials)
            except Rejected:
                continue
            except Problem:
                # No broker answers; nor does one to the caller.
                return
            each.valid_until = time.monotonic() + self._settings.sign_in_s
            return
        self._close_session(session)
