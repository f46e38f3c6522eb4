"""A fictitious shop: its customers, and an evening of orders, some of which the pipeline must reject.

Everything is derived from one `Random`, so a seed reproduces the same evening. Times are simulated: an order is placed
`at` a moment and arrives later, sometimes much later, and arrivals are in order.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from random import Random

GUEST = "guest"
COUNTRIES = {"Germany": 0.31, "France": 0.24, "Italy": 0.19, "Spain": 0.15, "Poland": 0.11}
PRODUCTS = {
    "tea": Decimal("4.90"),
    "coffee": Decimal("8.40"),
    "chocolate": Decimal("3.25"),
    "olive oil": Decimal("12.80"),
    "honey": Decimal("6.60"),
    "pasta": Decimal("2.15"),
    "wine": Decimal("14.50"),
    "cheese": Decimal("9.75"),
}
SALE_PRODUCT = "olive oil"
MINUTES = 180
SALE_MINUTE = 105
# The pipeline accepts records up to 15 minutes late, and clocks that are ahead by one minute.
LATE_MINUTES = (1, 12)
TOO_LATE_MINUTES = (20, 40)
# Without an acknowledgement the shop resends its order within this time, well below the watermark's delay.
REPEAT_MINUTES_MAX = 4


class Fate(Enum):
    """The expected fate of a record."""

    SALE = "sale"
    REPEAT = "sent again"
    BROKEN = "broken JSON"
    INCOMPLETE = "no id"
    MISTYPED = "no number"
    TOO_LATE = "too late"
    WRONG_CLOCK = "wrong clock"

    @property
    def is_dead_letter(self) -> bool:
        """Whether the pipeline must send the record to the dead letters."""
        return self not in (Fate.SALE, Fate.REPEAT)


SHARES = {
    Fate.BROKEN: 0.008,
    Fate.INCOMPLETE: 0.004,
    Fate.MISTYPED: 0.003,
    Fate.TOO_LATE: 0.004,
    Fate.WRONG_CLOCK: 0.001,
    Fate.REPEAT: 0.02,
}
LATE_SHARE = 0.03


@dataclass(frozen=True, slots=True)
class Order:
    """One customer's purchase of one product."""

    id: str
    customer: str
    product: str
    quantity: int
    amount: Decimal
    at: datetime

    def fields(self) -> dict[str, object]:
        """The order as JSON fields."""
        at = self.at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        amount = float(self.amount)
        return {"id": self.id, "customer": self.customer, "product": self.product, "quantity": self.quantity,
                "amount": amount, "at": at}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Arrival:
    """One record that arrives in the orders topic, and its expected fate."""

    arrives: datetime
    value: bytes
    fate: Fate
    order: Order


def customer_records(random: Random, count: int) -> list[tuple[str, bytes | None]]:
    """The records of the customers topic, in order: all customers, then moves, then deletions (None)."""
    people = [f"c{number:04}" for number in range(count)]
    records = [(key, _customer(random, key)) for key in people]
    moved = [(key, _customer(random, key)) for key in random.sample(people, count // 20)]
    forgotten: list[tuple[str, bytes | None]] = [(key, None) for key in random.sample(people, count // 25)]
    return [*records, *moved, *forgotten]


def newest_countries(records: list[tuple[str, bytes | None]]) -> dict[str, str]:
    """The country of each customer, from the newest record of each."""
    newest = dict(records)
    return {key: str(json.loads(value)["country"]) for key, value in newest.items() if value is not None}


def arrivals(random: Random, opening: datetime, customers: list[str], orders_per_minute: float) -> Iterator[Arrival]:
    """An evening's records in the order in which they arrive, all of them after `opening`."""
    waiting: list[Arrival] = []
    closing = opening + timedelta(minutes=MINUTES)
    number = 0
    for minute in range(MINUTES):
        count = round(orders_per_minute * _demand(minute) * random.uniform(0.94, 1.06))
        for _ in range(count):
            at = opening + timedelta(minutes=minute, seconds=random.uniform(0, 60))
            order = _order(random, number, at, random.choice(customers), SALE_MINUTE <= minute < SALE_MINUTE + 12)
            waiting.extend(_records(random, order, closing))
            number += 1
        waiting.sort(key=lambda each: each.arrives)
        ends = opening + timedelta(minutes=minute + 1)
        while waiting and waiting[0].arrives < ends:
            yield waiting.pop(0)
    yield from waiting


def closing_bell(last: datetime, customer: str) -> Arrival:
    """An order of the next morning, which advances the watermark past the evening so that its minutes are closed."""
    at = last + timedelta(hours=12)
    order = Order("next-morning", customer, "tea", 1, PRODUCTS["tea"], at)
    return Arrival(at, _json(order.fields()), Fate.SALE, order)


def yesterday_evening(now: datetime) -> datetime:
    """17:00 of the day before, in UTC: recent enough that retention does not remove it."""
    return (now.astimezone(UTC) - timedelta(days=1)).replace(hour=17, minute=0, second=0, microsecond=0)


def _demand(minute: int) -> float:
    """How busy the shop is: people come home, dine, and come for the sale."""
    home = math.exp(-(((minute - 45) / 28) ** 2))
    dinner = 0.75 * math.exp(-(((minute - 140) / 22) ** 2))
    sale = 1.2 * math.exp(-(minute - SALE_MINUTE) / 7) if minute >= SALE_MINUTE else 0.0
    return 0.45 + 0.75 * home + dinner + sale


def _customer(random: Random, key: str) -> bytes:
    country = random.choices(list(COUNTRIES), list(COUNTRIES.values()))[0]
    return _json({"name": f"Customer {key}", "country": country})


def _order(random: Random, number: int, at: datetime, customer: str, sale: bool) -> Order:
    product = SALE_PRODUCT if sale and random.random() < 0.6 else random.choice(list(PRODUCTS))
    quantity = 1 + min(8, int(random.expovariate(0.8)))
    return Order(f"o{number:06}", customer, product, quantity, PRODUCTS[product] * quantity, at)


def _records(random: Random, order: Order, closing: datetime) -> Iterator[Arrival]:
    fate = random.choices([*SHARES, Fate.SALE], [*SHARES.values(), 1 - sum(SHARES.values())])[0]
    if fate is Fate.TOO_LATE and order.at + timedelta(minutes=TOO_LATE_MINUTES[1]) > closing:
        fate = Fate.SALE
    arrives = order.at + timedelta(seconds=random.uniform(0.1, 3))
    if fate is Fate.REPEAT:
        again = arrives + timedelta(minutes=random.uniform(0.1, REPEAT_MINUTES_MAX))
        yield Arrival(arrives, _json(order.fields()), Fate.SALE, order)
        yield Arrival(again, _json(order.fields()), Fate.REPEAT, order)
        return
    if fate is Fate.SALE and random.random() < LATE_SHARE:
        arrives += timedelta(minutes=random.uniform(*LATE_MINUTES))
    yield _invalid(random, order, arrives, fate)


def _invalid(random: Random, order: Order, arrives: datetime, fate: Fate) -> Arrival:
    fields = order.fields()
    if fate is Fate.BROKEN:
        whole = _json(fields)
        return Arrival(arrives, whole[: random.randrange(5, len(whole) - 5)], fate, order)
    if fate is Fate.INCOMPLETE:
        del fields["id"]
    elif fate is Fate.MISTYPED:
        fields["amount"] = "a lot"
    elif fate is Fate.TOO_LATE:
        arrives += timedelta(minutes=random.uniform(*TOO_LATE_MINUTES))
    elif fate is Fate.WRONG_CLOCK:
        fields["at"] = (order.at + timedelta(days=36_500)).strftime("%Y-%m-%dT%H:%M:%SZ")
    return Arrival(arrives, _json(fields), fate, order)


def _json(fields: dict[str, object]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()
