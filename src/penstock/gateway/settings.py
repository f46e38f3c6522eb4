"""Settings of a gateway: where the cluster is, where it listens, and how much it takes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.gateway.web.application import Limits
from penstock.gateway.work.budgets import Budgets


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """What a gateway is started with. A port of 0 is a free one."""

    bootstrap_servers: str
    host: str = "127.0.0.1"
    rest_port: int = 8080
    registry_port: int = 8081
    client_properties: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    budgets: Budgets = field(default_factory=Budgets)
    # Publishing: small records wait this long for company, and so many may wait for the brokers.
    linger_ms: int = 2
    publish_timeout_ms: int = 30_000
    queued_records_max: int = 100_000
    # Reading: consumers that are kept open for reads by offset, and what one read returns at most.
    readers_max: int = 16
    read_records_max: int = 10_000
    read_bytes_max: int = 8 * 1024 * 1024
    poll_timeout_ms_max: int = 60_000
    # Consumers that belong to callers: group members over HTTP, and live tails.
    instances_max: int = 200
    instance_idle_s: float = 300.0
    tails_max: int = 100
    # Answers that are remembered for requests that carry an Idempotency-Key.
    idempotency_keys_max: int = 100_000
    idempotency_s: float = 24 * 60 * 60

    def client(self, **more: Any) -> dict[str, Any]:
        """librdkafka's settings; what the operator set wins."""
        return {
            "bootstrap.servers": self.bootstrap_servers,
            "client.id": "penstock-gateway",
            "log_level": 3,
            "socket.connection.setup.timeout.ms": 5000,
            "reconnect.backoff.max.ms": 1000,
            **more,
            **self.client_properties,
        }
