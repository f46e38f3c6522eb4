"""Writes the tables in docs/metrics.md from all declarations: `python -m penstock.gateway.metrics_document`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from penstock.core.metrics.sheet import Metric
from penstock.gateway import metrics as gateway
from penstock.node.metrics import (
    clients,
    coordinators,
    damage,
    links,
    quorum,
    replicas,
    requests,
    rules,
    shares,
    tenants,
    tier,
    topics,
)
from penstock.runtime import process_metrics

DOCUMENT_PATH = Path(__file__).parents[3] / "docs" / "metrics.md"
MARK = "<!-- From here on this page is written by `make docs`. -->\n"

SECTIONS: tuple[tuple[str, ModuleType], ...] = (
    ("Traffic", topics),
    ("Requests and connections", requests),
    ("Partitions, replication, logs and disks", replicas),
    ("Damaged replicas", damage),
    ("Controller and quorum", quorum),
    ("Groups and transactions", coordinators),
    ("Share groups", shares),
    ("Rules and audit", rules),
    ("Tenants", tenants),
    ("Tiered storage", tier),
    ("Cluster links", links),
    ("Metrics of clients", clients),
    ("Process", process_metrics),
    ("Gateway", gateway),
)


def document() -> str:
    """The whole page: the hand-written part, and the tables after it."""
    written, _, _ = DOCUMENT_PATH.read_text("utf-8").partition(MARK)
    tables = [f"### {title}\n\n{_table(declared_in(module))}" for title, module in SECTIONS]
    return written + MARK + "\n" + "\n".join(tables)


def declared_in(module: ModuleType) -> list[Metric]:
    """The metrics that a module declares, in its order."""
    return [value for value in vars(module).values() if isinstance(value, Metric)]


def _table(metrics: Iterable[Metric]) -> str:
    lines = ["| name | kind | labels | meaning |", "|---|---|---|---|"]
    for metric in metrics:
        labels = [*metric.labels, *(f"({label})" for label in metric.detail_labels)]
        note = f" Detail `{metric.detail}`." if metric.detail else ""
        lines.append(f"| `{metric.name}` | {metric.kind} | {', '.join(labels)} | {metric.help}{note} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    DOCUMENT_PATH.write_text(document(), encoding="utf-8")
