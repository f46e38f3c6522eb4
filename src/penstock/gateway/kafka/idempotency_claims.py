"""Which gateway may execute the request of an Idempotency-Key, from a log that all gateways read in order.

A gateway claims a key before it publishes, and writes the answer afterwards. The first claim of a key wins; others
wait for its answer. If a gateway certainly did not publish, it releases its claim. A claim that is neither answered nor
released in time was left by a gateway that died or lost its brokers: whether it published is unknown.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from penstock.core.fairness import FairCache

Kind = Literal["claim", "answer", "release"]
Answer = list[Any]
# Topic, partition, offset, timestamp.
ANSWER_FIELDS = 4
# The approximate size of an entry besides its texts, and what one may have on average.
ENTRY_BYTES, KEY_BYTES = 700, 1_000


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
    """The latest keys, at most `keys_max`. `on_change` is called with each key whose state has changed.

    The first part of a key, up to a zero byte, is its owner: one with many keys loses its own first.
    """

    def __init__(self, keys_max: int, on_change: Callable[[bytes], None] = lambda _: None) -> None:
        self._on_change = on_change
        self._holdings: FairCache[bytes, bytes, KeyState] = FairCache(keys_max, keys_max * KEY_BYTES)

    def holding(self, key: bytes) -> KeyState | None:
        """The state of a key, or None."""
        return self._holdings.peek(key)

    def apply(self, key: bytes, note: Note, timestamp_ms: int) -> None:
        """Apply the next record of the log."""
        holding = self._holdings.peek(key)
        if note.kind == "claim":
            if holding is not None:
                return
            state = KeyState(note.claim, note.fingerprint, timestamp_ms)
            size = ENTRY_BYTES + len(key) + len(note.claim) + len(note.fingerprint)
            self._holdings.put(key.partition(b"\0")[0], key, state, size)
        elif holding is None or holding.claim != note.claim or holding.answer is not None:
            return
        elif note.kind == "answer":
            holding.answer = note.answer
        else:
            self._holdings.pop(key)
        self._on_change(key)

    def forget_before(self, timestamp_ms: int) -> None:
        """Forget keys that were claimed before a point in time."""
        expired = []
        for key in self._holdings:
            holding = self._holdings.peek(key)
            if holding is None or holding.claimed_at_ms >= timestamp_ms:
                break
            expired.append(key)
        for key in expired:
            self._holdings.pop(key)
