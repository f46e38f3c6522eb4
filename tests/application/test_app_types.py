"""Types of values and batches: Arrow tables, DataFrames, pydantic models, in memory and on a broker."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable
from typing import Any

import pandas
import pyarrow
import pytest

import penstock
from penstock import App, Message, Record
from penstock.app.asyncapi import describe
from penstock.testing import AppHarness

Open = Callable[[App], AppHarness]


@dataclasses.dataclass
class Order:
    item: str
    amount: int = 1


@pytest.fixture
def topic() -> str:
    return f"orders-{uuid.uuid4().hex[:8]}"


def test_batches_as_arrow_tables(opened: Open, topic: str) -> None:
    app = App(topic)
    rows: list[dict[str, Any]] = []

    @app.subscribe(topic, retries=0, batch_size=100)
    def load(table: pyarrow.Table) -> None:
        rows.extend(table.to_pylist())

    with opened(app) as harness:
        for number in range(10):
            harness.send(topic, None, Order("tea", number))
        harness.send(topic, None, {"item": "coffee", "amount": 10, "note": "decaf"})
        harness.run()
        harness.send(topic, "tombstone", None)
        harness.send(topic, None, "[1, 2]")
        harness.send(topic, None, {"item": "mixed", "amount": "eleven"})
        harness.send(topic, None, {"item": "milk", "amount": 12})
        harness.run()
        letters = harness.dead_letters(topic)
    assert sorted(row["amount"] for row in rows if row["item"] == "tea") == list(range(10))
    assert [row["note"] for row in rows if row["item"] == "coffee"] == ["decaf"], "a column of a later row is lost"
    assert {row["amount"] for row in rows if row["item"] in ("mixed", "milk")} == {"eleven", 12}
    assert sorted(letter.record.value or b"" for letter in letters) == [b"", b"[1, 2]"]
    assert all("SerializationFailed" in letter.reason for letter in letters)


@pytest.mark.parametrize("is_async", [False, True])
def test_batches_as_data_frames(is_async: bool, opened: Open, topic: str) -> None:
    app = App(topic)
    frames: list[pandas.DataFrame] = []

    def totals(frame: pandas.DataFrame) -> list[Message]:
        if (frame["item"] == "poison").any():
            raise ValueError("not in my frame")
        frames.append(frame)
        sums = frame.groupby("item")["amount"].sum()
        return [Message(f"totals-{topic}", str(item), int(total)) for item, total in sums.items()]

    if is_async:

        @app.subscribe(topic, retries=0, publish=f"totals-{topic}")
        async def load_async(frame: pandas.DataFrame) -> list[Message]:
            return totals(frame)

    else:

        @app.subscribe(topic, retries=0, publish=f"totals-{topic}")
        def load(frame: pandas.DataFrame) -> list[Message]:
            return totals(frame)

    with opened(app) as harness:
        for number in range(12):
            harness.send(topic, None, Order("poison" if number == 5 else ("tea", "coffee")[number % 2], number))
        harness.send(topic, None, {"item": "tea", "amount": 100, "note": "large"})
        harness.run()
        found = harness.records(f"totals-{topic}", int)
        letters = harness.dead_letters(topic)
    assert sum(len(frame) for frame in frames) == 12
    assert sum(record.value for record in found if record.key == "tea") == 0 + 2 + 4 + 6 + 8 + 10 + 100
    assert sum(record.value for record in found if record.key == "coffee") == 1 + 3 + 7 + 9 + 11
    assert pandas.concat(frames)["note"].dropna().tolist() == ["large"]
    assert [letter.record.value for letter in letters] == [b'{"item":"poison","amount":5}']


def test_pydantic_models_are_read_checked_and_sent(opened: Open, topic: str) -> None:
    pydantic = pytest.importorskip("pydantic")

    class Line(pydantic.BaseModel):  # type: ignore[name-defined,misc]
        item: str
        amount: int = pydantic.Field(gt=0)

    class Basket(pydantic.BaseModel):  # type: ignore[name-defined,misc]
        customer: str = pydantic.Field(pattern="^[a-z]+$")
        lines: list[Line] = pydantic.Field(default_factory=list)

    class Bill(pydantic.BaseModel):  # type: ignore[name-defined,misc]
        customer: str
        total: int

    app = App(topic)
    calls: list[Record[Any]] = []

    @app.subscribe(topic, publish=f"bills-{topic}", retries=3)
    def bill(record: Record[Basket]) -> Bill:
        calls.append(record)
        return Bill(customer=record.value.customer, total=sum(line.amount for line in record.value.lines))

    with opened(app) as harness:
        harness.send(
            topic, "a", Basket(customer="alice", lines=[Line(item="tea", amount=2), Line(item="milk", amount=3)])
        )
        harness.send(topic, "b", {"customer": "BOB"})
        harness.send(topic, "c", {"customer": "carol", "lines": [{"item": "tea", "amount": 0}]})
        harness.run()
        assert harness.values(f"bills-{topic}", Bill) == [Bill(customer="alice", total=5)]
        letters = harness.dead_letters(topic)
    assert len(calls) == 3, "values that cannot be read are not tried again"
    reasons = {letter.record.key: letter.reason for letter in letters}
    assert reasons.keys() == {"b", "c"}
    assert "pattern" in reasons["b"]
    assert "greater than 0" in reasons["c"]
    channels = describe(app)["channels"]
    payload = channels[topic]["messages"]["record"]["payload"]
    assert payload["properties"]["customer"]["pattern"] == "^[a-z]+$"
    assert channels[f"bills-{topic}"]["messages"]["record"]["payload"]["required"] == ["customer", "total"]


def test_clients_send_and_receive_pydantic_models(servers: str, topic: str) -> None:
    pydantic = pytest.importorskip("pydantic")

    class Ticket(pydantic.BaseModel):  # type: ignore[name-defined,misc]
        number: int

    with penstock.Admin(servers) as admin, penstock.Producer(servers, value=Ticket) as producer:
        admin.create_topic(topic, 1, 1)
        producer.send(topic, "a", Ticket(number=7))
        with pytest.raises(penstock.PenstockError, match="no Ticket"):
            producer.send(topic, "a", {"number": 7})
    with penstock.Consumer(servers, value=Ticket) as consumer:
        consumer.subscribe(topic)
        record = consumer.poll(20)
        assert record is not None
        assert record.value == Ticket(number=7)


def test_unencodable_result_fails_its_record(opened: Open, topic: str) -> None:
    """The record is dead-lettered like any poison pill, and the subscription continues."""
    app = App(topic)

    @app.subscribe(topic, retries=0, publish=f"out-{topic}")
    def handle(value: str) -> Any:
        return object() if value == "poison" else value

    with opened(app) as harness:
        for value in ("tea", "poison", "coffee"):
            harness.send(topic, value, value)
        harness.run()
        assert sorted(harness.values(f"out-{topic}", str)) == ["coffee", "tea"]
        (letter,) = harness.dead_letters(topic)
    assert "cannot be sent" in letter.reason
