"""Generated pages say what the code says."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from penstock.api.document import DOCUMENT_PATH, document
from penstock.gateway import metrics_document
from penstock.gateway.work.budgets import Budgets

REPOSITORY = Path(__file__).resolve().parents[2]


def test_the_page_of_supported_apis_is_current() -> None:
    assert DOCUMENT_PATH.read_text() == document(), "run `make docs`"


def test_the_page_of_metrics_is_current() -> None:
    assert metrics_document.DOCUMENT_PATH.read_text() == metrics_document.document(), "run `make docs`"
    names = [metric.name for _, metrics in metrics_document.SECTIONS for metric in metrics]
    twice = {name for name in names if names.count(name) > 1}
    # Nodes tell the lag of the groups that they coordinate, gateways of all.
    assert all(name.startswith("kafka_consumergroup_") for name in twice)
    assert all(
        metric.name.endswith("_total")
        for _, metrics in metrics_document.SECTIONS
        for metric in metrics
        if metric.kind == "counter"
    )


def test_every_limit_of_the_gateway_is_documented_with_its_default() -> None:
    page = (REPOSITORY / "docs" / "rest.md").read_text()
    for limit in fields(Budgets):
        assert f"| `{limit.name}` | {limit.default:,} |" in page
