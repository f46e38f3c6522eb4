"""What applications may rely on: the same tests in memory and on a broker."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any

import pytest

import penstock
from penstock import App, Context, Depends, Message, Record
from penstock.gateway.kafka.dead_letter_headers import origin_of
from penstock.testing import AppHarness, memory


@dataclasses.dataclass
class Order:
    item: str
    amount: int = 1


@dataclasses.dataclass
class Invoice:
    item: str
    total: int


Open = Callable[[App], AppHarness]


def orders(name: str) -> str:
    return f"orders-{name}"


def test_values_by_type_and_results_by_key(opened: Open, name: str) -> None:
    app = App(name)

    @app.subscribe(orders(name), publish=f"invoices-{name}")
    def bill(order: Order) -> Invoice:
        return Invoice(order.item, order.amount * 3)

    with opened(app) as harness:
        for number in range(6):
            harness.send(orders(name), f"customer-{number % 2}", Order("tea", number))
        harness.run()
        invoices = harness.records(f"invoices-{name}", Invoice)
    by_key: dict[str | None, list[int]] = {}
    for record in invoices:
        by_key.setdefault(record.key, []).append(record.value.total)
    assert by_key == {"customer-0": [0, 6, 12], "customer-1": [3, 9, 15]}


def test_poison_pill_is_retried_and_dead_lettered_while_others_are_processed(opened: Open, name: str) -> None:
    app = App(name)
    tries: list[str] = []

    @app.subscribe(orders(name), retries=2, backoff="exponential", delay_s=10)
    async def bill(order: Order) -> None:
        tries.append(order.item)
        if order.item == "poison":
            raise ValueError("this cannot be billed")

    with opened(app) as harness:
        for item in ("tea", "poison", "coffee"):
            harness.send(orders(name), item, Order(item))
        harness.run()
        assert sorted(tries) == ["coffee", "poison", "tea"]
        harness.send(orders(name), "late", Order("late"))
        harness.advance(9)
        assert tries.count("poison") == 1
        assert "late" in tries
        harness.advance(1)
        assert tries.count("poison") == 2
        harness.advance(19)
        assert tries.count("poison") == 2
        assert harness.dead_letters(orders(name)) == []
        harness.advance(1)
        assert tries.count("poison") == 3
        (letter,) = harness.dead_letters(orders(name))
        harness.advance(1000)
        assert len(tries) == 6
    assert letter.reason == "ValueError: this cannot be billed"
    assert letter.record.key == "poison"
    assert letter.record.header("penstock.dlq.attempts") == b"3"
    origin = origin_of(letter.record.headers)
    assert origin is not None
    assert (origin.topic, origin.reason) == (orders(name), "ValueError: this cannot be billed")


def test_only_records_with_the_key_of_a_failed_one_wait(opened: Open, name: str) -> None:
    app = App(name)
    done: list[tuple[str | None, int]] = []

    @app.subscribe(orders(name), retries=1, delay_s=5, concurrency=2)
    def handle(record: Record[dict[str, int]], context: Context) -> None:
        if record.value["n"] == 1 and record.key == "a" and context.attempt == 1:
            raise ConnectionError("try again")
        done.append((record.key, record.value["n"]))

    with opened(app) as harness:
        for number in range(4):
            for key in "abc":
                harness.send(orders(name), key, {"n": number})
        harness.run()
        assert sorted(done) == [("a", 0), *(("b", n) for n in range(4)), *(("c", n) for n in range(4))]
        harness.advance(5)
    for key in "abc":
        assert [n for found, n in done if found == key] == [0, 1, 2, 3]


def test_undecodable_value_is_dead_lettered_without_retries(opened: Open, name: str) -> None:
    app = App(name)
    seen: list[str] = []

    @app.subscribe(orders(name), retries=5)
    def handle(order: Order) -> None:
        seen.append(order.item)

    with opened(app) as harness:
        harness.send(orders(name), "a", "{ this is no JSON")
        harness.send(orders(name), "a", Order("tea"))
        harness.run()
        (letter,) = harness.dead_letters(orders(name))
    assert seen == ["tea"]
    assert "SerializationFailed" in letter.reason


def test_failed_handler_sends_nothing(opened: Open, name: str) -> None:
    app = App(name)

    @app.subscribe(orders(name), retries=1, delay_s=1, guarantee="exactly-once")
    async def handle(order: Order, context: Context) -> Message:
        context.send(f"log-{name}", None, f"attempt {context.attempt}")
        if context.attempt == 1:
            raise ConnectionError("try again")
        return Message(f"invoices-{name}", "k", order.item)

    with opened(app) as harness:
        if harness._admin is not None:
            for topic in (f"log-{name}", f"invoices-{name}"):
                harness._admin.create_topic(topic, 1)
        harness.send(orders(name), "a", Order("tea"))
        harness.run()
        assert harness.values(f"log-{name}") == []
        harness.advance(1)
        assert harness.values(f"log-{name}", str) == ["attempt 2"]
        assert harness.values(f"invoices-{name}", str) == ["tea"]


def test_only_the_poison_pill_of_a_batch_is_dead_lettered(opened: Open, name: str) -> None:
    app = App(name)
    sizes: list[int] = []
    items: list[str] = []

    @app.subscribe(orders(name), retries=0, batch_size=100)
    def load(batch: list[Order]) -> None:
        if any(order.item == "poison" for order in batch):
            raise ValueError("not in my batch")
        sizes.append(len(batch))
        items.extend(order.item for order in batch)

    with opened(app) as harness:
        for number in range(20):
            harness.send(orders(name), str(number), Order("poison" if number == 13 else f"item {number}"))
        harness.run()
        letters = harness.dead_letters(orders(name))
    assert sorted(items) == sorted(f"item {number}" for number in range(20) if number != 13)
    assert [letter.record.key for letter in letters] == ["13"]
    assert max(sizes) > 1 or len(sizes) == 19


def test_lifespan_dependencies_and_middleware(opened: Open, name: str) -> None:
    events: list[Any] = []

    @asynccontextmanager
    async def lifespan(_: App) -> AsyncIterator[dict[str, int]]:
        events.append("open")
        yield {"rate": 7}
        events.append("closed")

    app = App(name, lifespan=lifespan)

    async def rate(context: Context) -> int:
        found: int = context.state["rate"]
        return found

    @app.middleware
    async def noted(call_next: Callable[[Context], Any], context: Context) -> Any:
        events.append(f"before {context.attempt}")
        return await call_next(context)

    @app.subscribe(orders(name))
    async def handle(order: Order, rate: Annotated[int, Depends(rate)]) -> None:
        events.append(order.amount * rate)

    with opened(app) as harness:
        harness.send(orders(name), "a", Order("tea", 3))
        harness.run()
    assert events == ["open", "before 1", 21, "closed"]


def test_share_group_subscription_retries_and_dead_letters(opened: Open, name: str) -> None:
    app = App(name)
    deliveries: list[tuple[str, int]] = []

    @app.subscribe(orders(name), share=True, retries=2, concurrency=4)
    def pack(record: Record[str], context: Context) -> None:
        deliveries.append((record.value, context.attempt))
        if record.value == "broken" or (record.value == "shaky" and context.attempt == 1):
            raise ValueError("cannot be packed")

    with opened(app) as harness:
        for item in ("tea", "broken", "shaky"):
            harness.send(orders(name), None, item)
        for _ in range(100):
            harness.run()
            if len(deliveries) >= 6:
                break
        harness.run()
        letters = harness.dead_letters(orders(name))
    assert sorted(deliveries) == [("broken", 1), ("broken", 2), ("broken", 3), ("shaky", 1), ("shaky", 2), ("tea", 1)]
    assert [letter.record.value for letter in letters] == [b"broken"]


def test_traces_and_replies(opened: Open, name: str) -> None:
    app = App(name)
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

    @app.subscribe(orders(name), reply=True, publish=f"invoices-{name}")
    def bill(order: Order) -> Invoice:
        return Invoice(order.item, 12)

    with opened(app) as harness:
        harness.send(orders(name), "a", Order("tea"), {"traceparent": trace})
        harness.run()
        asked = {"reply-topic": f"invoices-{name}", "correlation-id": "7"}
        harness.send(orders(name), "a", Order("tea"), asked)
        harness.run()
        traced, answered = harness.records(f"invoices-{name}")
    assert traced.header("traceparent") == trace.encode()
    assert answered.header("correlation-id") == b"7"


def test_subscriptions_of_one_group_read_different_topics(opened: Open, name: str) -> None:
    app = App(name)
    done: list[str] = []

    @app.subscribe(orders(name), publish=f"invoices-{name}")
    def bill(order: Order) -> Order:
        return order

    @app.subscribe(f"invoices-{name}")
    async def pay(order: Order) -> None:
        done.append(order.item)

    assert {subscription.group for subscription in app.subscriptions} == {name}
    with pytest.raises(penstock.PenstockError, match="both read"):
        app.subscribe(orders(name), name="again")(bill)
    with opened(app) as harness:
        harness.send(orders(name), "a", Order("tea"))
        for _ in range(100):
            harness.run()
            if done:
                break
    assert done == ["tea"]


def test_invalid_handlers_are_rejected_when_subscribed() -> None:
    app = App("refused")
    with pytest.raises(penstock.PenstockError, match="takes no record"):

        @app.subscribe("orders")
        def nothing() -> None: ...

    with pytest.raises(penstock.PenstockError, match="nothing provides it"):

        @app.subscribe("orders")
        def more(order: Order, price: int) -> None: ...

    with pytest.raises(penstock.PenstockError, match="backoff='sometimes'"):
        app.subscribe("orders", backoff="sometimes")(print)  # type: ignore[arg-type]
    with pytest.raises(penstock.PenstockError, match="transaction"):

        @app.subscribe("orders", share=True, guarantee="exactly-once")
        def both(order: Order) -> None: ...


def test_batches_keep_order_within_a_key_after_a_failure(opened: Open, name: str) -> None:
    app = App(name)
    done: list[tuple[str | None, str]] = []
    failures = ["not yet"]

    @app.subscribe(orders(name), retries=1, delay_s=10, batch_size=100)
    def load(batch: list[Record[Order]]) -> None:
        if failures and any(record.value.item == "shy" for record in batch):
            if len(batch) == 1:
                failures.clear()
            raise ValueError("not yet")
        done.extend((record.key, record.value.item) for record in batch)

    sent = [("a", "shy"), ("b", "1"), ("a", "second"), ("b", "2"), ("a", "third")]
    with opened(app) as harness:
        for key, item in sent:
            harness.send(orders(name), key, Order(item))
        harness.run()
        assert [item for key, item in done if key == "b"] == ["1", "2"]
        # Those that came with it, or after it, wait.
        assert [item for key, item in done if key == "a"] == []
        harness.advance(10)
    assert [item for key, item in done if key == "a"] == ["shy", "second", "third"]


@pytest.mark.parametrize("is_async", [False, True])
def test_async_middleware_wraps_handlers_of_either_kind_and_batches(is_async: bool, opened: Open, name: str) -> None:
    app = App(name)
    wrapped: list[tuple[int, str]] = []

    @app.middleware
    async def note(call_next: Any, context: Context) -> Any:
        result = await call_next(context)
        await asyncio.sleep(0)
        wrapped.append((len(context.records), result))
        return result

    def one(order: Order) -> str:
        return order.item

    def many(batch: list[Order]) -> str:
        return f"{len(batch)} orders"

    async def one_async(order: Order) -> str:
        return one(order)

    async def many_async(batch: list[Order]) -> str:
        return many(batch)

    for handler, topic in ((one_async, "a"), (many_async, "b")) if is_async else ((one, "a"), (many, "b")):
        app.subscribe(orders(name) + topic, publish=f"out-{name}", name=topic, concurrency=2)(handler)
    with opened(app) as harness:
        for topic in ("a", "b"):
            harness.send(orders(name) + topic, "alice", Order("tea"))
        harness.run()
        assert sorted(harness.values(f"out-{name}", str)) == ["1 orders", "tea"]
    assert sorted(wrapped) == [(1, "1 orders"), (1, "tea")]


def test_plain_middleware_around_an_async_handler_is_rejected(name: str) -> None:
    app = App(name)

    @app.subscribe("orders")
    async def handle(value: str) -> None:
        del value

    with pytest.raises(penstock.PenstockError, match="async def timed"):

        @app.middleware
        def timed(call_next: Any, context: Context) -> Any:
            return call_next(context)


@pytest.mark.parametrize("source", [memory.MemorySource, memory.MemoryShare])
def test_harness_waits_for_records_that_the_reader_has_not_handed_over(
    name: str, source: type[memory.MemorySource], monkeypatch: pytest.MonkeyPatch
) -> None:
    read = source.read

    def slow(*arguments: Any) -> list[Any]:
        found = read(*arguments)
        time.sleep(0.1 if found else 0)
        return found

    monkeypatch.setattr(source, "read", slow)
    app = App(name)

    @app.subscribe("orders", publish="out", share=source is memory.MemoryShare)
    def handle(value: str) -> str:
        return value

    with AppHarness(app) as harness:
        harness.send("orders", "alice", "tea")
        harness.run()
        assert harness.values("out", str) == ["tea"]
