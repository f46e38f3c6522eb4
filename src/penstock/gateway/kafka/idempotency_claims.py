"""Which gateway may execute the request of an Idempotency-Key, from a log that all gateways read in order.

A gateway claims a key before it publishes, and writes the answer afterwards. The first claim of a key wins; others
wait for its answer. If a gateway certainly did not publish, it releases its claim. A claim that is neither answered nor
released in time was left by a gateway that died or lost its brokers: whether it published is unknown.
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
        """The encoded record."""
        return json.dumps([self.kind, self.claim, self.fingerprint, self.answer], separators=(",", ":")).encode()


def decode(value: bytes | None) -> Note | None:
    """The note in a record; None if it is not valid."""
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
class KeyState:
    """The state of a key: who holds it, for which request, since when, and the answer once there is one."""

    claim: str
    fingerprint: str
    claimed_at_ms: int
    answer: Answer | None = None


class ClaimLog:
    """The latest keys, at most `keys_max`. `on_change` is called with each key whose state has changed."""

    def __init__(self, keys_max: int, on_change: Callable[[bytes], None] = lambda _: None) -> None:
        self._keys_max = keys_max
        self._on_change = on_change
        self._holdings: OrderedDict[bytes, KeyState] = OrderedDict()

    def holding(self, key: bytes) -> KeyState | None:
        """The state of a key, or None."""
        return self._holdings.get(key)

    def apply(self, key: bytes, note: Note, timestamp_ms: int) -> None:
        """Apply the next record of the log."""
        holding = self._holdings.get(key)
        if note.kind == "claim":
            if holding is not None:
                return
            while len(self._holdings) >= self._keys_max:
                self._holdings.popitem(last=False)
            self._holdings[key] = KeyState(note.claim, note.fingerprint, timestamp_ms)
        elif holding is None or holding.claim != note.claim or holding.answer is not None:
            return
        elif note.kind == "answer":
            holding.answer = note.answer
        else:
            del self._holdings[key]
        self._on_change(key)

    def forget_before(self, timestamp_ms: int) -> None:
        """Forget keys that were claimed before a point in time."""
        while self._holdings:
            key, holding = next(iter(self._holdings.items()))
            if holding.claimed_at_ms >= timestamp_ms:
                return
            del self._holdings[key]
