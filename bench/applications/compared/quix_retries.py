"""A consumer with retries and dead letters: Quix Streams has neither, so both are written here."""

import os
import time
from dataclasses import dataclass

from quixstreams import Application
from quixstreams.context import message_context

app = Application(
    broker_address=os.environ["PENSTOCK_BOOTSTRAP"],
    consumer_group="billing",
    auto_offset_reset="earliest",
    commit_interval=0.2,
    loglevel="ERROR",
    producer_extra_config={"enable.idempotence": True},
)
orders = app.topic("orders", value_deserializer="bytes", key_deserializer="bytes")
dead_letters = app.topic("dlq.orders", value_serializer="bytes", key_serializer="bytes")
RETRIES = 3


@dataclass
class Order:
    item: str
    amount: int


def bill(order: Order) -> None:
    if order.amount < 0:
        raise ValueError("cannot be billed")


def attempt_all(value: bytes) -> bytes | None:
    """The value if it is to be put aside."""
    import json

    try:
        order = Order(**json.loads(value))
    except (ValueError, TypeError):
        return value
    for attempt in range(RETRIES + 1):
        try:
            bill(order)
            return None
        except Exception:
            if attempt < RETRIES:
                time.sleep(0.1 * 2**attempt)  # everything waits
    return value


def reasons(value: bytes, key: bytes, timestamp: int, headers: object) -> list[tuple[str, bytes]]:
    context = message_context()
    return [("topic", context.topic.encode()), ("offset", str(context.offset).encode())]


frame = app.dataframe(orders)
failed = frame.apply(attempt_all).filter(lambda value: value is not None)
failed = failed.set_headers(reasons)
failed.to_topic(dead_letters)

if __name__ == "__main__":
    app.run()
