"""Requests and replies, in memory and on a broker."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable

import pytest

import penstock
from penstock import App, Record
from penstock.client import TimedOut
from penstock.testing import AppHarness

Open = Callable[[App], AppHarness]


@dataclasses.dataclass
class Question:
    item: str
    amount: int = 1


@dataclasses.dataclass
class Price:
    item: str
    total: float


def shop(name: str) -> App:
    app = App(name)

    @app.subscribe(f"questions-{name}", reply=True, retries=0)
    async def price(question: Question) -> Price | None:
        if question.item == "poison":
            raise ValueError("this has no price")
        return Price(question.item, question.amount * 2.5) if question.item != "nothing" else None

    @app.subscribe(f"baskets-{name}", publish=f"bills-{name}", concurrency=4)
    async def bill(record: Record[str]) -> Price:
        return await app.request(f"questions-{name}", record.key, Question(record.value, 2), returns=Price)

    return app


def test_every_request_gets_its_own_reply(opened: Open, name: str) -> None:
    app = shop(name)
    with opened(app) as harness:
        assert harness.request(f"questions-{name}", "a", Question("tea"), returns=Price) == Price("tea", 2.5)
        assert harness.request(f"questions-{name}", "a", Question("milk", 2)) == b'{"item":"milk","total":5.0}'
        assert harness.request(f"questions-{name}", "a", Question("nothing"), returns=Price) is None
        for number in range(20):
            harness.send(f"baskets-{name}", f"customer {number}", f"item {number}")
        harness.run()
        bills = harness.records(f"bills-{name}", Price)
    assert {(record.key, record.value.item, record.value.total) for record in bills} == {
        (f"customer {number}", f"item {number}", 5.0) for number in range(20)
    }


def test_request_without_reply_times_out(opened: Open, name: str) -> None:
    app = shop(name)
    with opened(app) as harness:
        harness.request(f"questions-{name}", "a", Question("tea"))
        with pytest.raises(TimedOut, match=f"no reply to a request to questions-{name} came within 0.5 s"):
            harness.request(f"questions-{name}", "a", Question("poison"), timeout_s=0.5)
        harness.run()
        assert len(harness.dead_letters(f"questions-{name}")) == 1
        assert harness.request(f"questions-{name}", "a", Question("tea"), returns=Price) == Price("tea", 2.5)


def test_program_without_worker_makes_requests(servers: str, name: str) -> None:
    """Two of the same name, each with replies of its own, while a worker runs elsewhere."""

    async def ask(item: str) -> Price:
        app = App(f"web-{name}", servers)
        async with app.living():
            return await app.request(f"questions-{name}", item, Question(item), returns=Price)

    async def ask_both() -> list[Price]:
        return await asyncio.gather(ask("tea"), ask("milk"))

    with AppHarness(shop(name), servers):
        assert asyncio.run(ask_both()) == [Price("tea", 2.5), Price("milk", 2.5)]
    with penstock.Admin(servers) as admin:
        assert admin.describe_topic(f"web-{name}.replies").partition_count == 1
