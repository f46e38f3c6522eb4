"""The AsyncAPI document of an application: topics read, sent to, replied to and dead-lettered to, with their types."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import penstock
from penstock.app.asyncapi import describe, page
from penstock.cli.app import command


@dataclass
class Order:
    item: str
    amount: int = 1


@dataclass
class Invoice:
    total: float


def shop() -> penstock.App:
    app = penstock.App("billing", "broker:9092", title="Billing <b>", version="2.1.0")

    @app.subscribe("orders", "late/orders", publish="invoices", retries=4)
    def bill(order: Order) -> Invoice | None:
        """Bills orders.

        One after the other.
        """
        return Invoice(order.amount * 2.5)

    @app.subscribe("questions", group="answers", reply=True, dead_letters=False)
    async def answer(question: str) -> str:
        return question

    return app


def resolve(document: dict[str, Any], reference: str) -> Any:
    found: Any = document
    for step in reference.removeprefix("#/").split("/"):
        found = found[step.replace("~1", "/").replace("~0", "~")]
    return found


def test_document_lists_all_received_and_sent_channels() -> None:
    document = describe(shop())
    assert (document["asyncapi"], document["info"]) == ("3.0.0", {"title": "Billing <b>", "version": "2.1.0"})
    assert document["servers"]["cluster"] == {"host": "broker:9092", "protocol": "kafka"}
    operations = document["operations"]
    addresses = {
        name: (each["action"], resolve(document, each["channel"]["$ref"])["address"])
        for name, each in operations.items()
    }
    assert addresses == {
        "bill.orders": ("receive", "orders"),
        "bill.late/orders": ("receive", "late/orders"),
        "bill.publish": ("send", "invoices"),
        "bill.dlq.orders": ("send", "dlq.orders"),
        "bill.dlq.late/orders": ("send", "dlq.late/orders"),
        "answer.questions": ("receive", "questions"),
    }
    assert operations["bill.orders"]["summary"] == "Bills orders."
    assert operations["answer.questions"]["reply"]["address"]["location"] == "$message.header#/reply-topic"
    assert operations["answer.questions"]["bindings"]["kafka"]["groupId"]["const"] == "answers"


def test_payload_schemas_are_those_of_the_types() -> None:
    channels = describe(shop())["channels"]

    def payload(topic: str) -> Any:
        return channels[topic]["messages"]["record"]["payload"]

    assert payload("orders")["required"] == ["item"]
    assert payload("orders")["properties"]["amount"] == {"type": "integer", "default": 1}
    assert payload("dlq.orders") == payload("orders")
    assert payload("invoices")["properties"] == {"total": {"type": "number"}}
    assert payload("questions") == {"type": "string"}


def test_page_lists_subscriptions_and_escapes_html() -> None:
    text = page(shop())
    assert "Billing &lt;b&gt;" in text
    assert "Billing <b>" not in text
    for shown in ("late/orders", "invoices", "dlq.orders", "<dt>tries</dt><dd>5</dd>", "One after the other."):
        assert shown in text


def test_describe_command_prints_the_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "described.py").write_text(
        "import penstock\napp = penstock.App('billing')\n@app.subscribe('orders')\ndef bill(order: dict) -> None: ...\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    done = CliRunner().invoke(command, ["describe", "described:app"])
    assert done.exit_code == 0, done.output
    assert "orders" in json.loads(done.output)["channels"]
