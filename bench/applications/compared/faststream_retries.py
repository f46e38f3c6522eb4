"""A consumer with retries and dead letters: FastStream has neither for Kafka, so both are written here."""

import asyncio
import os

from faststream import AckPolicy, FastStream
from faststream.confluent import KafkaBroker, KafkaMessage
from pydantic import BaseModel, ValidationError

broker = KafkaBroker(os.environ["PENSTOCK_BOOTSTRAP"], acks="all", enable_idempotence=True, logger=None)
app = FastStream(broker, logger=None)
RETRIES = 3


class Order(BaseModel):
    item: str
    amount: int


async def bill(order: Order) -> None:
    if order.amount < 0:
        raise ValueError("cannot be billed")


async def put_aside(message: KafkaMessage, error: Exception) -> None:
    raw = message.raw_message
    headers = {"reason": f"{type(error).__name__}: {error}", "topic": raw.topic(), "offset": str(raw.offset())}
    await broker.publish(message.body, "dlq.orders", key=raw.key(), headers=headers)


@broker.subscriber(
    "orders",
    group_id="billing",
    auto_offset_reset="earliest",
    ack_policy=AckPolicy.MANUAL,
    decoder=lambda message: message.body,
)
async def handle(body: bytes, message: KafkaMessage) -> None:
    try:
        order = Order.model_validate_json(body)
    except ValidationError as error:
        await put_aside(message, error)
        await message.ack()
        return
    for attempt in range(RETRIES + 1):
        try:
            await bill(order)
            break
        except Exception as error:
            if attempt == RETRIES:
                await put_aside(message, error)
            else:
                await asyncio.sleep(0.1 * 2**attempt)  # the whole partition waits
    await message.ack()


if __name__ == "__main__":
    asyncio.run(app.run())
