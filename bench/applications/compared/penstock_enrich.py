"""Enrich and forward, exactly once."""

from dataclasses import dataclass

import penstock

app = penstock.App("enrich")
PRICES = {"tea": 3, "coffee": 4}


@dataclass
class Order:
    item: str
    amount: int


@dataclass
class Priced:
    item: str
    amount: int
    total: int


@app.subscribe("orders", publish="priced", guarantee="exactly-once")
async def price(order: Order) -> Priced:
    return Priced(order.item, order.amount, order.amount * PRICES[order.item])


if __name__ == "__main__":
    app.run()
