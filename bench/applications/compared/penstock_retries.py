"""A consumer with retries and dead letters."""

from dataclasses import dataclass

import penstock

app = penstock.App("billing")


@dataclass
class Order:
    item: str
    amount: int


@app.subscribe("orders", retries=3, backoff="exponential", delay_s=0.1, dead_letters=True)
async def bill(order: Order) -> None:
    if order.amount < 0:
        raise ValueError("cannot be billed")


if __name__ == "__main__":
    app.run()
