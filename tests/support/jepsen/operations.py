"""The form of a history: one entry when an operation starts, and one when its outcome is known or given up on.

An operation is a list of micro-operations. `["send", key, value]` appends a value that no other send has; once its
offset is known it is `["send", key, [offset, value]]`. `["poll"]` reads on from where a consumer stands, and is
`["poll", {key: [[offset, value], ...]}]` afterwards. A key is the number of a partition, over all topics. `f` is
`send` or `poll` where there are only such micro-operations, and `txn` for a transaction. `assign` and `subscribe` have
a list of keys as their value; `crash` replaces the clients of a process.

`ok` has taken effect, `fail` has certainly not, and `info` may have, at any time. A process of which an operation ends
in `info` issues no further ones. Entries of the process `nemesis` are the faults.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DATA = ("send", "poll", "txn")
ASSIGNMENTS = ("assign", "subscribe")
NEMESIS = "nemesis"

Pairs = list[tuple[int | None, int]]


@dataclass(frozen=True, slots=True)
class Operation:
    """An entry of a history. Times are nanoseconds since its beginning, indexes count from 0."""

    index: int
    process: int | str
    type: str
    f: str
    value: Any
    time: int = 0
    # Keys that were assigned or revoked while it ran: a poll may continue anywhere in them.
    rebalanced: tuple[int, ...] = ()
    error: str | None = None

    def writes(self) -> dict[int, Pairs]:
        """By key, offsets (None if unknown) and values in the order in which they were sent."""
        found: dict[int, Pairs] = {}
        for micro in self._micro_operations("send"):
            _, key, value = micro
            pair = (value[0], value[1]) if isinstance(value, list | tuple) else (None, value)
            found.setdefault(key, []).append(pair)
        return found

    def reads(self) -> dict[int, Pairs]:
        """By key, offsets and values in the order in which they were polled."""
        found: dict[int, Pairs] = {}
        for micro in self._micro_operations("poll"):
            for key, pairs in (micro[1] if len(micro) > 1 else {}).items():
                found.setdefault(key, []).extend((offset, value) for offset, value in pairs)
        return found

    def _micro_operations(self, name: str) -> list[Any]:
        if self.f not in DATA or not self.value:
            return []
        return [micro for micro in self.value if micro[0] == name]

    def to_json(self) -> str:
        """One line of JSON."""
        entry: dict[str, Any] = {
            "index": self.index,
            "time": self.time,
            "process": self.process,
            "type": self.type,
            "f": self.f,
            "value": self.value,
        }
        if self.rebalanced:
            entry["rebalance-log"] = [{"keys": list(self.rebalanced)}]
        if self.error is not None:
            entry["error"] = self.error
        return json.dumps(entry, separators=(",", ":"))

    def to_edn(self) -> str:
        """One line of EDN, as Jepsen's own checker reads it."""
        parts = [
            f":index {self.index}",
            f":time {self.time}",
            f":process {f':{self.process}' if isinstance(self.process, str) else self.process}",
            f":type :{self.type}",
            f":f :{self.f}",
            f":value {_edn_value(self)}",
        ]
        if self.rebalanced:
            parts.append(f":rebalance-log [{{:keys {_edn(list(self.rebalanced))}}}]")
        if self.error is not None:
            parts.append(f":error {json.dumps(self.error)}")
        return "{" + ", ".join(parts) + "}"


def from_json(line: str) -> Operation:
    """What `to_json` wrote."""
    entry = json.loads(line)
    value = entry["value"]
    if entry["f"] in DATA and value:
        value = [_with_numbered_keys(micro) for micro in value]
    rebalanced = {key: None for event in entry.get("rebalance-log", ()) for key in event["keys"]}
    return Operation(
        entry["index"],
        entry["process"],
        entry["type"],
        entry["f"],
        value,
        entry["time"],
        tuple(rebalanced),
        entry.get("error"),
    )


def read_history(path: Path) -> list[Operation]:
    """A history of one JSON line for each entry."""
    with path.open() as file:
        return [from_json(line) for line in file]


def write_edn(operations: Iterable[Operation], path: Path) -> None:
    """A history in EDN, one line for each entry."""
    with path.open("w") as file:
        file.writelines(one.to_edn() + "\n" for one in operations)


def _with_numbered_keys(micro: list[Any]) -> list[Any]:
    if micro[0] == "poll" and len(micro) > 1:
        return ["poll", {int(key): pairs for key, pairs in micro[1].items()}]
    return micro


def _edn_value(operation: Operation) -> str:
    if operation.f in DATA and operation.value:
        return (
            "["
            + " ".join(f"[:{micro[0]}{''.join(' ' + _edn(part) for part in micro[1:])}]" for micro in operation.value)
            + "]"
        )
    return _edn(operation.value)


def _edn(value: Any) -> str:
    if value is None:
        return "nil"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_edn(key)} {_edn(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + " ".join(map(_edn, value)) + "]"
    return json.dumps(value)
