"""Who may carry out the request of an Idempotency-Key, told from a log that all gateways read in the same order.

A gateway claims a key before it publishes, and writes the answer after it has. The first claim of a key counts; others
wait for its answer. A claim whose gateway cannot have published is released. One that is neither answered nor released
in time was left behind by a gateway that went away, or whose brokers did: whether it published, nobody knows.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["claim", "answer", "release"]
Answer = list[Any]
# Topic, partition, offset, timestamp.
ANSWER_FIELDS = 4


@dataclass(frozen=True, slots=True)
class Note:
    """A record of the log."""

    kind: Kind
    claim: str
    fingerprint: str = ""
    answer: Answer | None = None

    def encode(self) -> bytes:
        """As it is written."""
        return json.dumps([self.kind, self.claim, self.fingerprint, self.answer], separators=(",", ":")).encode()


def decode(value: bytes | None) -> Note | None:
    """The note in a record; None for what nobody of ours has written."""
    try:
        kind, claim, fingerprint, answer = json.loads(value or b"")
    except (ValueError, TypeError, RecursionError):
        return None
    if kind not in ("claim", "answer", "release") or not isinstance(claim, str) or not isinstance(fingerprint, str):
        return None
    if kind == "answer" and not _is_answer(answer):
        return None
    return Note(kind, claim, fingerprint, answer if isinstance(answer, list) else None)


def _is_answer(answer: Any) -> bool:
    if not isinstance(answer, list) or len(answer) != ANSWER_FIELDS:
        return False
    return isinstance(answer[0], str) and all(isinstance(each, int) for each in answer[1:])


@dataclass(slots=True)
class Holding:
    """How a key stands: who holds it, for which request, since when, and the answer once there is one."""

    claim: str
    fingerprint: str
    claimed_at_ms: int
    answer: Answer | None = None


class KeyLedger:
    """The keys of the last notes, at most `keys_max`. `on_change` hears of each key whose holding has changed."""

    def __init__(self, keys_max: int, on_change: Callable[[bytes], None] = lambda _: None) -> None:
        self._keys_max = keys_max
        self._on_change = on_change
        self._holdings: OrderedDict[bytes, Holding] = OrderedDict()

    def holding(self, key: bytes) -> Holding | None:
        """Who has a key."""
        return self._holdings.get(key)

    def apply(self, key: bytes, note: Note, timestamp_ms: int) -> None:
        """Take the next note of the log."""
        holding = self._holdings.get(key)
        if note.kind == "claim":
            if holding is not None:
                return
            while len(self._holdings) >= self._keys_max:
                self._holdings.popitem(last=False)
            self._holdings[key] = Holding(note.claim, note.fingerprint, timestamp_ms)
        elif holding is None or holding.claim != note.claim or holding.answer is not None:
            return
        elif note.kind == "answer":
            holding.answer = note.answer
        else:
            del self._holdings[key]
        self._on_change(key)

    def forget_before(self, timestamp_ms: int) -> None:
        """Let go of keys that were claimed before a time."""
        while self._holdings:
            key, holding = next(iter(self._holdings.items()))
            if holding.claimed_at_ms >= timestamp_ms:
                return
            del self._holdings[key]
