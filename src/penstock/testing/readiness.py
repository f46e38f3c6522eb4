"""When a cluster of several nodes is ready: each of them knows all that run, so a client may begin with any."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

from penstock.testing.channel import Channel, NoAnswer
from penstock.wire.messages.metadata import MetadataRequest, MetadataResponse

POLL_S = 0.02


def wait_until_known(addresses: Sequence[str], broker_ids: Collection[int], timeout_s: float) -> bool:
    """Wait until the brokers at these addresses all name these brokers; False when they do not in time."""
    deadline = time.monotonic() + timeout_s
    return all(_wait_at(address, set(broker_ids), deadline) for address in addresses)


def _wait_at(address: str, wanted: set[int], deadline: float) -> bool:
    host, _, port = address.rpartition(":")
    while time.monotonic() < deadline:
        try:
            with Channel(host.strip("[]"), int(port)) as channel:
                while time.monotonic() < deadline:
                    response: MetadataResponse = channel.call(MetadataRequest(topics=()))
                    if wanted <= {broker.node_id for broker in response.brokers}:
                        return True
                    time.sleep(POLL_S)
        except NoAnswer:
            time.sleep(POLL_S)
    return False
