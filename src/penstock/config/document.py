"""Writes docs/configuration.md from the tables: `python -m penstock.config.document`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from penstock.config.properties import INT_MAX, LONG_MAX, REQUIRED, Effect, Property, UpdateMode
from penstock.config.tables import (
    BROKER_SECTIONS,
    CLIENT_METRICS_PROPERTIES,
    GROUP_PROPERTIES,
    GROUP_SYNONYMS,
    TOPIC_PROPERTIES,
    TOPIC_SYNONYMS,
)

DOCUMENT_PATH = Path(__file__).parents[3] / "docs" / "configuration.md"

_INTRODUCTION = """\
# Configuration

Penstock takes Kafka's own property names, in Kafka's own file format: `penstock server --config server.properties`.
Names, types, defaults and limits are those of Apache Kafka 4.3; settings that begin with `penstock.` are extras.
Two defaults differ, so that the partitions of a host that falls silent have another leader within five seconds:
`broker.session.timeout.ms` is 4000 (Kafka: 9000) and `broker.heartbeat.interval.ms` 1000 (Kafka: 2000). Two more leave
the sizes of a connection's buffers to the system, which knows them better: `socket.send.buffer.bytes` and
`socket.receive.buffer.bytes` are -1 (Kafka: 102400).
`python -m penstock.config.document` writes this page from the tables that the program reads.

A configuration is read as a whole and every mistake is named with its line. A name that is nearly right is an
error, with a suggestion; a name that Penstock cannot know, such as a plugin's, is a warning.

The column *change* shows where a setting can change without a restart: on one broker, or for the whole cluster.
The column *effect* is empty for settings that Penstock acts on. **later** marks those that are checked but belong to a
feature that is still to come, **none** those that have no use here; a node that is given one logs that when it starts.
**refused** are those of a feature that Penstock does not have: nothing but the default is accepted.
"""

_EFFECTS = {Effect.ACTED_ON: "", Effect.PLANNED: "later", Effect.ACCEPTED: "none", Effect.REFUSED: "refused"}

_TOPIC_TEXT = """\
Set per topic, when it is created or later; a change takes effect at once. *Broker default* names the broker settings
that give the value for topics that don't say, the first that is set; hours and minutes are turned into milliseconds.
"""

_TITLES = {
    "penstock": "Penstock's own settings",
    "node": "Node, listeners, requests and quorum",
    "log": "Log",
    "coordinators": "Groups, offsets and transactions",
    "cluster": "Replication, quotas, tiered storage and metrics",
    "security": "Security",
}


def document() -> str:
    """The whole page."""
    parts = [
        _INTRODUCTION,
        "## Topic settings\n",
        _TOPIC_TEXT,
        _table(TOPIC_PROPERTIES.values(), "broker default", _broker_default),
    ]
    for stem, title in _TITLES.items():
        parts += [f"## {title}\n", _table(BROKER_SECTIONS[stem], "change", _change)]
    parts += [
        "## Group settings\n",
        _table(GROUP_PROPERTIES.values(), "broker default", _group_default),
        "## Client metrics subscriptions\n",
        _table(CLIENT_METRICS_PROPERTIES.values(), "broker default", lambda _row: ""),
        "## Accepted without effect\n",
        _reasons(Effect.ACCEPTED),
    ]
    refused = _reasons(Effect.REFUSED)
    if refused.strip():
        parts += ["## Refused\n", refused]
    return "\n".join(parts)


def _table(rows: Iterable[Property], last_title: str, last_column: Callable[[Property], str]) -> str:
    lines = [
        f"| setting | type | default | allowed | {last_title} | effect | what it does |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda row: row.name):
        if row.internal:
            continue
        cells = (
            f"`{row.name}`",
            row.type.name.lower(),
            _default(row),
            _allowed(row),
            last_column(row),
            _EFFECTS[row.effect],
            row.doc,
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _default(row: Property) -> str:
    if row.default is REQUIRED:
        return "required"
    if row.default == LONG_MAX or row.default == INT_MAX or (isinstance(row.default, float) and row.default > LONG_MAX):
        return "no limit"
    text = row.default_text
    return f"`{text}`" if text else "not set"


def _allowed(row: Property) -> str:
    if row.choices:
        return ", ".join(row.choices)
    exceptions = "".join(f" or {value}" for value in row.exceptions)
    if row.minimum is not None and row.maximum is not None:
        return f"{row.minimum} to {row.maximum}{exceptions}"
    return "" if row.minimum is None else f"at least {row.minimum}{exceptions}"


def _change(row: Property) -> str:
    return {UpdateMode.READ_ONLY: "", UpdateMode.CLUSTER_WIDE: "cluster"}.get(row.update, "broker")


def _broker_default(row: Property) -> str:
    return ", ".join(f"`{synonym.name}`" for synonym in TOPIC_SYNONYMS.get(row.name, ()))


def _group_default(row: Property) -> str:
    return ", ".join(f"`{synonym.name}`" for synonym in GROUP_SYNONYMS.get(row.name, ()))


def _reasons(effect: Effect) -> str:
    by_reason: dict[str, list[str]] = {}
    rows = [*TOPIC_PROPERTIES.values(), *(row for rows in BROKER_SECTIONS.values() for row in rows)]
    for row in rows:
        if row.effect is effect and not row.internal:
            by_reason.setdefault(row.reason, []).append(f"`{row.name}`")
    lines = [f"- {reason} {', '.join(sorted(names))}" for reason, names in sorted(by_reason.items())]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    DOCUMENT_PATH.write_text(document(), encoding="utf-8")
