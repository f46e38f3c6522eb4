"""Faults on a secured cluster: TLS and a sign-in between nodes and for clients, when PENSTOCK_CHAOS_SECURE is set.

It names a directory with an authority and a certificate, which `prepare` makes. Nodes sign in to each other by PLAIN,
clients by SCRAM. A listener without security is left for looking at nodes.
"""

from __future__ import annotations

import datetime
import os
import ssl
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from penstock.runtime.security.certificates import issue, make_authority
from support.link_proxy import HOST, Tls

VARIABLE = "PENSTOCK_CHAOS_SECURE"
DIRECTORY = os.environ.get(VARIABLE, "")
LISTENER = "SECURE"
USER, PASSWORD = "client", "client-secret"
NODE_PASSWORD = "node-secret"


def prepare(directory: Path) -> None:
    """Make an authority, and one certificate for all nodes."""
    now = datetime.datetime.now(datetime.UTC)
    authority = make_authority("Penstock's tests", now)
    (directory / "ca.pem").write_text(authority.certificate)
    (directory / "node.pem").write_text(issue(authority, "node", now, [HOST]).pem)


def node_settings() -> dict[str, str]:
    """What every node has besides its listeners."""
    plain = (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'username="node" password="{NODE_PASSWORD}" user_node="{NODE_PASSWORD}";'
    )
    return {
        "listener.security.protocol.map": (
            f"PLAINTEXT:PLAINTEXT,{LISTENER}:SASL_SSL,INTERNAL:SASL_SSL,CONTROLLER:SASL_SSL"
        ),
        "ssl.keystore.location": f"{DIRECTORY}/node.pem",
        "ssl.truststore.location": f"{DIRECTORY}/ca.pem",
        "sasl.enabled.mechanisms": "PLAIN",
        f"listener.name.{LISTENER.lower()}.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.internal.plain.sasl.jaas.config": plain,
        "listener.name.controller.plain.sasl.jaas.config": plain,
    }


def link_tls() -> Tls | None:
    """With what proxies between nodes end TLS and begin it anew; None without security."""
    if not DIRECTORY:
        return None
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(f"{DIRECTORY}/node.pem")
    return Tls(server, ssl.create_default_context(cafile=f"{DIRECTORY}/ca.pem"))


def client_settings() -> Mapping[str, str]:
    """What clients of librdkafka need besides the servers; nothing without security."""
    if not DIRECTORY:
        return {}
    return {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": f"{DIRECTORY}/ca.pem",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }


def create_user(servers: str) -> None:
    """Make the user that clients sign in as, over a listener without security."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    kind = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    admin.alter_user_scram_credentials([UserScramCredentialUpsertion(USER, kind, PASSWORD.encode())])[USER].result(60)
