"""The text that Prometheus reads: one sheet per scrape, filled by collectors, rendered family by family.

Both formats are supported: Prometheus' own (0.0.4), and OpenMetrics 1.0, which differs in how counters are declared and
in its last line. The lines of a family stay together, in the order in which families were first added.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import inf, isnan
from typing import Literal, NamedTuple

from penstock.core.metrics.histogram import Histogram

Kind = Literal["counter", "gauge", "histogram", "summary"]

TEXT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
TOTAL = "_total"


class Metric(NamedTuple):
    """A family of series. Counters are called `…_total`. `detail` is the detail that must be requested to get it.

    With `detail_labels` the family has one series in total, and on request one per label value.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    detail: str = ""
    detail_labels: tuple[str, ...] = ()


def counter(
    name: str, text: str, labels: tuple[str, ...] = (), detail: str = "", detail_labels: tuple[str, ...] = ()
) -> Metric:
    """A family of counters."""
    return Metric(name, "counter", text, labels, detail, detail_labels)


def gauge(name: str, text: str, labels: tuple[str, ...] = (), detail: str = "") -> Metric:
    """A family of gauges."""
    return Metric(name, "gauge", text, labels, detail)


def histogram(name: str, text: str, labels: tuple[str, ...] = ()) -> Metric:
    """A family of histograms."""
    return Metric(name, "histogram", text, labels)


def summary(name: str, text: str, labels: tuple[str, ...] = ()) -> Metric:
    """A family of summaries."""
    return Metric(name, "summary", text, labels)


def label_block(names: Sequence[str], values: Iterable[object]) -> str:
    """Labels as they follow a metric's name; empty without labels."""
    pairs = [f'{name}="{_escaped(str(value))}"' for name, value in zip(names, values, strict=True)]
    return f"{{{','.join(pairs)}}}" if pairs else ""


class Sheet:
    """One scrape's series. `details` are the requested ones, alone or, with `has_rest`, besides the default series."""

    def __init__(self, details: frozenset[str] = frozenset(), *, has_rest: bool = True) -> None:
        self.details = details
        self._has_rest = has_rest
        self._lines: dict[Metric, list[str]] = {}

    def add(self, metric: Metric, value: float, *labels: object) -> None:
        """Add one sample; the labels are in the metric's order, or those of its details."""
        names = metric.labels
        if len(labels) != len(names):
            names = metric.detail_labels
        elif not (self._has_rest or metric.detail):
            return
        self.put(metric, label_block(names, labels), value)

    def put(self, metric: Metric, block: str, value: float) -> None:
        """Add one sample of a detail with pre-rendered labels, which many series share."""
        lines = self._lines.get(metric)
        if lines is None:
            lines = self._lines[metric] = []
        lines.append(f"{metric.name}{block} {_number(value)}\n")

    def histogram(self, metric: Metric, histogram: Histogram, *labels: object) -> None:
        """A histogram's buckets, sum and count."""
        if not self._has_rest:
            return
        lines = self._lines.setdefault(metric, [])
        inner = label_block(metric.labels, labels)[1:-1]
        before = f"{inner}," if inner else ""
        after = f"{{{inner}}}" if inner else ""
        count = 0
        for bound, found in zip((*histogram.bounds, inf), histogram.counts, strict=True):
            count += found
            lines.append(f'{metric.name}_bucket{{{before}le="{_bound(bound)}"}} {count}\n')
        lines.append(f"{metric.name}_sum{after} {_number(histogram.sum)}\n")
        lines.append(f"{metric.name}_count{after} {count}\n")

    def summary(
        self, metric: Metric, quantiles: Iterable[tuple[float, float]], total: float, count: int, *labels: object
    ) -> None:
        """Quantiles with their values, and the total sum and count."""
        if not self._has_rest:
            return
        lines = self._lines.setdefault(metric, [])
        for quantile, value in quantiles:
            block = label_block((*metric.labels, "quantile"), (*labels, _bound(quantile)))
            lines.append(f"{metric.name}{block} {_number(value)}\n")
        block = label_block(metric.labels, labels)
        lines.append(f"{metric.name}_sum{block} {_number(total)}\n")
        lines.append(f"{metric.name}_count{block} {count}\n")

    def render(self, *, openmetrics: bool = False) -> Iterator[bytes]:
        """The text, a family at a time."""
        for metric, lines in self._lines.items():
            name = metric.name
            if openmetrics and metric.kind == "counter":
                name = name.removesuffix(TOTAL)
            text = metric.help.replace("\\", "\\\\").replace("\n", "\\n")
            if openmetrics:
                text = text.replace('"', '\\"')
            lines.insert(0, f"# HELP {name} {text}\n# TYPE {name} {metric.kind}\n")
            yield "".join(lines).encode()
        if openmetrics:
            yield b"# EOF\n"


def _escaped(text: str) -> str:
    if text.isalnum():
        return text
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if isinstance(value, int):
        return str(int(value))
    if isnan(value):
        return "NaN"
    if value in (inf, -inf):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)


def _bound(value: float) -> str:
    return "+Inf" if value == inf else repr(float(value))
