"""Every setting that Kafka 4.3 knows and Penstock's own, read from definitions/*.txt: one line each, seven columns.

- setting: its name.
- type: a PropertyType.
- default: `-` when it is not set, `required` when it must be, `""` for an empty text or list, `max` for the largest
  number of the type.
- allowed: `low..high` or `low..`, each with `or value` for exceptions; or the choices, `in any case` if that is so.
- change: who can change it while the cluster runs: `cluster` for all brokers at once, `broker` for one of them,
  `dynamic` for one of them and not in a file. In the files of topics and groups the column is `broker default`: the
  broker settings that give the default, the first that is set.
- effect: empty when Penstock acts on it; `later` when it does not yet; `none: reason` when it never will; `refused:
  reason` when nothing but the default is accepted. reasons.txt has the reasons. `internal` besides for what no page
  and no answer shows unless it is set.
- what it does: one sentence.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from penstock.config.properties import (
    INT_MAX,
    LONG_MAX,
    REQUIRED,
    Effect,
    Property,
    PropertyType,
    Required,
    UpdateMode,
    Value,
    index,
)

_DEFINITIONS = Path(__file__).with_name("definitions")
_BROKER_FILES = ("node", "penstock", "log", "coordinators", "cluster", "security")
_TYPES = {type.name.lower(): type for type in PropertyType}
_UPDATE_MODES = {
    "": UpdateMode.READ_ONLY,
    "broker": UpdateMode.PER_BROKER,
    "cluster": UpdateMode.CLUSTER_WIDE,
    "dynamic": UpdateMode.DYNAMIC_ONLY,
}
_EFFECTS = {"": Effect.ACTED_ON, "later": Effect.PLANNED, "none": Effect.ACCEPTED, "refused": Effect.REFUSED}
_MAXIMA: dict[PropertyType, Value] = {
    PropertyType.INT: INT_MAX,
    PropertyType.LONG: LONG_MAX,
    PropertyType.DOUBLE: sys.float_info.max,
}
_ANY_CASE = " in any case"
_MS_OF_UNIT = {"minutes": 60_000, "hours": 3_600_000}


@dataclass(frozen=True, slots=True)
class Synonym:
    """A broker property that gives another property's default; its value times `multiplier` is that value."""

    row: Property
    multiplier: int = 1

    @property
    def name(self) -> str:
        return self.row.name


def _lines(stem: str) -> list[list[str]]:
    text = (_DEFINITIONS / f"{stem}.txt").read_text("utf-8")
    return [
        [cell.strip() for cell in line.split("|")]
        for line in text.splitlines()
        if line and not line.startswith(("#", "setting "))
    ]


def _rows(stem: str) -> tuple[Property, ...]:
    return tuple(_property(*cells) for cells in _lines(stem))


def _property(name: str, type_name: str, default: str, allowed: str, update: str, effect: str, doc: str) -> Property:
    type = _TYPES[type_name]
    limits, _, exception = allowed.partition(" or ")
    low, is_range, high = limits.partition("..")
    internal = effect.startswith("internal")
    effect, _, reason = effect.removeprefix("internal").removeprefix(", ").partition(": ")
    return Property(
        name,
        type,
        _default(type, default),
        doc,
        minimum=_number(low) if is_range else None,
        maximum=_number(high) if high else None,
        choices=tuple(allowed.removesuffix(_ANY_CASE).split(", ")) if allowed and not is_range else (),
        exceptions=(int(exception),) if exception else (),
        # What gives a topic's default is not about the topic's own property.
        update=_UPDATE_MODES.get(update, UpdateMode.READ_ONLY),
        effect=_EFFECTS[effect],
        reason=_REASONS[reason] if reason else "",
        internal=internal,
        ignore_case=allowed.endswith(_ANY_CASE),
    )


def _default(type: PropertyType, text: str) -> Value | Required:
    match text:
        case "-":
            return None
        case "required":
            return REQUIRED
        case "max":
            return _MAXIMA[type]
    match type:
        case PropertyType.BOOLEAN:
            return text == "true"
        case PropertyType.INT | PropertyType.SHORT | PropertyType.LONG:
            return int(text)
        case PropertyType.DOUBLE:
            return float(text)
        case PropertyType.LIST:
            return () if text == '""' else tuple(text.split(", "))
        case _:
            return "" if text == '""' else text


def _number(text: str) -> float:
    return float(text) if "." in text else int(text)


def _synonyms(stem: str) -> dict[str, tuple[Synonym, ...]]:
    return {
        cells[0]: tuple(
            Synonym(BROKER_PROPERTIES[name], _MS_OF_UNIT.get(name.rpartition(".")[2], 1))
            for name in cells[4].split(", ")
        )
        for cells in _lines(stem)
        if cells[4]
    }


_REASONS = dict(_lines("reasons"))
BROKER_SECTIONS = {stem: _rows(stem) for stem in _BROKER_FILES}
BROKER_PROPERTIES = index(row for rows in BROKER_SECTIONS.values() for row in rows)
TOPIC_PROPERTIES = index(_rows("topic"))
TOPIC_SYNONYMS = _synonyms("topic")
GROUP_PROPERTIES = index(_rows("group"))
GROUP_SYNONYMS = _synonyms("group")
CLIENT_METRICS_PROPERTIES = index(_rows("client_metrics"))
