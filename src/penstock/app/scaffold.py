"""`penstock app init`: a small project with a test."""

from __future__ import annotations

from pathlib import Path

from penstock.client.application.errors import PenstockError

FILES = {
    "app.py": '''"""Bills orders: reads `orders`, writes `invoices`. Run it with `penstock app run app:app --reload`."""

from __future__ import annotations

from dataclasses import dataclass

import penstock

app = penstock.App("NAME")


@dataclass
class Order:
    item: str
    amount: int


@dataclass
class Invoice:
    item: str
    total: int


@app.subscribe("orders", retries=5, publish="invoices", guarantee="exactly-once")
def bill(order: Order) -> Invoice:
    """Every order becomes an invoice, once."""
    if order.amount < 1:
        raise ValueError("there is nothing to bill")
    return Invoice(order.item, order.amount * 3)
''',
    "test_app.py": '''"""Tests of the application, without a broker; time passes only when a test advances it."""

from __future__ import annotations

from penstock.testing import AppHarness

from app import Invoice, Order, app


def test_orders_become_invoices() -> None:
    with AppHarness(app) as harness:
        harness.send("orders", "alice", Order("tea", 2))
        harness.run()
        assert harness.values("invoices", Invoice) == [Invoice("tea", 6)]


def test_an_invalid_order_is_dead_lettered() -> None:
    with AppHarness(app) as harness:
        harness.send("orders", "alice", Order("tea", 0))
        harness.run()
        assert harness.dead_letters("orders") == []
        harness.advance(60)
        (letter,) = harness.dead_letters("orders")
        assert "nothing to bill" in letter.reason
''',
    "README.md": """# NAME

    penstock up                                # a broker here
    penstock topic create orders -p 3
    penstock topic create invoices -p 3
    penstock app run app:app --reload          # the application
    echo 'alice:{"item": "tea", "amount": 2}' | penstock produce orders -k :
    penstock consume invoices -e

    pytest                                     # its tests, without a broker
""",
}


def write_project(directory: Path) -> list[Path]:
    """Write the files of a project; raises PenstockError rather than overwriting one."""
    existing = [name for name in FILES if (directory / name).exists()]
    if existing:
        advice = "choose another directory, or move them away"
        raise PenstockError(f"{directory} has {', '.join(existing)} already", "", advice)
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for name, text in FILES.items():
        path = directory / name
        path.write_text(text.replace("NAME", directory.resolve().name), "utf-8")
        written.append(path)
    return written
