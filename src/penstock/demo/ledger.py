"""What the generator knows: every record that a broker acknowledged, and what must have become of it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple

from penstock.demo.shop import GUEST, Arrival, Fate, Order


class Place(NamedTuple):
    """Where a record is in its topic."""

    partition: int
    offset: int


class Sale(NamedTuple):
    """What the pipeline must have made of an order."""

    country: str
    amount: Decimal


class Minute(NamedTuple):
    """A line of the revenue: a minute of a country."""

    minute: datetime
    country: str


class Total(NamedTuple):
    """What a line of the revenue says."""

    orders: int
    revenue: Decimal


@dataclass(slots=True)
class Ledger:
    """The books of one evening. `countries` is where each customer is at home, as the newest record of each says."""

    countries: Mapping[str, str] = field(default_factory=dict)
    arrivals: dict[Place, Arrival] = field(default_factory=dict)
    orders: dict[str, Order] = field(default_factory=dict)

    def note(self, arrival: Arrival, place: Place) -> None:
        """A broker has acknowledged this record at this place."""
        self.arrivals[place] = arrival
        if arrival.fate is Fate.SALE:
            self.orders[arrival.order.id] = arrival.order

    def country(self, order: Order) -> str:
        """Where an order counts: its customer's country, unless nobody knows the customer."""
        return self.countries.get(order.customer, GUEST)

    def sales(self) -> dict[str, Sale]:
        """By order: what must be in the topic of sales, once each."""
        return {order.id: Sale(self.country(order), order.amount) for order in self.orders.values()}

    def revenue(self) -> dict[Minute, Total]:
        """By minute and country: what the lines of the revenue must say."""
        orders: Counter[Minute] = Counter()
        revenue: defaultdict[Minute, Decimal] = defaultdict(Decimal)
        for order in self.orders.values():
            line = Minute(order.at.replace(second=0, microsecond=0), self.country(order))
            orders[line] += 1
            revenue[line] += order.amount
        return {line: Total(orders[line], revenue[line]) for line in orders}

    def records(self) -> dict[Place, bytes]:
        """By place: the value of every record that was acknowledged."""
        return {place: arrival.value for place, arrival in self.arrivals.items()}

    def dead_letters(self) -> dict[Place, Arrival]:
        """By place in the topic of orders: what must be among the dead letters."""
        return {place: arrival for place, arrival in self.arrivals.items() if arrival.fate.is_dead_letter}

    def count(self, fate: Fate) -> int:
        """How many records of a fate were acknowledged."""
        return sum(arrival.fate is fate for arrival in self.arrivals.values())
