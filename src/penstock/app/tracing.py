"""Traces carried in records' headers, as the W3C and OpenTelemetry write them.

With OpenTelemetry installed and set up, every record is a span and what it sends carries it on. Without, the
`traceparent` of a record is passed on to what its handler sends, so that a trace is not cut here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from penstock.app.context import Message
from penstock.client.application.records import Record

CARRIED = ("traceparent", "tracestate")


class Trace:
    """What the messages of one record carry."""

    def __init__(self, headers: list[tuple[str, bytes | str | None]]) -> None:
        self._headers = headers

    def carried(self, messages: list[Message]) -> list[Message]:
        """The messages with the trace in their headers."""
        if not self._headers:
            return messages
        return [replace(message, headers=[*message.headers, *self._headers]) for message in messages]


class Tracer:
    """Follows records through one subscription."""

    def __init__(self, name: str, *, enabled: bool = True) -> None:
        self._name = name
        self._is_on = enabled
        self._tracer: Any = None
        if enabled:
            try:
                from opentelemetry import trace
            except ImportError:
                return
            self._tracer = trace.get_tracer("penstock")

    @property
    def makes_spans(self) -> bool:
        """Whether processing a record is a span of its own."""
        return self._tracer is not None

    def pass_on(self, record: Record[Any], messages: list[Message]) -> list[Message]:
        """The messages with the trace that the record has, if it has one."""
        if not (self._is_on and messages and record.message.headers()):
            return messages
        return Trace([(name, value) for name, value in record.headers if name in CARRIED]).carried(messages)

    @contextmanager
    def processing(self, record: Record[Any]) -> Iterator[Trace]:
        """The time in which a record is processed, as a span."""
        found = {name: value.decode("ascii", "replace") for name, value in record.headers if name in CARRIED and value}
        from opentelemetry.propagate import extract, inject
        from opentelemetry.trace import SpanKind

        attributes = {
            "messaging.system": "kafka",
            "messaging.destination.name": record.topic,
            "messaging.destination.partition.id": str(record.partition),
            "messaging.kafka.offset": record.offset,
        }
        name = f"{record.topic} process"
        with self._tracer.start_as_current_span(name, extract(found), SpanKind.CONSUMER, attributes):
            carried: dict[str, str] = {}
            inject(carried)
            yield Trace(list(carried.items()))
