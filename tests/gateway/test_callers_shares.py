"""One caller's share of a gateway's sign-ins, sessions and caches; without brokers."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.types import Message, Scope

from penstock.client.settings import OAUTHBEARER, Credentials
from penstock.gateway.callers import authentication
from penstock.gateway.callers import callers as callers_module
from penstock.gateway.callers.authentication import EXPIRED, PortApp, SignInAuthenticator
from penstock.gateway.callers.broker_sign_in import BrokerSignIn, Rejected
from penstock.gateway.callers.callers import Callers, claimed_name
from penstock.gateway.callers.console_sessions import ConsoleSessions
from penstock.gateway.callers.credentials import BASIC, BEARER, METHODS, NAME_LENGTH_MAX, Presented
from penstock.gateway.callers.failed_sign_ins import WINDOW_S, FailedSignIns
from penstock.gateway.callers.rates import CallerRates
from penstock.gateway.kafka.idempotency import IdempotencyKeys
from penstock.gateway.kafka.idempotency_claims import ClaimLog, Note
from penstock.gateway.kafka.reader import WAITING_PER_READER_MAX, Readers, ReaderThreads
from penstock.gateway.metrics import GatewayMetrics
from penstock.gateway.rest.v2.media import accepted_format
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.web.access import KNOWN_HOST_BYTES_MAX, Access
from penstock.gateway.web.application import plain_error
from penstock.gateway.web.problem import Problem

HERE, THERE = "10.0.0.1", "10.0.0.2"


def token(subject: str, expires_s: float, number: int = 0) -> Presented:
    claims = json.dumps({"sub": subject, "iss": "idp", "exp": expires_s, "n": number})
    body = base64.urlsafe_b64encode(claims.encode()).rstrip(b"=").decode()
    return Presented(BEARER, "", f"e30.{body}.AAAA")


class Brokers:
    """Accepts the password `right`, and any token; answers when `is_open`."""

    def __init__(self) -> None:
        self.passwords: list[str] = []
        self.is_open = asyncio.Event()
        self.is_open.set()

    async def by_password(self, user: str, password: str, address: str) -> Credentials:
        del address
        self.passwords.append(password)
        await self.is_open.wait()
        if password != "right":
            raise Rejected
        return Credentials("PLAIN", user, password)

    async def principal_of(self, credentials: Credentials) -> str:
        owner, is_token, _ = credentials.username.partition("'s token")
        return f"User:{owner if is_token else credentials.username}"

    async def by_token(self, name: str, token: str, address: str) -> Credentials:
        del address
        return Credentials(OAUTHBEARER, name, token)

    async def verify(self, credentials: Credentials) -> None:
        """All are still valid."""

    async def stop(self) -> None:
        """Nothing to stop."""


def with_callers(scenario: Callable[[Callers, Brokers], Coroutine[Any, Any, None]], **settings: Any) -> None:
    async def run() -> None:
        brokers: Any = Brokers()
        own = GatewaySettings("127.0.0.1:1", sign_in_methods=METHODS, **settings)
        parts: Any = SimpleNamespace(settings=own)
        callers = Callers(parts, brokers)
        await scenario(callers, brokers)
        await callers.stop()

    asyncio.run(run())


@pytest.fixture(autouse=True)
def _answer_failures_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callers_module, "FAILURE_DELAY_S", 0)


def user(name: str, password: str = "right") -> Presented:
    return Presented(BASIC, name, password)


def test_all_delegation_tokens_of_a_user_are_one_caller() -> None:
    async def scenario(callers: Callers, brokers: Brokers) -> None:
        del brokers
        sessions = [await callers.sign_in(Presented(BASIC, f"alice's token {n}", "right"), HERE) for n in range(3)]
        sessions.append(await callers.sign_in(Presented(BASIC, "alice", "right"), HERE))
        assert len({id(session) for session in sessions}) == 4
        assert {session.principal for session in sessions} == {"User:alice"}
        assert (await callers.sign_in(Presented(BASIC, "bob", "right"), HERE)).principal == "User:bob"

    with_callers(scenario)


def test_sign_ins_in_progress_count_as_failures() -> None:
    failures = FailedSignIns(per_user_max=3, per_address_max=5)
    assert [failures.begin(HERE, "alice", 0) for _ in range(4)] == [True, True, True, False]
    assert [failures.begin(HERE, "bob", 0) for _ in range(3)] == [True, True, False]
    assert failures.begin(THERE, "alice", 0)
    failures.failed(HERE, "alice", 0)
    failures.end(HERE, "alice")
    assert not failures.begin(HERE, "carol", 0)
    # One that succeeded makes room.
    failures.end(HERE, "alice")
    assert failures.begin(HERE, "carol", 0)
    for name in ("alice", "bob", "bob", "carol"):
        failures.failed(HERE, name, 0)
        failures.end(HERE, name)
    with pytest.raises(Problem):
        failures.begin(HERE, "dave", 1)
    assert failures.begin(HERE, "dave", WINDOW_S + 1)


def test_parallel_guesses_are_limited_like_those_that_come_one_by_one() -> None:
    async def scenario(callers: Callers, brokers: Brokers) -> None:
        brokers.is_open.clear()
        guesses = [asyncio.create_task(callers.sign_in(user("alice", f"{n}"), HERE)) for n in range(60)]
        await asyncio.sleep(0)
        # Other callers are not delayed meanwhile.
        other = asyncio.create_task(callers.sign_in(user("bob"), THERE))
        await asyncio.sleep(0)
        brokers.is_open.set()
        assert (await other).principal == "User:bob"
        refused = await asyncio.gather(*guesses, return_exceptions=True)
        assert len([each for each in brokers.passwords if each != "right"]) == 5
        assert {each.status for each in refused if isinstance(each, Problem)} == {401, 429}

    with_callers(scenario)


def test_guesses_count_even_if_the_client_disconnects() -> None:
    async def scenario(callers: Callers, brokers: Brokers) -> None:
        for number in range(5):
            brokers.is_open.clear()
            guess = asyncio.create_task(callers.sign_in(user("alice", f"{number}"), HERE))
            while len(brokers.passwords) <= number:  # noqa: ASYNC110 - it takes a few turns of the loop.
                await asyncio.sleep(0)
            guess.cancel()
            brokers.is_open.set()
            while callers._verifying:  # noqa: ASYNC110
                await asyncio.sleep(0)
        with pytest.raises(Problem, match="have failed 5 times"):
            await callers.sign_in(user("alice", "right"), HERE)

    with_callers(scenario)


def test_concurrent_sign_ins_wait_for_each_other() -> None:
    async def scenario(callers: Callers, brokers: Brokers) -> None:
        del brokers
        found = await asyncio.gather(*(callers.sign_in(user(f"user-{n}"), HERE) for n in range(60)))
        assert len({session.principal for session in found}) == 60

    with_callers(scenario, failed_sign_ins_per_address_max=3)


def test_address_with_many_sessions_evicts_its_own() -> None:
    async def scenario(callers: Callers, brokers: Brokers) -> None:
        del brokers
        alice = await callers.sign_in(user("alice"), HERE)
        for number in range(50):
            await callers.sign_in(user(f"token-{number}"), THERE)
        assert not alice.is_closed
        assert len(callers) == 10
        for session in callers.sessions:
            session.active = 1
        # All are in use: an address that has many gets no more, another one does.
        with pytest.raises(Problem, match="callers_max"):
            await callers.sign_in(user("token-x"), THERE)
        bob = await callers.sign_in(user("bob"), "10.0.0.3")
        assert not bob.is_closed
        assert not alice.is_closed

    with_callers(scenario, callers_max=10)


def test_accepted_credentials_are_cached_per_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callers_module, "KNOWN_MAX", 10)

    async def scenario(callers: Callers, brokers: Brokers) -> None:
        del brokers
        await callers.sign_in(user("alice"), HERE)
        for number in range(100):
            await callers.sign_in(token("mallory", time.time() + 600, number), THERE)
        assert callers.known(user("alice")) is not None

    with_callers(scenario)


def test_claimed_names_are_limited() -> None:
    assert len(claimed_name(token("x" * 10_000, 1))) == NAME_LENGTH_MAX


def test_repeated_console_sign_ins_evict_only_own_sessions() -> None:
    sessions = ConsoleSessions(10, 60, 60)
    alice, _ = sessions.create(user("alice"), "User:alice", 0)
    # Each delegation token is another name to sign in with.
    names = [sessions.create(user(f"token-{number}"), "User:mallory", 0)[0] for number in range(1_000)]
    assert sessions.find(alice, 1) is not None
    assert sum(sessions.find(name, 1) is not None for name in names) == 9


def test_reads_of_one_caller_leave_turns_to_others() -> None:
    async def scenario() -> None:
        settings = GatewaySettings("127.0.0.1:1", readers_max=2)
        shared = ReaderThreads(settings)
        served: list[str] = []
        release = asyncio.Event()

        async def read(caller: str) -> None:
            async with Readers(settings, shared, None)._turn(caller, 0):
                served.append(caller)
                await release.wait()

        flood = [asyncio.create_task(read("mallory")) for _ in range(2 + 2 * WAITING_PER_READER_MAX)]
        await asyncio.sleep(0)
        with pytest.raises(Problem) as refused:
            await read("mallory")
        assert refused.value.status == 429
        others = [asyncio.create_task(read("alice")) for _ in range(3)]
        await asyncio.sleep(0)
        release.set()
        await asyncio.gather(*flood, *others)
        assert [index for index, caller in enumerate(served) if caller == "alice"] == [3, 5, 7]
        await shared.stop()

    asyncio.run(scenario())


def test_many_idempotency_keys_of_one_caller_leave_those_of_others() -> None:
    async def scenario() -> None:
        keys: IdempotencyKeys[int] = IdempotencyKeys(10, 60)

        async def publish() -> int:
            return 1

        await keys.of("User:alice").once("t", "key", b"body", publish)
        for number in range(100):
            await keys.of("User:mallory").once("t", f"{number}", b"body", publish)
        assert await keys.of("User:alice").once("t", "key", b"body", publish) == (1, True)
        assert len(keys._known) == 10
        # Long keys count for more.
        for number in range(100):
            await keys.of("User:mallory").once("t" * 5_000, f"{number}", b"body", publish)
        assert await keys.of("User:alice").once("t", "key", b"body", publish) == (1, True)
        assert len(keys._known) <= 2

    asyncio.run(scenario())


def test_claims_of_one_caller_leave_those_of_others() -> None:
    ledger = ClaimLog(10)
    ledger.apply(b"User:alice\0t\0key", Note("claim", "c", "f"), 1)
    for number in range(100):
        ledger.apply(b"User:mallory\0t\0%d" % number, Note("claim", "c", "f"), 2)
    assert ledger.holding(b"User:alice\0t\0key") is not None
    assert ledger.holding(b"User:mallory\0t\0" + b"99") is not None


def test_checks_of_readiness_share_one_request_to_the_brokers() -> None:
    class Admin:
        requests = 0

        async def names(self) -> list[str]:
            self.requests += 1
            await asyncio.sleep(0)
            return []

    async def scenario() -> None:
        admin: Any = Admin()
        details: Any = None
        metrics = GatewayMetrics("cluster", admin, details)
        found = await asyncio.gather(*(metrics._ready({}) for _ in range(50)))
        assert {status for status, _, _ in found} == {200}
        assert admin.requests == 1
        await metrics._ready({})
        assert admin.requests == 2

    asyncio.run(scenario())


def test_queries_for_metrics_have_few_fields() -> None:
    async def scenario() -> None:
        unused: Any = None
        metrics = GatewayMetrics("cluster", unused, unused)
        scope = {"path": "/metrics", "headers": [], "query_string": b"a=b&" * 1_000}
        status, _, body = await metrics._metrics(scope)
        assert (status, body) == (400, b"the query has more than 32 fields\n")
        status, _, body = await metrics._metrics({**scope, "query_string": b"a=b&" * 30})
        assert status == 200

    asyncio.run(scenario())


def test_few_of_the_accepted_types_are_looked_at() -> None:
    def wanted(count: int) -> Any:
        return SimpleNamespace(headers={"accept": "x," * count + "application/vnd.kafka.avro.v2+json"})

    assert accepted_format(wanted(10), "binary") == "avro"
    with pytest.raises(Problem, match="cannot be returned"):
        accepted_format(wanted(1_000), "binary")


def test_long_host_names_are_not_cached() -> None:
    access = Access()
    assert access.knows(b"x" * KNOWN_HOST_BYTES_MAX + b".localhost")
    assert access.knows(b"x.localhost")
    assert access._known == {b"x.localhost"}


def test_broker_sign_ins_take_turns_by_address(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        own: Any = None
        brokers = BrokerSignIn(GatewaySettings("127.0.0.1:1"), own)
        tried: list[str] = []
        monkeypatch.setattr(brokers, "_try", lambda credentials: tried.append(credentials.username))
        work = [brokers.by_password(f"flood-{n}", "x", HERE) for n in range(200)]
        flood = asyncio.gather(*work)
        await asyncio.sleep(0)
        await brokers.by_password("alice", "x", THERE)
        assert tried.index("alice") < 50
        await flood
        await brokers.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("kind", ["websocket", "stream", "poll"])
def test_streams_are_closed_when_their_token_expires(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(callers: Callers, brokers: Brokers) -> None:
        del brokers
        sent: list[Message] = []

        async def send(message: Message) -> None:
            sent.append(message)

        async def receive() -> Message:
            await asyncio.Event().wait()
            raise AssertionError

        async def serve(_services: object, _: Scope, receive: Any, send: Any) -> None:
            if kind == "websocket":
                await send({"type": "websocket.accept"})
            elif kind == "stream":
                await send({"type": "http.response.start", "status": 200, "headers": []})
                await send({"type": "http.response.body", "body": b"a", "more_body": True})
            await receive()

        async def no_services(_: object) -> None:
            return None

        expires_s = time.time() + 600
        first, newer = token("alice", expires_s), token("alice", expires_s + 600)
        monkeypatch.setattr(authentication, "time", SimpleNamespace(time=lambda: expires_s, monotonic=time.monotonic))
        scope: Scope = {
            "type": "websocket" if kind == "websocket" else "http",
            "scheme": "ws",
            "method": "GET",
            "path": "/x",
            "client": (HERE, 1),
            "headers": [(b"authorization", b"Bearer " + first.secret.encode())],
        }
        # Another token of the same user keeps the session, but not the first token's streams.
        session = await callers.sign_in(newer, HERE)
        signing_in = SignInAuthenticator(callers, ConsoleSessions(1, 1, 1), METHODS)
        application: Any = SimpleNamespace(serve=serve)
        port_app = PortApp(signing_in, application, no_services, None, CallerRates(0, 0), plain_error)
        await asyncio.wait_for(port_app(scope, receive, send), 30)
        assert not session.is_closed
        last = sent[-1]
        if kind == "websocket":
            assert (last["type"], last["reason"]) == ("websocket.close", EXPIRED)
        elif kind == "stream":
            assert last == {"type": "http.response.body", "body": b""}
        else:
            assert sent[0]["status"] == 401

    with_callers(scenario)
