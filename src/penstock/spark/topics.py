"""What writers ask of topics: that they exist, and how large their records may be."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeVar

from penstock.spark.cluster import PATIENCE_SECONDS, PAUSE_SECONDS_MAX
from penstock.spark.security import Access, librdkafka_properties

TIMEOUT_SECONDS = 30.0
# The default of max.message.bytes.
MESSAGE_BYTES_DEFAULT = 1_048_588

Answer = TypeVar("Answer")


@lru_cache(maxsize=8)
def admin_client(access: Access) -> Any:
    """librdkafka's admin client for a cluster."""
    from confluent_kafka.admin import AdminClient

    security = ("bootstrap.servers", "security.", "sasl.", "ssl.")
    properties = {name: value for name, value in librdkafka_properties(access).items() if name.startswith(security)}
    return AdminClient({**properties, "log_level": 3})


def patiently(ask: Callable[[], Answer]) -> Answer:
    """Ask again while brokers restart, for as long as `PATIENCE_SECONDS`; other answers come out at once."""
    from confluent_kafka import KafkaError, KafkaException

    away = (
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._RESOLVE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NOT_CONTROLLER,
    )
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return ask()
        except KafkaException as error:
            if error.args[0].code() not in away or time.monotonic() > deadline:
                raise
        time.sleep(PAUSE_SECONDS_MAX)


def ensure_topic(access: Access, topic: str, partitions: int, settings: Mapping[str, str] | None = None) -> bool:
    """Create a topic unless it exists; returns whether it was created."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.cimpl import NewTopic

    new_topic = NewTopic(topic, partitions, -1, config=dict(settings or {}))
    try:
        patiently(lambda: admin_client(access).create_topics([new_topic])[topic].result(timeout=TIMEOUT_SECONDS))
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
        return False
    return True


@lru_cache(maxsize=1024)
def message_bytes_max(access: Access, topic: str) -> int:
    """The topic's max.message.bytes; the default where it cannot be asked (no right to, or a topic to be created)."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import ConfigResource  # type: ignore[attr-defined]

    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    try:
        found = patiently(
            lambda: admin_client(access).describe_configs([resource])[resource].result(timeout=TIMEOUT_SECONDS)
        )
    except KafkaException:
        return MESSAGE_BYTES_DEFAULT
    entry = found.get("max.message.bytes")
    return int(entry.value) if entry is not None else MESSAGE_BYTES_DEFAULT
