"""State shared by the tasks of a process: a client per cluster, and topics' size limits."""

from __future__ import annotations

from functools import lru_cache

from penstock.client.cluster import ClusterClient
from penstock.client.settings import ConnectionSettings
from penstock.model.errors import ApiError

CLIENTS_KEPT_MAX = 8
# The default of max.message.bytes.
MESSAGE_BYTES_DEFAULT = 1_048_588


@lru_cache(maxsize=CLIENTS_KEPT_MAX)
def shared_client(settings: ConnectionSettings) -> ClusterClient:
    """This process's client for a cluster: Spark's Python workers run many tasks, one at a time."""
    return ClusterClient(settings)


@lru_cache(maxsize=1024)
def message_bytes_max(settings: ConnectionSettings, topic: str) -> int:
    """The topic's max.message.bytes; the default if it is unavailable (not authorized, or no such topic yet)."""
    try:
        return int(shared_client(settings).topic_config(topic, "max.message.bytes") or MESSAGE_BYTES_DEFAULT)
    except ApiError:
        return MESSAGE_BYTES_DEFAULT
