"""Clients of brokers: what applications import, and the wire client that Penstock's own parts use.

`Producer`, `Consumer` and `ShareConsumer` (in `application`, on librdkafka), and `Admin`, are loaded when they are
first used; for asyncio they are in `aio`.

Of the wire client, `settings` contains where and how to connect, `protocol` is the sans-IO protocol, `connection` and
`peer` run it on a socket (blocking, and for event loops), `cluster` and `peers` talk to a whole cluster. `operations`
are the requests to a cluster, without I/O.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.client.application.access import AccessRule
    from penstock.client.application.admin import Admin
    from penstock.client.application.connection import Connection
    from penstock.client.application.consumer import Consumer
    from penstock.client.application.descriptions import (
        Broker,
        ClusterDescription,
        GroupDescription,
        GroupMember,
        PartitionDescription,
        TopicDescription,
    )
    from penstock.client.application.errors import (
        ConnectionFailed,
        DeliveryFailed,
        NotAuthorized,
        PenstockError,
        ProducerFenced,
        SerializationFailed,
        TimedOut,
        TopicExists,
        TransactionAborted,
        UnknownTopic,
    )
    from penstock.client.application.producer import Producer
    from penstock.client.application.records import Record, Stored
    from penstock.client.application.registry import Registry
    from penstock.client.application.schemas import Avro, JsonSchema, Protobuf
    from penstock.client.application.serdes import Bytes, Json, Serde, Text
    from penstock.client.application.share import ShareConsumer

# Where each public name is.
MODULES = {
    "access": ("AccessRule",),
    "admin": ("Admin",),
    "connection": ("Connection",),
    "consumer": ("Consumer",),
    "descriptions": (
        "Broker",
        "ClusterDescription",
        "GroupDescription",
        "GroupMember",
        "PartitionDescription",
        "TopicDescription",
    ),
    "errors": (
        "ConnectionFailed",
        "DeliveryFailed",
        "NotAuthorized",
        "PenstockError",
        "ProducerFenced",
        "SerializationFailed",
        "TimedOut",
        "TopicExists",
        "TransactionAborted",
        "UnknownTopic",
    ),
    "producer": ("Producer",),
    "records": ("Record", "Stored"),
    "registry": ("Registry",),
    "schemas": ("Avro", "JsonSchema", "Protobuf"),
    "serdes": ("Bytes", "Json", "Serde", "Text"),
    "share": ("ShareConsumer",),
}
_MODULE_OF = {name: module for module, names in MODULES.items() for name in names}

__all__ = [
    "AccessRule",
    "Admin",
    "Avro",
    "Broker",
    "Bytes",
    "ClusterDescription",
    "Connection",
    "ConnectionFailed",
    "Consumer",
    "DeliveryFailed",
    "GroupDescription",
    "GroupMember",
    "Json",
    "JsonSchema",
    "NotAuthorized",
    "PartitionDescription",
    "PenstockError",
    "Producer",
    "ProducerFenced",
    "Protobuf",
    "Record",
    "Registry",
    "Serde",
    "SerializationFailed",
    "ShareConsumer",
    "Stored",
    "Text",
    "TimedOut",
    "TopicDescription",
    "TopicExists",
    "TransactionAborted",
    "UnknownTopic",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(f"penstock.client.application.{_MODULE_OF[name]}"), name)
    globals()[name] = found
    return found
