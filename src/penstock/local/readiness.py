"""When a cluster of several nodes is ready: each node knows all running ones, so a client may start with any."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence

from penstock.client.connection import Connection
from penstock.client.failures import NoAnswer
from penstock.client.settings import read_settings
from penstock.wire.messages.metadata import MetadataRequest, MetadataResponse

POLL_S = 0.02
ANSWER_TIMEOUT_S = 3.0


def wait_until_known(
    addresses: Sequence[str],
    broker_ids: Collection[int],
    timeout_s: float,
    properties: Mapping[str, str] | None = None,
) -> bool:
    """Wait until the brokers at these addresses all list these brokers; False if they do not in time.

    `properties` are client settings, such as credentials.
    """
    deadline = time.monotonic() + timeout_s
    given = {"socket.connection.setup.timeout.ms": "3000", **(properties or {})}
    return all(_wait_at({**given, "bootstrap.servers": each}, set(broker_ids), deadline) for each in addresses)


def _wait_at(properties: Mapping[str, str], wanted: set[int], deadline: float) -> bool:
    settings = read_settings(properties)
    while time.monotonic() < deadline:
        try:
            with Connection(settings.bootstrap[0], settings, ANSWER_TIMEOUT_S) as connection:
                while time.monotonic() < deadline:
                    response: MetadataResponse = connection.call(MetadataRequest(topics=()))
                    if wanted <= {broker.node_id for broker in response.brokers}:
                        return True
                    time.sleep(POLL_S)
        except NoAnswer:
            time.sleep(POLL_S)
    return False
