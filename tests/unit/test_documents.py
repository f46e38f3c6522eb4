"""Generated pages match the code."""

from __future__ import annotations

from penstock.api.document import DOCUMENT_PATH, INDEX_PATH, document, index
from penstock.gateway import metrics_document


def test_the_page_of_supported_apis_is_current() -> None:
    assert DOCUMENT_PATH.read_text() == document(), "run `make docs`"


def test_the_index_of_apis_is_what_their_modules_declare() -> None:
    assert INDEX_PATH.read_text() == index(), "run `make docs`"


def test_the_page_of_metrics_is_current() -> None:
    assert metrics_document.DOCUMENT_PATH.read_text() == metrics_document.document(), "run `make docs`"
    names = [metric.name for _, module in metrics_document.SECTIONS for metric in metrics_document.declared_in(module)]
    twice = {name for name in names if names.count(name) > 1}
    # Nodes tell the lag of the groups that they coordinate, gateways of all.
    assert all(name.startswith("kafka_consumergroup_") for name in twice)
    assert all(
        metric.name.endswith("_total")
        for _, module in metrics_document.SECTIONS
        for metric in metrics_document.declared_in(module)
        if metric.kind == "counter"
    )
