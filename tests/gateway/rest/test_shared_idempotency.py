"""Idempotency-Keys across gateways: whichever one a retry reaches, its record is published once."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator

import httpx
import pytest

from penstock.gateway.kafka import shared_idempotency
from penstock.gateway.kafka.broker_requests import BrokerWire
from penstock.gateway.kafka.delivery import Delivered
from penstock.gateway.kafka.idempotency_claims import ClaimLog, Note, decode
from penstock.gateway.kafka.idempotency_log import KeyLog
from penstock.gateway.kafka.shared_idempotency import SharedKeys
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.web.problem import Problem
from penstock.testing import Cluster
from support.gateway_process import GatewayProcess

KEY = b"publish orders\0key"


def test_the_first_claim_counts_and_its_answer_stays() -> None:
    ledger = ClaimLog(10)
    for note in (
        Note("claim", "first", "f"),
        Note("claim", "second", "f"),
        Note("answer", "second", answer=["wrong"]),
        Note("release", "second"),
        Note("answer", "first", answer=["right"]),
        Note("answer", "first", answer=["later"]),
        Note("release", "first"),
    ):
        ledger.apply(KEY, note, 5)
    holding = ledger.holding(KEY)
    assert holding is not None
    assert (holding.claim, holding.answer) == ("first", ["right"])


def test_a_released_key_is_free_again() -> None:
    changed: list[bytes] = []
    ledger = ClaimLog(10, changed.append)
    ledger.apply(KEY, Note("claim", "first", "f"), 5)
    ledger.apply(KEY, Note("release", "first"), 5)
    assert ledger.holding(KEY) is None
    ledger.apply(KEY, Note("claim", "second", "f"), 5)
    holding = ledger.holding(KEY)
    assert holding is not None
    assert holding.claim == "second"
    assert changed == [KEY] * 3


def test_old_keys_and_too_many_are_forgotten() -> None:
    ledger = ClaimLog(2)
    for number in range(3):
        ledger.apply(b"%d" % number, Note("claim", "c", "f"), number)
    assert [ledger.holding(b"%d" % number) is not None for number in range(3)] == [False, True, True]
    ledger.forget_before(2)
    assert ledger.holding(b"1") is None


@pytest.mark.parametrize(
    "value",
    [None, b"", b"{}", b"[]", b'["steal", "c", "f", null]', b'["claim", 1, "f", null]', b'["answer", "c", "f", []]'],
)
def test_invalid_records_are_ignored(value: bytes | None) -> None:
    assert decode(value) is None
    written = Note("answer", "c", "f", ["t", 0, 1, 2])
    assert decode(written.encode()) == written


class FakeLog:
    """A log in memory that all gateways read at once."""

    def __init__(self) -> None:
        self.readers: list[SharedKeys] = []
        self.now_ms = 1_000_000

    async def append(self, key: bytes, value: bytes) -> None:
        await asyncio.sleep(0)
        for reader in self.readers:
            reader._take(key, value, self.now_ms)
        await asyncio.sleep(0)

    async def stop(self) -> None:
        pass

    def gateway(self) -> SharedKeys:
        settings = GatewaySettings("127.0.0.1:1", publish_timeout_ms=0)
        made = SharedKeys(settings, BrokerWire(settings))

        async def started() -> KeyLog:
            return self  # type: ignore[return-value]

        made._starting = asyncio.ensure_future(started())
        self.readers.append(made)
        return made


class Publishing:
    """Counts publishes; fails on request."""

    def __init__(self, problem: Problem | None = None) -> None:
        self.count = 0
        self.problem = problem

    async def __call__(self) -> Delivered:
        await asyncio.sleep(0.01)
        if self.problem is not None:
            raise self.problem
        self.count += 1
        return Delivered("orders", 0, self.count, 7)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_idempotency, "GRACE_MS", 1 << 50)


@pytest.mark.usefixtures("patient")
def test_one_of_many_concurrent_gateways_publishes() -> None:
    async def scenario() -> None:
        shared, publishing = FakeLog(), Publishing()
        gateways = [shared.gateway() for _ in range(5)]
        answers = await asyncio.gather(*(each.once(KEY, "f", publishing) for each in gateways))
        assert publishing.count == 1
        assert {answer for answer, _ in answers} == {Delivered("orders", 0, 1, 7)}
        assert sorted(again for _, again in answers) == [False, True, True, True, True]
        with pytest.raises(Problem) as other:
            await gateways[3].once(KEY, "another request", publishing)
        assert other.value.status == 422

    asyncio.run(scenario())


@pytest.mark.usefixtures("patient")
def test_key_may_be_claimed_by_another_gateway_after_a_rejection() -> None:
    async def scenario() -> None:
        shared = FakeLog()
        first, second = shared.gateway(), shared.gateway()
        with pytest.raises(Problem, match="too large"):
            await first.once(KEY, "f", Publishing(Problem(41301, "too large")))
        publishing = Publishing()
        assert await second.once(KEY, "f", publishing) == (Delivered("orders", 0, 1, 7), False)

    asyncio.run(scenario())


def test_a_key_with_an_unknown_outcome_is_not_published_again() -> None:
    async def scenario() -> None:
        shared, publishing = FakeLog(), Publishing()
        first, second = shared.gateway(), shared.gateway()
        with pytest.raises(Problem, match="timed out"):
            await first.once(KEY, "f", Publishing(Problem(50301, "timed out")))
        for gateway in (first, second):
            with pytest.raises(Problem) as refused:
                await gateway.once(KEY, "f", publishing)
            assert (refused.value.status, refused.value.code) == (409, 40904)
        assert publishing.count == 0

    asyncio.run(scenario())


@pytest.fixture(scope="module")
def other(penstock_cluster: Cluster) -> Iterator[GatewayProcess]:
    with GatewayProcess(penstock_cluster.bootstrap_servers) as process:
        yield process


def test_a_retry_that_reaches_another_gateway(
    gateway: GatewayProcess, other: GatewayProcess, penstock_cluster: Cluster
) -> None:
    topic = penstock_cluster.create_topic(partitions=3)
    path, body, headers = f"/topics/{topic}/publish", {"value": "once"}, {"Idempotency-Key": uuid.uuid4().hex}
    first = httpx.post(gateway.rest + path, json=body, headers=headers, timeout=40)
    again = httpx.post(other.rest + path, json=body, headers=headers, timeout=40)
    assert (first.status_code, again.status_code) == (200, 200), again.text
    assert first.json() == again.json()
    assert "Idempotent-Replayed" not in first.headers
    assert again.headers["Idempotent-Replayed"] == "true"
    changed = httpx.post(other.rest + path, json={"value": "twice"}, headers=headers, timeout=40)
    assert changed.status_code == 422


def test_both_gateways_at_once(gateway: GatewayProcess, other: GatewayProcess, penstock_cluster: Cluster) -> None:
    topic = penstock_cluster.create_topic(partitions=1)

    async def scenario() -> list[int]:
        async with httpx.AsyncClient(timeout=40) as client:
            calls = [
                client.post(
                    f"{each.rest}/api/v1/topics/{topic}/messages",
                    content=b"x",
                    headers={"Idempotency-Key": f"{topic}-{number}"},
                )
                for number in range(20)
                for each in (gateway, other)
            ]
            answers = await asyncio.gather(*calls)
        assert {answer.status_code for answer in answers} == {200}
        return [answer.json()["offset"] for answer in answers]

    offsets = asyncio.run(scenario())
    assert sorted(set(offsets)) == list(range(20))
    assert all(offsets[number] == offsets[number + 1] for number in range(0, 40, 2))
