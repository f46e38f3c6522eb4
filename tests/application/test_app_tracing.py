"""Traces through applications, with OpenTelemetry's SDK and without it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from penstock import App, Context, Record
from penstock.testing import AppHarness

pytest.importorskip("opentelemetry.sdk", reason="OpenTelemetry's SDK is not installed")

from opentelemetry import propagate, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

Open = Callable[[App], AppHarness]


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """OpenTelemetry as a program sets it up, for the time of one test."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    return exporter


def sent_by(label: str) -> tuple[dict[str, str], trace.SpanContext]:
    """The headers of a record that is sent within a span, and that span."""
    carrier: dict[str, str] = {}
    with trace.get_tracer("test").start_as_current_span(label) as span:
        propagate.inject(carrier)
        return carrier, span.get_span_context()


def sender_of(record: Record[Any]) -> trace.SpanContext:
    """The span in a record's headers."""
    carrier = {key: value.decode() for key, value in record.headers if value is not None}
    return trace.get_current_span(propagate.extract(carrier)).get_span_context()


def processing(exporter: InMemorySpanExporter) -> list[ReadableSpan]:
    return [span for span in exporter.get_finished_spans() if span.kind is SpanKind.CONSUMER]


def test_a_trace_goes_through_handlers_replies_and_dead_letters(
    opened: Open, name: str, spans: InMemorySpanExporter
) -> None:
    app = App(name)
    seen: list[int] = []

    @app.subscribe(f"orders-{name}", publish=f"invoices-{name}", reply=True, retries=0)
    def bill(order: str, context: Context) -> str:
        seen.append(trace.get_current_span().get_span_context().span_id)
        if order == "broken":
            raise ValueError("cannot be billed")
        context.send(f"invoices-{name}", "log", "noted")
        return "billed"

    @app.subscribe(f"invoices-{name}")
    async def pay(invoice: str) -> None:
        del invoice

    headers, sender = sent_by("checkout")
    with opened(app) as harness:
        harness.send(f"orders-{name}", "a", "tea", headers)
        harness.run()
        invoices = harness.records(f"invoices-{name}", str)
        harness.send(f"orders-{name}", "a", "tea", headers | {"reply-topic": f"invoices-{name}", "correlation-id": "7"})
        harness.run()
        replies = [each for each in harness.records(f"invoices-{name}", str) if each.header("correlation-id")]
        harness.send(f"orders-{name}", "a", "broken", headers)
        harness.run()
        (letter,) = harness.dead_letters(f"orders-{name}")
    found = processing(spans)
    bills = [span for span in found if span.name == f"orders-{name} process"]
    assert len(bills) == 3
    for span in bills:
        assert span.parent is not None
        assert (span.parent.trace_id, span.parent.span_id) == (sender.trace_id, sender.span_id)
    assert [span.context.span_id for span in bills] == seen, "the handler does not run within its span"
    assert {each.value for each in invoices} == {"billed", "noted"}
    assert {sender_of(each).span_id for each in invoices} == {bills[0].context.span_id}
    assert [sender_of(each).span_id for each in replies] == [bills[1].context.span_id]
    assert sender_of(letter.record).trace_id == sender.trace_id
    assert bills[2].status.status_code is StatusCode.ERROR
    paid = [span for span in found if span.name == f"invoices-{name} process"]
    assert len(paid) == 4
    assert {span.context.trace_id for span in paid} == {sender.trace_id}


@pytest.mark.parametrize("is_async", [False, True])
def test_a_batch_is_one_span_with_links_to_its_senders(is_async: bool, name: str, spans: InMemorySpanExporter) -> None:
    app = App(name)
    sizes: list[int] = []
    if is_async:

        @app.subscribe(f"orders-{name}", publish=f"totals-{name}")
        async def load(batch: list[str]) -> str:
            sizes.append(len(batch))
            return "total"

    else:

        @app.subscribe(f"orders-{name}", publish=f"totals-{name}")
        def load_in_thread(batch: list[str]) -> str:
            sizes.append(len(batch))
            return "total"

    senders = []
    with AppHarness(app, partitions=1) as harness:
        for number in range(5):
            headers, sender = sent_by(str(number))
            senders.append(sender.span_id)
            harness.send(f"orders-{name}", None, "tea", headers)
        harness.send(f"orders-{name}", None, "sent without a trace")
        harness.run()
        totals = harness.records(f"totals-{name}")
    found = processing(spans)
    assert sorted(link.context.span_id for span in found for link in span.links) == sorted(senders)
    assert [(span.attributes or {})["messaging.batch.message_count"] for span in found] == sizes
    assert [sender_of(each).span_id for each in totals] == [span.context.span_id for span in found]


@pytest.mark.parametrize("missing", ["package", "set up"])
def test_without_opentelemetry_a_trace_is_passed_on(missing: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if missing == "package":
        monkeypatch.setitem(sys.modules, "opentelemetry", None)
    app = App(name)

    @app.subscribe(f"orders-{name}", publish=f"invoices-{name}", retries=0)
    def bill(order: str) -> str:
        if order == "broken":
            raise ValueError("cannot be billed")
        return order

    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with AppHarness(app) as harness:
        for item in ("tea", "broken"):
            harness.send(f"orders-{name}", "a", item, {"traceparent": parent, "other": "1"})
        harness.send(f"orders-{name}", "a", "untraced")
        harness.run()
        traced, untraced = harness.records(f"invoices-{name}")
        (letter,) = harness.dead_letters(f"orders-{name}")
    assert traced.headers == [("traceparent", parent.encode())]
    assert untraced.headers == []
    assert letter.record.header("traceparent") == parent.encode()
