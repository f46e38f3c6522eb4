"""Traces carried in records' headers, in the format of the W3C and OpenTelemetry.

With OpenTelemetry set up, every call of a handler is a span: a child of the one that sent the record, or linked to
those that sent a batch. Messages that the handler sends carry it. Without OpenTelemetry, a record's `traceparent` is
passed on to the messages that its handler sends, so that the trace is not interrupted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from penstock.app.context import Message
from penstock.client.application.records import Record

CARRIED = ("traceparent", "tracestate", "baggage")


class Trace:
    """The trace headers for the messages of one record."""

    def __init__(self, headers: list[tuple[str, bytes | str | None]]) -> None:
        self._headers = headers

    def carried(self, messages: list[Message]) -> list[Message]:
        """The messages with the trace in their headers."""
        if not self._headers:
            return messages
        return [replace(message, headers=[*message.headers, *self._headers]) for message in messages]


class Tracer:
    """Follows records through one subscription. It is made within the lifespan, which may set OpenTelemetry up."""

    def __init__(self, name: str, *, enabled: bool = True) -> None:
        self._name = name
        self._is_on = enabled
        self._tracer: Any = None
        if enabled:
            try:
                from opentelemetry import trace
            except ImportError:
                return
            # Without a provider, spans would cost time and be dropped.
            if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
                self._tracer = trace.get_tracer("penstock")

    @property
    def makes_spans(self) -> bool:
        """Whether processing a record is a span of its own."""
        return self._tracer is not None

    def pass_on(self, record: Record[object], messages: list[Message]) -> list[Message]:
        """The messages with the trace that the record has, if it has one."""
        if not (self._is_on and messages and record.message.headers()):
            return messages
        return Trace([(name, value) for name, value in record.headers if name in CARRIED]).carried(messages)

    @contextmanager
    def processing(self, records: Sequence[Record[Any]], *, is_batch: bool = False) -> Iterator[Trace]:
        """The time in which a record or a batch is processed, as a span. Only if it `makes_spans`."""
        from opentelemetry.propagate import extract, inject
        from opentelemetry.trace import Link, SpanKind, get_current_span

        first = records[0]
        attributes: dict[str, object] = {
            "messaging.system": "kafka",
            "messaging.operation.type": "process",
            "messaging.consumer.group.name": self._name,
            "messaging.destination.name": first.topic,
        }
        parent, links = None, []
        if is_batch:
            attributes["messaging.batch.message_count"] = len(records)
            senders = (get_current_span(extract(_texts(record))).get_span_context() for record in records)
            links = [Link(sender) for sender in senders if sender.is_valid]
        else:
            attributes["messaging.destination.partition.id"] = str(first.partition)
            attributes["messaging.kafka.offset"] = first.offset
            parent = extract(_texts(first))
        name = f"{first.topic} process"
        with self._tracer.start_as_current_span(name, parent, SpanKind.CONSUMER, attributes, links):
            carried: dict[str, str] = {}
            inject(carried)
            yield Trace(list(carried.items()))


def current_trace() -> list[tuple[str, str]]:
    """Headers with the caller's current span, if there is one."""
    try:
        from opentelemetry.propagate import inject
    except ImportError:
        return []
    carried: dict[str, str] = {}
    inject(carried)
    return list(carried.items())


def _texts(record: Record[Any]) -> dict[str, str]:
    """The headers as OpenTelemetry's propagators read them."""
    return {name: value.decode("utf-8", "replace") for name, value in record.headers if value}
