"""The expected results: every record that a broker acknowledged, and its expected fate."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple

from examples.demo.shop import GUEST, Arrival, Fate, Order


class RecordPosition(NamedTuple):
    """A record's position in its topic."""

    partition: int
    offset: int


class Sale(NamedTuple):
    """The sale that the pipeline must derive from an order."""

    country: str
    amount: Decimal


class Minute(NamedTuple):
    """A row of the revenue: a minute and a country."""

    minute: datetime
    country: str


class Total(NamedTuple):
    """The values of a revenue row."""

    orders: int
    revenue: Decimal


@dataclass(slots=True)
class Ledger:
    """The records of one evening. `countries` has each customer's country, from the newest record of each."""

    countries: Mapping[str, str] = field(default_factory=dict)
    arrivals: dict[RecordPosition, Arrival] = field(default_factory=dict)
    orders: dict[str, Order] = field(default_factory=dict)

    def note(self, arrival: Arrival, position: RecordPosition) -> None:
        """A broker has acknowledged this record at this position."""
        self.arrivals[position] = arrival
        if arrival.fate is Fate.SALE:
            self.orders[arrival.order.id] = arrival.order

    def country(self, order: Order) -> str:
        """The country of an order: its customer's, unless the customer is unknown."""
        return self.countries.get(order.customer, GUEST)

    def sales(self) -> dict[str, Sale]:
        """By order: the sales that must be in the sales topic, once each."""
        return {order.id: Sale(self.country(order), order.amount) for order in self.orders.values()}

    def revenue(self) -> dict[Minute, Total]:
        """By minute and country: the expected revenue rows."""
        orders: Counter[Minute] = Counter()
        revenue: defaultdict[Minute, Decimal] = defaultdict(Decimal)
        for order in self.orders.values():
            line = Minute(order.at.replace(second=0, microsecond=0), self.country(order))
            orders[line] += 1
            revenue[line] += order.amount
        return {line: Total(orders[line], revenue[line]) for line in orders}

    def records(self) -> dict[RecordPosition, bytes]:
        """By position: the value of every acknowledged record."""
        return {position: arrival.value for position, arrival in self.arrivals.items()}

    def dead_letters(self) -> dict[RecordPosition, Arrival]:
        """By position in the orders topic: the expected dead letters."""
        return {position: arrival for position, arrival in self.arrivals.items() if arrival.fate.is_dead_letter}

    def count(self, fate: Fate) -> int:
        """How many records with a fate were acknowledged."""
        return sum(arrival.fate is fate for arrival in self.arrivals.values())
