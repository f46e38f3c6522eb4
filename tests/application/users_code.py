"""What users write: checked by mypy --strict and pyright, never run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, assert_type

import penstock
from penstock import App, Connection, Context, Depends, Message, Record
from penstock.client import AccessRule, Stored, TopicDescription


@dataclass
class Order:
    item: str
    amount: int


def blocking() -> None:
    connection = Connection("broker:9092", username="ship", password="secret", tls=True)
    with penstock.Producer(connection) as producer:
        producer.send("orders", "alice", Order("tea", 1), headers={"trace": "1"})
        assert_type(producer.deliver("orders", "alice", "tea"), Stored)
    with penstock.Consumer(connection, group="billing", value=Order) as consumer:
        consumer.subscribe(["orders"])
        for record in consumer:
            assert_type(record, Record[Order])
            assert_type(record.value.amount, int)
            consumer.commit_offsets()
    with penstock.Consumer(group="raw") as raw:
        found = raw.poll()
        if found is not None:
            assert_type(found.value, bytes)
    with penstock.Admin() as admin:
        admin.create_topic("orders", partitions=3, replication_factor=3)
        assert_type(admin.describe_topic("orders"), TopicDescription)
        admin.allow(AccessRule("User:ship", "read", "topic", "orders."), AccessRule("User:ship", "all", "cluster"))
        assert_type(admin.access_rules("User:ship"), list[AccessRule])


async def asynchronous() -> None:
    async with penstock.aio.Producer() as producer, penstock.aio.Consumer(group="g", value=Order) as consumer:
        await consumer.subscribe("orders")
        async for record in consumer:
            await producer.send("shipments", record.key, record.value.item)


app = App("billing")


@app.middleware
async def timed(call_next: Callable[[Context], Awaitable[object]], context: Context) -> object:
    assert_type(len(context.records), int)
    return await call_next(context)


def rate() -> float:
    return 1.5


@app.subscribe("orders", retries=5, backoff="exponential", dead_letters=True, publish="invoices")
async def bill(order: Order, context: Context, factor: Annotated[float, Depends(rate)]) -> Message:
    context.send("log", None, order.item)
    return Message("invoices", order.item, order.amount * factor)


async def ask() -> None:
    assert_type(await app.request("prices", "tea", Order("tea", 1), returns=float), float)
    assert_type(await app.request("prices", timeout_s=1.0), bytes)


@app.subscribe("orders", share=True, concurrency=4)
def pack(record: Record[Order]) -> None:
    assert_type(record.value, Order)
