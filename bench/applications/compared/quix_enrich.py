"""Enrich and forward, exactly once."""

import os

from quixstreams import Application

app = Application(
    broker_address=os.environ["PENSTOCK_BOOTSTRAP"],
    consumer_group="enrich",
    auto_offset_reset="earliest",
    processing_guarantee="exactly-once",
    commit_interval=0.2,
    loglevel="ERROR",
)
PRICES = {"tea": 3, "coffee": 4}

frame = app.dataframe(app.topic("orders", value_deserializer="json", key_deserializer="bytes"))
frame = frame.apply(lambda order: {**order, "total": order["amount"] * PRICES[order["item"]]})  # a poison pill stops it
frame.to_topic(app.topic("priced", value_serializer="json", key_serializer="bytes"))

if __name__ == "__main__":
    app.run()
