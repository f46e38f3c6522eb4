"""Applications and the schema registry: types are registered at start, and changes that break others are refused."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

import penstock
from penstock import App, Context
from penstock.app.schemas import SchemaKind
from penstock.client import Avro
from penstock.testing import AppHarness


@dataclasses.dataclass
class Order:
    item: str
    amount: int = 1


@dataclasses.dataclass
class Invoice:
    item: str
    total: int
    note: str | None = None


@pytest.fixture
def client(registry_url: str) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry_url}) as client:
        yield client


@pytest.fixture(autouse=True)
def registry_in_the_environment(registry_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_REGISTRY", registry_url)


def billing(name: str, kind: SchemaKind) -> App:
    app = App(name, schemas=kind)

    @app.subscribe(f"orders-{name}", publish=f"invoices-{name}", retries=0)
    def bill(order: Order, context: Context) -> Invoice | None:
        if order.item == "wrong":
            return order  # type: ignore[return-value]
        context.send(f"log-{name}", None, {"without": "schema"})
        return Invoice(order.item, order.amount * 3) if order.amount else None

    return app


@pytest.mark.parametrize("kind", ["json", "avro"])
def test_types_are_registered_and_values_have_schema_ids(
    kind: SchemaKind, servers: str, name: str, client: SchemaRegistryClient
) -> None:
    with penstock.Admin(servers) as admin:
        admin.create_topic(f"log-{name}", 1, 1)
    with AppHarness(billing(name, kind), servers) as harness:
        # Before anything was sent.
        orders = client.get_latest_version(f"orders-{name}-value")
        invoices = client.get_latest_version(f"invoices-{name}-value")
        harness.send(f"orders-{name}", "a", Order("tea", 2))
        harness.send(f"orders-{name}", "b", Order("none", 0))
        harness.send(f"orders-{name}", "c", '{"item": "plain JSON without a schema"}')
        harness.send(f"orders-{name}", "d", Order("wrong"))
        harness.run()
        assert harness.values(f"invoices-{name}", Invoice) == [Invoice("tea", 6)]
        (raw,) = harness.values(f"invoices-{name}")
        assert harness.values(f"log-{name}", dict) == [{"without": "schema"}] * 2
        reasons = {letter.record.key: letter.reason for letter in harness.dead_letters(f"orders-{name}")}
    assert orders.schema.schema_type == invoices.schema.schema_type == kind.upper()
    text = invoices.schema.schema_str
    assert text is not None
    fields = json.loads(text)
    assert set(fields["properties"] if kind == "json" else (each["name"] for each in fields["fields"])) == {
        "item",
        "total",
        "note",
    }
    context = SerializationContext(f"invoices-{name}", MessageField.VALUE)
    reads: Any = JSONDeserializer(text) if kind == "json" else AvroDeserializer(client)
    assert reads(raw, context) == {"item": "tea", "total": 6, "note": None}
    assert reasons.keys() == {"c", "d"}
    assert "no schema id" in reasons["c"]
    assert "SerializationFailed" in reasons["d"]


@pytest.mark.parametrize("kind", ["json", "avro"])
def test_incompatible_schema_is_rejected_at_start(
    kind: SchemaKind, servers: str, name: str, client: SchemaRegistryClient
) -> None:
    app = billing(name, kind)
    app.register_schemas()
    app.register_schemas()
    assert client.get_versions(f"orders-{name}-value") == [1]

    def changed(fields: list[Any]) -> App:
        later = App(name, servers, schemas=kind)
        later.subscribe(f"orders-{name}", name="bill", value=dataclasses.make_dataclass("Order", fields))(
            lambda _: None
        )
        return later

    changed([("item", str), ("amount", int, 1), ("note", str, "")]).register_schemas()
    assert client.get_versions(f"orders-{name}-value") == [1, 2]
    with pytest.raises(penstock.PenstockError) as refused:
        changed([("customer", str), ("item", str), ("amount", int, 1)]).register_schemas()
    text = str(refused.value)
    assert f"bill cannot start: Order is not compatible with the schemas of orders-{name}" in text
    assert "customer" in refused.value.why
    assert "give new fields a default" in text
    assert f"orders-{name}-value" in refused.value.advice


def test_app_run_exits_with_the_reason(servers: str, name: str, tmp_path: Path) -> None:
    program = (
        f"import dataclasses\nimport penstock\napp = penstock.App('{name}', schemas='json')\n"
        "@dataclasses.dataclass\nclass Order:\n    amount: str\n"
        f"@app.subscribe('orders-{name}')\ndef bill(order: Order) -> None: ...\n"
    )
    (tmp_path / "shop.py").write_text(program)
    billing(name, "json").register_schemas()
    command = [sys.executable, "-m", "penstock", "app", "run", "shop:app"]
    environment = {**os.environ, "PENSTOCK_BOOTSTRAP": servers}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "bill cannot start" in done.stderr
    assert "amount" in done.stderr
    assert "Traceback" not in done.stderr


def test_batches_are_read_with_their_schemas(servers: str, name: str) -> None:
    import pandas

    app = App(name, schemas="avro")
    amounts: list[int] = []

    @app.subscribe(f"orders-{name}")
    def load(frame: pandas.DataFrame) -> None:
        amounts.extend(int(each) for each in frame["amount"])

    with AppHarness(app, servers) as harness:
        for number in range(5):
            harness.send(f"orders-{name}", None, Order("tea", number))
        harness.run()
    assert sorted(amounts) == list(range(5))


def test_explicit_serde_is_registered_too(
    servers: str, registry_url: str, name: str, client: SchemaRegistryClient
) -> None:
    app = App(name)
    seen: list[Order] = []

    @app.subscribe(f"orders-{name}", value=Avro(Order, registry=registry_url))
    def bill(order: Order) -> None:
        seen.append(order)

    with AppHarness(app, servers) as harness:
        assert client.get_versions(f"orders-{name}-value") == [1]
        harness.send(f"orders-{name}", "a", Avro(Order, registry=registry_url).encode(Order("tea"), f"orders-{name}"))
        harness.run()
    assert seen == [Order("tea")]


def test_without_a_broker_there_is_no_registry(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_REGISTRY")
    app = billing(name, "avro")
    with AppHarness(app) as harness:
        harness.send(f"orders-{name}", "a", Order("tea", 2))
        harness.run()
        assert harness.values(f"invoices-{name}", Invoice) == [Invoice("tea", 6)]
    with pytest.raises(penstock.PenstockError, match="PENSTOCK_REGISTRY"):
        app.register_schemas()
