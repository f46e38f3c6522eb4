"""A secured cluster for tests: certificates of its own authority, users, and a listener for each way of signing in."""

from __future__ import annotations

import datetime
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from penstock.cli.storage.format import format_directories
from penstock.cli.storage.users import parse_user
from penstock.config.load import load_node_settings
from penstock.local.layout import (
    CONTROLLER_HOST,
    held_ports,
    node_layouts,
    node_properties,
    write_properties,
)
from penstock.local.process import BrokerProcess
from penstock.runtime.security.certificates import KeyPair, issue, make_authority
from penstock.testing.cluster import TEST_SETTINGS

ADMIN, PASSWORD = "admin", "admin-secret"
CLUSTER_ID = "secure-cluster-of-test"
NAMES = ("SASL_SSL", "SASL_PLAINTEXT", "SSL")
START_TIMEOUT_S = 60.0
SIGN_IN_TIMEOUT_S = 30.0
REFUSALS = (KafkaError._AUTHENTICATION, KafkaError._SSL)
PLAIN_USERS = {ADMIN: PASSWORD, "alice": "alice-secret", "bob": "bob-secret"}


class SecureCluster:
    """Nodes that speak TLS and SCRAM among themselves; clients come by any of the listeners in `NAMES`."""

    def __init__(self, directory: Path, nodes: int = 1, settings: Mapping[str, str] | None = None) -> None:
        now = datetime.datetime.now(datetime.UTC)
        self.directory = directory
        self.authority = make_authority("Penstock's tests", now)
        self.ca_path = directory / "ca.pem"
        self.ca_path.write_text(self.authority.certificate)
        ports, self._release_ports = held_ports(self, nodes * (len(NAMES) + 1))
        self._layouts = node_layouts(directory, CONTROLLER_HOST, ports[:nodes], ports[nodes : 2 * nodes])
        more = iter(ports[2 * nodes :])
        self._ports = {
            layout.node_id: dict(zip(NAMES, (layout.port, next(more), next(more)), strict=True))
            for layout in self._layouts
        }
        self._processes = {layout.node_id: BrokerProcess(layout.properties, layout.log) for layout in self._layouts}
        for layout in self._layouts:
            pem = directory / f"node-{layout.node_id}.pem"
            pem.write_text(issue(self.authority, f"node-{layout.node_id}", now, ["localhost", "127.0.0.1"]).pem)
            properties = {**node_properties(layout, self._layouts), **self._security(layout.node_id, pem)}
            write_properties(layout, {**properties, **TEST_SETTINGS, **(settings or {})})
            loaded, _ = load_node_settings(layout.properties)
            users = [parse_user(f"SCRAM-SHA-{bits}=[name={ADMIN},password={PASSWORD}]") for bits in (256, 512)]
            format_directories(loaded, CLUSTER_ID, [], False, users)

    def _security(self, node_id: int, pem: Path) -> dict[str, str]:
        ports = self._ports[node_id]
        layout = next(layout for layout in self._layouts if layout.node_id == node_id)
        addresses = [f"{name}://localhost:{ports[name]}" for name in NAMES]
        scram = "org.apache.kafka.common.security.scram.ScramLoginModule required"
        plain = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        users = " ".join(f'user_{name}="{password}"' for name, password in PLAIN_USERS.items())
        settings = {
            "listeners": ",".join([*addresses, f"CONTROLLER://{CONTROLLER_HOST}:{layout.controller_port}"]),
            "advertised.listeners": ",".join(addresses),
            "listener.security.protocol.map": "CONTROLLER:SASL_SSL," + ",".join(f"{name}:{name}" for name in NAMES),
            "inter.broker.listener.name": "SASL_SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(pem),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca_path),
            "listener.name.ssl.ssl.client.auth": "required",
            "ssl.principal.mapping.rules": "RULE:^CN=(.*?)$/$1/",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            "sasl.mechanism.controller.protocol": "SCRAM-SHA-512",
        }
        for name in ("sasl_ssl", "sasl_plaintext", "controller"):
            own = f'username="{ADMIN}" password="{PASSWORD}"'
            settings[f"listener.name.{name}.scram-sha-512.sasl.jaas.config"] = f"{scram} {own};"
            settings[f"listener.name.{name}.plain.sasl.jaas.config"] = f"{plain} {users};"
        return settings

    def __enter__(self) -> Self:
        for process in self._processes.values():
            process.launch()
        try:
            for process in self._processes.values():
                process.wait_until_ready(START_TIMEOUT_S)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop every node."""
        for process in self._processes.values():
            process.kill()
        self._release_ports()

    def process(self, node_id: int) -> BrokerProcess:
        """One node, to be stopped and started."""
        return self._processes[node_id]

    def servers(self, name: str = "SASL_SSL") -> str:
        """What clients of one listener connect to."""
        return ",".join(f"localhost:{ports[name]}" for ports in self._ports.values())

    def client_certificate(self, name: str) -> KeyPair:
        """A certificate for a client."""
        return issue(self.authority, name, datetime.datetime.now(datetime.UTC))

    def librdkafka(
        self, user: str = ADMIN, password: str = PASSWORD, mechanism: str = "SCRAM-SHA-256", name: str = "SASL_SSL"
    ) -> dict[str, str]:
        """The settings of a librdkafka client that signs in."""
        return {
            "bootstrap.servers": self.servers(name),
            "security.protocol": name,
            "ssl.ca.location": str(self.ca_path),
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
        }


def sign_in_refusal(settings: Mapping[str, Any]) -> KafkaError | None:
    """Why librdkafka is not let in with these settings; None if it is."""
    heard: list[KafkaError] = []
    admin = AdminClient({**settings, "error_cb": heard.append, "log_level": "0"})
    deadline = time.monotonic() + SIGN_IN_TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            admin.list_topics(timeout=0.2)
        except KafkaException:
            admin.poll(0.1)
        else:
            return None
        refused = [error for error in heard if error.code() in REFUSALS]
        if refused:
            return refused[0]
    raise AssertionError(f"neither let in nor refused: {heard}")


def java_properties(settings: Mapping[str, str], jaas: str, extra: Sequence[str] = ()) -> str:
    """A client's properties file for Kafka's own tools, from librdkafka's settings."""
    lines = [
        f"security.protocol={settings['security.protocol']}",
        f"sasl.mechanism={settings['sasl.mechanism']}",
        f"sasl.jaas.config={jaas}",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={settings['ssl.ca.location']}",
        *extra,
    ]
    return "\n".join(lines) + "\n"
