"""Penstock: a distributed message broker that speaks Apache Kafka's protocol."""

__version__ = "0.1.0"
