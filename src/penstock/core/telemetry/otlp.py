"""Reads the metrics that clients push: OpenTelemetry's `MetricsData`, in the wire format of protocol buffers.

Only what clients of Kafka send is read: gauges and sums of numbers, with the attributes of the client's resource and of
each point. Histograms and summaries are passed over. The bytes come from strangers: nothing is allocated by what a
length claims, nesting is as deep as the format and no deeper, and names, labels and series are limited.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from math import isnan
from typing import NamedTuple

SERIES_MAX = 2_000
LABELS_MAX = 16
NAME_LENGTH_MAX = 200
VALUE_LENGTH_MAX = 200
# Every field of a message takes time, whether it is read or not.
FIELDS_MAX = 100_000

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_DOUBLE = struct.Struct("<d")
_INT64 = struct.Struct("<q")

Field = tuple[int, int, int | memoryview]
Labels = tuple[tuple[str, str], ...]


class BadMetrics(Exception):
    """What a client pushed cannot be read."""


class Kind(IntEnum):
    """What a series is. A DELTA is by how much a total has grown since the last push."""

    GAUGE = 0
    TOTAL = 1
    DELTA = 2


class Series(NamedTuple):
    """One series of a push, by its name in OpenTelemetry."""

    name: str
    unit: str
    kind: Kind
    labels: Labels
    value: float


class Push(NamedTuple):
    """What a client pushed; `left_out` are the series that were too many, or that cannot be shown."""

    series: list[Series]
    left_out: int


class _Reader:
    """Walks one message after the other, all within one budget of fields."""

    def __init__(self) -> None:
        self._fields = 0
        self.series: list[Series] = []
        self.left_out = 0

    def fields(self, data: memoryview) -> Iterator[Field]:
        position, end = 0, len(data)
        while position < end:
            self._fields += 1
            if self._fields > FIELDS_MAX:
                raise BadMetrics(f"it has more than {FIELDS_MAX} fields")
            tag, position = _varint(data, position)
            number, kind = tag >> 3, tag & 7
            value: int | memoryview
            if kind == _VARINT:
                value, position = _varint(data, position)
            elif kind == _LENGTH:
                length, position = _varint(data, position)
                value, position = _slice(data, position, length)
            elif kind in (_FIXED64, _FIXED32):
                value, position = _slice(data, position, 8 if kind == _FIXED64 else 4)
            else:
                raise BadMetrics(f"a field is of the unknown kind {kind}")
            yield number, kind, value

    def nested(self, data: memoryview, number: int) -> Iterator[memoryview]:
        """The messages or texts in one field."""
        for found, _, value in self.fields(data):
            if found == number and isinstance(value, memoryview):
                yield value

    def labels(self, data: memoryview, number: int) -> Labels:
        found: dict[str, str] = {}
        for pair in self.nested(data, number):
            key = value = ""
            for field, _, content in self.fields(pair):
                if isinstance(content, memoryview):
                    if field == 1:
                        key = _text(content, NAME_LENGTH_MAX)
                    elif field == 2:
                        value = self._any_value(content)
            if key and len(found) < LABELS_MAX:
                found[key] = value
        return tuple(found.items())

    def _any_value(self, data: memoryview) -> str:
        for number, kind, value in self.fields(data):
            if isinstance(value, int):
                return str(bool(value)).lower() if number == 2 else str(_signed(value))
            if number == 1 and kind == _LENGTH:
                return _text(value, VALUE_LENGTH_MAX)
            if number == 4 and kind == _FIXED64:
                return repr(_DOUBLE.unpack(value)[0])
        return ""

    def metric(self, data: memoryview, resource: Labels) -> None:
        name = unit = ""
        for number, kind, value in self.fields(data):
            if kind != _LENGTH or not isinstance(value, memoryview):
                continue
            if number == 1:
                name = _text(value, NAME_LENGTH_MAX)
            elif number == 3:
                unit = _text(value, NAME_LENGTH_MAX)
            elif number == 5:
                self._points(value, name, unit, Kind.GAUGE, resource)
            elif number == 7:
                self._points(value, name, unit, self._kind_of_sum(value), resource)
            elif number > 5:
                self.left_out += 1

    def _kind_of_sum(self, data: memoryview) -> Kind:
        temporality = monotonic = 0
        for number, _, value in self.fields(data):
            if isinstance(value, int):
                temporality = value if number == 2 else temporality
                monotonic = value if number == 3 else monotonic
        if temporality == 1:
            return Kind.DELTA
        return Kind.TOTAL if monotonic else Kind.GAUGE

    def _points(self, data: memoryview, name: str, unit: str, kind: Kind, resource: Labels) -> None:
        for point in self.nested(data, 1):
            value = self._value(point)
            if not name or value is None or isnan(value) or len(self.series) >= SERIES_MAX:
                self.left_out += 1
                continue
            labels = dict(resource) | dict(self.labels(point, 7))
            self.series.append(Series(name, unit, kind, tuple(labels.items())[:LABELS_MAX], value))

    def _value(self, point: memoryview) -> float | None:
        for number, kind, value in self.fields(point):
            if kind == _FIXED64 and isinstance(value, memoryview):
                if number == 4:
                    return float(_DOUBLE.unpack(value)[0])
                if number == 6:
                    return int(_INT64.unpack(value)[0])
        return None


def read_metrics(data: bytes) -> Push:
    """The series of a `MetricsData`; raises BadMetrics."""
    reader = _Reader()
    for resource_metrics in reader.nested(memoryview(data), 1):
        resource: Labels = ()
        for described in reader.nested(resource_metrics, 1):
            resource = reader.labels(described, 1)
        for scope in reader.nested(resource_metrics, 2):
            for metric in reader.nested(scope, 2):
                reader.metric(metric, resource)
    return Push(reader.series, reader.left_out)


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    result = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, position
    raise BadMetrics("a number is cut short or too long")


def _slice(data: memoryview, position: int, length: int) -> tuple[memoryview, int]:
    end = position + length
    if end > len(data):
        raise BadMetrics("a field is cut short")
    return data[position:end], end


def _signed(value: int) -> int:
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def _text(data: memoryview, length_max: int) -> str:
    # A character takes at most four bytes.
    return bytes(data[: 4 * length_max]).decode("utf-8", "replace")[:length_max]
