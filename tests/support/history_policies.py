"""What may lawfully be gone: records before a partition's start, and those that newer ones with their key supersede."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from support.history import History, Kind, Operation, Status

Places = Mapping[str, Mapping[int, set[str]]]


class Policies:
    """What compaction and deletion were allowed to take of a finished history."""

    def __init__(self, history: History, places: Places) -> None:
        self._history = history
        self._offset_of: dict[tuple[str, str], int] = {
            (partition, value): offset
            for partition, by_offset in places.items()
            for offset, values in by_offset.items()
            for value in values
        }
        # By partition and key, the last offset that is there in the end.
        self._latest: dict[tuple[str, str | None], int] = {}
        # By operation without a known offset, one that it surely lies behind.
        self._behind: dict[Operation, int] = {}
        self._look_at_sends()

    def _look_at_sends(self) -> None:
        finals = {
            (partition, value): offset
            for partition, records in self._history.finals.items()
            for offset, value in records.items()
        }
        last: dict[tuple[str, str], int] = defaultdict(lambda: -1)
        for send in self._history.operations:
            if send.kind is not Kind.SEND:
                continue
            offset = self.offset(send)
            if offset is None:
                self._behind[send] = last[send.process, send.key]
            elif send.status is Status.OK:
                last[send.process, send.key] = offset
            place = finals.get((send.key, send.value))
            if place is None and send.is_tombstone and send.status is Status.OK:
                place = offset
            if place is not None:
                key = send.key, send.record_key
                self._latest[key] = max(place, self._latest.get(key, -1))

    def offset(self, send: Operation) -> int | None:
        """Where a record lies or lay, as far as anybody knows."""
        if isinstance(send.result, int):
            return send.result
        return self._offset_of.get((send.key, send.value))

    def let_go(self, send: Operation) -> bool:
        """Whether a record that is not there may be gone."""
        start = self._history.starts.get(send.key, 0)
        offset = self.offset(send)
        if (self._behind[send] + 1 if offset is None else offset) < start:
            return True
        if send.key not in self._history.compacted:
            return False
        latest = self._latest.get((send.key, send.record_key), -1)
        return send.is_tombstone or (latest >= 0 and (offset is None or latest > offset))
