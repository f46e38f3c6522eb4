"""Requests over a gateway's limits, and their errors; requests with an Idempotency-Key."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import httpx
import pytest
from starlette.responses import Response

from penstock.gateway.kafka.idempotency import IdempotencyKeys
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.web.application import Application, json_response
from penstock.gateway.web.limits import Limits
from penstock.gateway.web.operations import Body, Call, Operation
from penstock.gateway.web.problem import Problem
from penstock.gateway.web.quotas import CallerQuota, caller_at


def application(operations: Iterable[Operation[object]], **limits: int) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(Application(operations, limits=Limits(**limits)).bind(None).serve)
    return httpx.AsyncClient(transport=transport, base_url="http://gateway")


async def echo(_: object, call: Call) -> Response:
    return json_response(len(call.raw))


def test_too_many_requests_get_429() -> None:
    release = asyncio.Event()

    async def wait(_: object, call: Call) -> Response:
        del call
        await release.wait()
        return json_response("done")

    async def scenario() -> None:
        async with application([Operation("GET", "/wait", wait, "Wait.", "x")], requests_max=2) as client:
            first = [asyncio.create_task(client.get("/wait")) for _ in range(2)]
            await asyncio.sleep(0.05)
            refused = await client.get("/wait")
            assert refused.status_code == 429
            assert refused.headers["retry-after"] == "1"
            assert refused.json()["error_code"] == 42901
            release.set()
            assert [answer.status_code for answer in await asyncio.gather(*first)] == [200, 200]
            assert (await client.get("/wait")).status_code == 200

    asyncio.run(scenario())


def test_one_caller_gets_a_share_of_the_requests() -> None:
    release = asyncio.Event()

    async def wait(_: object, call: Call) -> Response:
        del call
        await release.wait()
        return json_response("done")

    async def scenario() -> None:
        served = Application(
            [Operation("GET", "/wait", wait, "Wait.", "x")], limits=Limits(requests_max=3, requests_per_caller_max=2)
        )

        def client_at(address: str) -> httpx.AsyncClient:
            transport = httpx.ASGITransport(served.bind(None).serve, client=(address, 1))
            return httpx.AsyncClient(transport=transport, base_url="http://gateway")

        async with client_at("10.0.0.1") as greedy, client_at("10.0.0.2") as other:
            waiting = [asyncio.create_task(greedy.get("/wait")) for _ in range(2)]
            while served.under_way.count < 2:  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(0)
            refused = await asyncio.wait_for(greedy.get("/wait"), 10)
            assert (refused.status_code, refused.json()["error_code"]) == (429, 42902)
            assert "requests_per_caller_max" in refused.text
            waiting.append(asyncio.create_task(other.get("/wait")))
            while served.under_way.count < 3:  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(0)
            release.set()
            assert [answer.status_code for answer in await asyncio.gather(*waiting)] == [200] * 3
            assert (await greedy.get("/wait")).status_code == 200

    asyncio.run(scenario())


def test_a_request_counts_once_it_has_arrived_completely() -> None:
    release, finish = asyncio.Event(), asyncio.Event()

    async def body() -> object:
        yield b"half of it"
        await finish.wait()

    async def status(_: object, call: Call) -> Response:
        del call
        return json_response("fine")

    async def wait(_: object, call: Call) -> Response:
        await release.wait()
        return await echo(None, call)

    operations = [
        Operation("POST", "/echo", echo, "Count.", "x", (), Body(None, ("*/*",))),
        Operation("GET", "/wait", wait, "Wait.", "x"),
        Operation("GET", "/status", status, "Say so.", "x", always_served=True),
    ]

    async def scenario() -> None:
        async with application(operations, requests_max=2) as client:
            slow = [asyncio.create_task(client.post("/echo", content=body())) for _ in range(5)]  # type: ignore[arg-type]
            await asyncio.sleep(0.05)
            quick = [asyncio.create_task(client.get("/wait")) for _ in range(3)]
            await asyncio.sleep(0.05)
            assert (await client.get("/status")).status_code == 200
            release.set()
            assert sorted([answer.status_code for answer in await asyncio.gather(*quick)]) == [200, 200, 429]
            finish.set()
            assert [answer.json() for answer in await asyncio.gather(*slow)] == [10] * 5

    asyncio.run(scenario())


def test_a_request_counts_while_its_body_is_read() -> None:
    """BodyReader may be read by workers, for which requests wait; those that wait count."""
    reading, release = asyncio.Event(), asyncio.Event()

    async def read_json(raw: bytes, body: Body, status: int) -> str:
        del raw, body, status
        reading.set()
        await release.wait()
        return "read"

    async def tell(_: object, call: Call) -> Response:
        return json_response(call.body)

    operation = Operation("POST", "/tell", tell, "Tell.", "x", (), Body({"type": "object"}))

    async def scenario() -> None:
        served = Application([operation], limits=Limits(requests_max=1), read_json=read_json)
        transport = httpx.ASGITransport(served.bind(None).serve)
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
            first = asyncio.create_task(client.post("/tell", json={}))
            await reading.wait()
            refused = await client.post("/tell", json={})
            assert refused.status_code == 429
            assert "the limit requests_max" in refused.json()["message"]
            release.set()
            assert (await first).json() == "read"
            assert (await client.post("/tell", json={})).json() == "read"

    asyncio.run(scenario())


def test_large_bodies_share_a_memory_limit() -> None:
    release = asyncio.Event()

    async def keep(_: object, call: Call) -> Response:
        if len(call.raw) > 100_000:
            await release.wait()
        return await echo(None, call)

    operation = Operation("POST", "/keep", keep, "Keep.", "x", (), Body(None, ("*/*",)))

    async def scenario() -> None:
        async with application([operation], large_bodies_bytes_max=200_000) as client:
            first = asyncio.create_task(client.post("/keep", content=b"x" * 200_000))
            await asyncio.sleep(0.05)
            assert (await client.post("/keep", content=b"x" * 200_000)).status_code == 429
            assert (await client.post("/keep", content=b"x" * 60_000)).status_code == 200
            release.set()
            assert (await first).status_code == 200
            assert (await client.post("/keep", content=b"x" * 200_000)).status_code == 200

    asyncio.run(scenario())


def test_a_caller_gets_a_share_of_a_quota() -> None:
    shares = CallerQuota("tails", GatewaySettings("", tails_max=5, tails_per_caller_max=3), "tails", {"proxy"})
    for _ in range(3):
        shares.take("one")
    with pytest.raises(Problem, match="3 tails are in use by one") as refused:
        shares.take("one")
    assert "--limit tails_per_caller_max" in refused.value.fix
    shares.take("other", 2)
    with pytest.raises(Problem, match=r"5 tails are in use \(the limit tails_max\)"):
        shares.take("proxy")
    shares.release("one", 3)
    shares.take("one")
    shares.take("proxy")
    assert shares.taken == 4


@pytest.mark.parametrize(
    ("address", "caller"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("fe80::1%eth0", "fe80::"),
        ("somewhere", "somewhere"),
    ],
)
def test_callers_are_addresses_or_networks(address: str, caller: str) -> None:
    assert caller_at(address) == caller


def test_bodies_that_are_too_long_are_refused() -> None:
    async def parts() -> object:
        for _ in range(5):
            yield b"x" * 40

    async def scenario() -> None:
        operation = Operation("POST", "/echo", echo, "Count.", "x", (), Body(None, ("*/*",)))
        async with application([operation], body_bytes_max=100) as client:
            assert (await client.post("/echo", content=b"x" * 100)).json() == 100
            assert (await client.post("/echo", content=b"x" * 101)).status_code == 413
            unannounced = await client.post("/echo", content=parts())  # type: ignore[arg-type]
            assert unannounced.status_code == 413

    asyncio.run(scenario())


def test_bug_returns_500_without_details() -> None:
    async def broken(_: object, call: Call) -> Response:
        raise ValueError(call["x"] if "x" in call.parameters else "a secret")

    async def scenario() -> None:
        async with application([Operation("GET", "/broken", broken, "Break.", "x")]) as client:
            answer = await client.get("/broken")
            assert answer.status_code == 500
            assert "secret" not in answer.text
            assert answer.json()["message"]

    asyncio.run(scenario())


class Counter:
    def __init__(self) -> None:
        self.count = 0

    async def __call__(self) -> int:
        self.count += 1
        await asyncio.sleep(0.01)
        return self.count


def test_concurrent_requests_with_one_key_are_executed_once() -> None:
    async def scenario() -> None:
        keys: IdempotencyKeys[int] = IdempotencyKeys(10, 60)
        work = Counter()
        answers = await asyncio.gather(*(keys.once("t", "key", b"body", work) for _ in range(5)))
        assert {answer for answer, _ in answers} == {1}
        assert sum(again for _, again in answers) == 4
        assert await keys.once("other", "key", b"body", work) == (2, False)
        with pytest.raises(Problem, match="different request"):
            await keys.once("t", "key", b"another body", work)

    asyncio.run(scenario())


def test_failed_request_may_be_retried_with_the_same_key() -> None:
    async def scenario() -> None:
        keys: IdempotencyKeys[int] = IdempotencyKeys(10, 60)

        async def fail() -> int:
            raise Problem(50301, "not now")

        with pytest.raises(Problem, match="not now"):
            await keys.once("t", "key", b"body", fail)
        assert await keys.once("t", "key", b"body", Counter()) == (1, False)

    asyncio.run(scenario())


def test_the_number_of_cached_keys_is_limited() -> None:
    async def scenario() -> None:
        keys: IdempotencyKeys[int] = IdempotencyKeys(3, 60)
        work = Counter()
        for number in range(4):
            await keys.once("t", f"key-{number}", b"body", work)
        assert (await keys.once("t", "key-3", b"body", work))[1]
        assert not (await keys.once("t", "key-0", b"body", work))[1]

    asyncio.run(scenario())
