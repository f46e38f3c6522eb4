"""Writes OpenTelemetry's `MetricsData` as clients do."""

from __future__ import annotations

import struct
from collections.abc import Mapping


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def field(number: int, content: bytes | str | int) -> bytes:
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    data = content.encode() if isinstance(content, str) else content
    return varint(number << 3 | 2) + varint(len(data)) + data


def fixed(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 1) + data


def pairs(number: int, labels: Mapping[str, str]) -> bytes:
    return b"".join(field(number, field(1, key) + field(2, field(1, value))) for key, value in labels.items())


def point(value: float, labels: Mapping[str, str] | None = None) -> bytes:
    number = fixed(6, struct.pack("<q", value)) if isinstance(value, int) else fixed(4, struct.pack("<d", value))
    return fixed(3, struct.pack("<q", 1)) + number + pairs(7, labels or {})


def gauge(name: str, *points: bytes, unit: str = "") -> bytes:
    return field(1, name) + (field(3, unit) if unit else b"") + field(5, b"".join(field(1, one) for one in points))


def total(name: str, *points: bytes, temporality: int = 2, monotonic: int = 1) -> bytes:
    content = b"".join(field(1, one) for one in points) + field(2, temporality) + field(3, monotonic)
    return field(1, name) + field(7, content)


def metrics_data(*metrics: bytes, resource: Mapping[str, str] | None = None) -> bytes:
    scope = field(1, field(1, "scope")) + b"".join(field(2, one) for one in metrics)
    return field(1, field(1, pairs(1, resource or {})) + field(2, scope))
