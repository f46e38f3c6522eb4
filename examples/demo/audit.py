"""Compares the ledger with the results: nothing lost, duplicated or changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from examples.demo.ledger import Ledger, Minute, RecordPosition, Sale, Total

Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Check:
    """One comparison. `strange` counts results that were found but never sent."""

    what: str
    expected: int
    found: int
    missing: int
    doubled: int
    different: int
    strange: int

    @property
    def sound(self) -> bool:
        """Whether there are no differences."""
        return not (self.missing or self.doubled or self.different or self.strange)


def compare(what: str, expected: Mapping[Key, Value], found: Iterable[tuple[Key, Value]]) -> Check:
    """Check that each key was found once, with the expected value, and no other key."""
    rows = list(found)
    copies = Counter(key for key, _ in rows)
    return Check(
        what=what,
        expected=len(expected),
        found=len(rows),
        missing=sum(key not in copies for key in expected),
        doubled=sum(count - 1 for count in copies.values()),
        different=sum(key in expected and expected[key] != value for key, value in rows),
        strange=sum(key not in expected for key in copies),
    )


def check_archive(ledger: Ledger, rows: Iterable[tuple[RecordPosition, bytes]]) -> Check:
    """Every acknowledged record is in the archive, byte for byte."""
    return compare("sent → archive", ledger.records(), rows)


def check_sales(ledger: Ledger, rows: Iterable[tuple[str, Sale]]) -> Check:
    """Every good order became one sale, however often it was sent, in its customer's country."""
    return compare("good orders → sales", ledger.sales(), rows)


def check_dead_letters(ledger: Ledger, positions: Iterable[RecordPosition]) -> Check:
    """Every invalid record is a dead letter, and no valid one is."""
    expected = dict.fromkeys(ledger.dead_letters(), True)
    return compare("bad records → dead letters", expected, ((position, True) for position in positions))


def check_revenue(ledger: Ledger, rows: Iterable[tuple[Minute, Total]], open_minutes: int) -> Check:
    """Every closed minute adds up to the cent; the newest `open_minutes` are still open and may be missing."""
    expected = ledger.revenue()
    still_open = sorted({line.minute for line in expected})[-open_minutes:] if open_minutes else []
    closed = {line: total for line, total in expected.items() if line.minute not in still_open}
    return compare("revenue by minute", closed, rows)
