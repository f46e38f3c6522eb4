"""The names that Prometheus gives to metrics of OpenTelemetry: no dots, units spelled out, counters end in `_total`."""

from __future__ import annotations

import re

from penstock.core.telemetry.otlp import Kind

TOTAL = "_total"
_UNITS = {
    "ms": "milliseconds",
    "s": "seconds",
    "us": "microseconds",
    "ns": "nanoseconds",
    "min": "minutes",
    "h": "hours",
    "d": "days",
    "By": "bytes",
    "KBy": "kilobytes",
    "MBy": "megabytes",
    "%": "percent",
}
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9:]+")
_NOT_IN_LABELS = re.compile(r"[^a-zA-Z0-9]+")
# A client must not pass its figures off as those of the broker.
_OWN = ("penstock_", "kafka_", "process_", "python_")
FOREIGN = "client_"


def metric_name(name: str, unit: str, kind: Kind) -> str:
    """The name of a series for Prometheus."""
    result = _NOT_IN_NAMES.sub("_", name).strip("_") or "unnamed"
    spelled = _UNITS.get(unit, "")
    if kind is not Kind.GAUGE:
        result = result.removesuffix(TOTAL)
    if spelled and not result.endswith(spelled):
        result = f"{result}_{spelled}"
    if kind is not Kind.GAUGE:
        result += TOTAL
    if result[0].isdigit():
        result = f"_{result}"
    return f"{FOREIGN}{result}" if result.startswith(_OWN) else result


def label_name(name: str) -> str:
    """The name of a label; those that begin with two underscores are Prometheus' own."""
    result = _NOT_IN_LABELS.sub("_", name).strip("_") or "unnamed"
    return f"_{result}" if result[0].isdigit() else result
