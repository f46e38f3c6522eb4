"""The file that `penstock pipeline init` writes: a pipeline that runs, with a word on everything in it."""

from __future__ import annotations

TEMPLATE = """\
# A pipeline: what is read, what is done with it, and where it goes.
#   penstock pipeline dry-run {file}    show what comes out, write nothing
#   penstock pipeline run {file}        run until it is stopped (--once: until everything is processed)
name: {name}
bootstrap: {bootstrap}
trigger: 5 seconds                # how often a micro-batch starts

sources:
  orders:
    topic: {topic}                 # or pattern: orders-.*
    decode: json                  # raw, json, csv, avro, protobuf
    schema: "id BIGINT, customer STRING, amount DECIMAL(12, 2), at TIMESTAMP"
    require: [id IS NOT NULL, amount >= 0]
    watermark: {{column: at, delay: 1 minute}}
    # What does not decode or does not hold goes to dlq.{topic} with the reason in its headers.

steps:
  unique_orders:
    from: orders
    dedup: [id]
  revenue:
    sql: |
      SELECT window.start AS minute, count(*) AS orders, sum(amount) AS revenue
      FROM unique_orders GROUP BY window(at, '1 minute')

sinks:
  revenue_topic:
    from: revenue
    topic: {topic}-revenue
    key: minute
    mode: append                  # a window's row is written once its time is over
  archive:
    from: unique_orders
    format: parquet
    path: archive/{name}
"""


def render(name: str, topic: str, bootstrap: str, file: str) -> str:
    """The template for a name, a topic and a cluster."""
    return TEMPLATE.format(name=name, topic=topic, bootstrap=bootstrap, file=file)
