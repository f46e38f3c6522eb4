"""What all collectors share: they fill a sheet, and yield to other work while they do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import monotonic
from typing import Protocol, TypeVar

from penstock.core.metrics.histogram import Histogram, Window, quantile
from penstock.core.metrics.sheet import Metric, Sheet

TOPICS = "topics"
PARTITIONS = "partitions"
GROUPS = "groups"
CLIENTS = "clients"
TENANTS = "tenants"
DETAILS = frozenset((TOPICS, PARTITIONS, GROUPS, CLIENTS, TENANTS))

# This many rows are collected before other work may get its turn.
ROWS_PER_TURN = 64
QUANTILES = (0.5, 0.95, 0.99, 0.999)

T = TypeVar("T")


class Collector(Protocol):
    """Adds its metrics to a sheet. Its yields are points where other work may get its turn."""

    def __call__(self, sheet: Sheet) -> Iterator[None]: ...


class Summaries:
    """Renders histograms of seconds the way Kafka does: quantiles of the last five minutes, in milliseconds."""

    def __init__(self) -> None:
        self._windows: dict[tuple[Metric, tuple[object, ...]], Window] = {}

    def add(self, sheet: Sheet, metric: Metric, histogram: Histogram, *labels: object) -> None:
        """One histogram's summary."""
        window = self._windows.setdefault((metric, labels), Window())
        lately = window.lately(histogram, monotonic())
        values = [(one, 1000 * quantile(histogram.bounds, lately, one)) for one in QUANTILES]
        sheet.summary(metric, values, 1000 * histogram.sum, histogram.count, *labels)


def each(rows: Callable[[], list[T]]) -> Iterator[T | None]:
    """The rows, with None in between where other work may get its turn."""
    for number, row in enumerate(rows(), 1):
        yield row
        if number % ROWS_PER_TURN == 0:
            yield None
