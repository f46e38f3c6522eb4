"""What a history shows about each log: who sent a value, who polled it, where it is, and whether it had to be there."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property

from .operations import ASSIGNMENTS, DATA, Operation

Sent = tuple[int, int]


class Log:
    """The values of one key by offset, as far as they were sent for certain or seen.

    Offsets are the log's own and have gaps where transactions left markers. Positions count the offsets at which
    anything is known, so neighbours in the log have neighbouring positions.
    """

    def __init__(self, values: dict[int, set[int]]) -> None:
        self.offsets = sorted(values)
        self.values = [values[offset] for offset in self.offsets]
        self.first: dict[int, int] = {}
        self.last: dict[int, int] = {}
        self.count: dict[int, int] = defaultdict(int)
        for position, found in enumerate(self.values):
            for value in found:
                self.first.setdefault(value, position)
                self.last[value] = position
                self.count[value] += 1

    def distance(self, pair: tuple[int | None, int], following: tuple[int | None, int]) -> int | None:
        """By how many positions the second offset and value come after the first; None if that is unknown."""
        one, other = self._position(pair), self._position(following)
        return None if one is None or other is None else other - one

    def between(self, pair: tuple[int | None, int], following: tuple[int | None, int]) -> list[int]:
        """The values that lie between two others."""
        one, other = self._position(pair), self._position(following)
        assert one is not None
        assert other is not None
        return [value for found in self.values[one + 1 : other] for value in sorted(found)]

    def _position(self, pair: tuple[int | None, int]) -> int | None:
        offset, value = pair
        if offset is not None:
            position = bisect_left(self.offsets, offset)
            if position < len(self.offsets) and self.offsets[position] == offset:
                return position
        return self.first.get(value)


class Analysis:
    """A history of clients, taken apart. Operations without an end count as ended in `info`."""

    def __init__(self, history: Iterable[Operation]) -> None:
        self.history = [one for one in history if isinstance(one.process, int)]
        # The completion of each operation, and the entry with which it started.
        self.completions: list[Operation] = []
        self.started: dict[int, int] = {}
        self._pair()

    def _pair(self) -> None:
        open_: dict[int | str, Operation] = {}
        for one in self.history:
            if one.type == "invoke":
                assert one.process not in open_, f"process {one.process} has two operations at a time: {one}"
                open_[one.process] = one
            else:
                started = open_.pop(one.process, None)
                assert started is None or started.f == one.f, f"{one} ends another operation: {started}"
                self.started[one.index] = started.index if started is not None else one.index
                self.completions.append(one)
        for index, one in enumerate(open_.values(), max((one.index for one in self.history), default=0) + 1):
            self.completions.append(replace(one, type="info", index=index))
            self.started[index] = one.index

    @cached_property
    def by_index(self) -> dict[int, Operation]:
        return {one.index: one for one in self.completions}

    @cached_property
    def data(self) -> list[Operation]:
        """Completed sends, polls and transactions."""
        return [one for one in self.completions if one.f in DATA]

    @cached_property
    def by_process(self) -> dict[int | str, list[Operation]]:
        """What each process completed, in order, changes of its assignment included."""
        found: dict[int | str, list[Operation]] = defaultdict(list)
        for one in self.completions:
            if one.f in DATA or one.f in ASSIGNMENTS:
                found[one.process].append(one)
        return found

    @cached_property
    def writer(self) -> dict[Sent, Operation]:
        """Who sent a value to a key."""
        found: dict[Sent, Operation] = {}
        for one in self.data:
            for key, pairs in one.writes().items():
                for _, value in pairs:
                    assert (key, value) not in found, f"{value} was sent to {key} twice: values must be unique"
                    found[key, value] = one
        return found

    @cached_property
    def readers(self) -> dict[Sent, list[Operation]]:
        """Who polled a value of a key, in operations of any outcome."""
        found: dict[Sent, list[Operation]] = defaultdict(list)
        for one in self.data:
            for key, pairs in one.reads().items():
                for value in {value: None for _, value in pairs}:
                    found[key, value].append(one)
        return found

    @cached_property
    def seen(self) -> dict[int, set[int]]:
        """By key the values that were polled by operations which ended in `ok`."""
        found: dict[int, set[int]] = defaultdict(set)
        for one in self.data:
            if one.type == "ok":
                for key, pairs in one.reads().items():
                    found[key].update(value for _, value in pairs)
        return found

    def took_effect(self, one: Operation) -> bool:
        """Whether an operation certainly did: all of a transaction did if any of it was seen."""
        if one.type != "info":
            return one.type == "ok"
        return any(value in self.seen.get(key, ()) for key, pairs in one.writes().items() for _, value in pairs)

    @cached_property
    def logs(self) -> dict[int, Log]:
        """By key. Polls count whatever became of their operation: consumers see nothing that may be taken back."""
        values: dict[int, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
        for one in self.data:
            sources = [one.reads()]
            if self.took_effect(one):
                sources.append(one.writes())
            for source in sources:
                for key, pairs in source.items():
                    for offset, value in pairs:
                        if offset is not None:
                            values[key][offset].add(value)
        return {key: Log(found) for key, found in sorted(values.items())}
