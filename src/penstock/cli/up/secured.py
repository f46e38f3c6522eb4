"""What `penstock up --secure` makes: an authority, certificates, users, and the settings of nodes and clients.

Everything lies in the data directory: the authority, passwords and the secret of delegation tokens are made once and
kept below `security`; nodes get new certificates at each start. Nodes sign in to each other as a user of their own, so
that the administrator's password can be changed like any user's.
"""

from __future__ import annotations

import datetime
import secrets
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.cli.failures import CommandFailure
from penstock.cli.security.cert_files import (
    AUTHORITY,
    AUTHORITY_KEY,
    SECRET_DIRECTORY_MODE,
    create_authority,
    issue_certificate,
    write_file,
)
from penstock.cli.up.data import SECURITY
from penstock.core.security import scram
from penstock.local.layout import CONTROLLER_HOST, CONTROLLER_LISTENER, SECURE_LISTENER, NodeLayout, node_properties
from penstock.runtime.security.access_control import STANDARD_AUTHORIZER
from penstock.runtime.security.certificates import CERTIFICATE_DAYS
from penstock.wire.messages.metadata_records import UserScramCredentialRecord

ADMIN, NODE = "admin", "node"
MECHANISM = "SCRAM-SHA-512"
PASSWORD_BYTES = 24
SALT_BYTES = 24
ITERATIONS = 8192
CLIENT_FILE, JAVA_FILE = "client.properties", "client-java.properties"
SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required"


@dataclass(frozen=True, slots=True)
class Secured:
    """A secured cluster's secrets and where they lie; `home` is the directory of `penstock up`."""

    home: Path
    admin_password: str
    node_password: str
    token_secret: str

    @classmethod
    def prepare(cls, home: Path) -> Secured:
        """Take up what an earlier start has made, or make it. Raises CommandFailure."""
        directory = home / SECURITY
        try:
            directory.mkdir(mode=SECRET_DIRECTORY_MODE, parents=True, exist_ok=True)
            (home / "data").mkdir(mode=SECRET_DIRECTORY_MODE, exist_ok=True)
            if not (directory / AUTHORITY_KEY).exists():
                now = datetime.datetime.now(datetime.UTC)
                create_authority(directory, f"penstock up on {socket.gethostname()}"[:64], now, force=True)
            kept = [_secret(directory / name) for name in ("admin.password", "node.password", "token.secret")]
        except OSError as error:
            raise CommandFailure(f"cannot write to {directory}", str(error), "choose another with --data DIR") from None
        return cls(home, *kept)

    @property
    def authority(self) -> Path:
        """What clients trust."""
        return self.home / SECURITY / AUTHORITY

    @property
    def client_file(self) -> Path:
        """The settings of the administrator's clients, for librdkafka and for `--command-config`."""
        return self.home / CLIENT_FILE

    @property
    def java_file(self) -> Path:
        """The same for Java clients and Kafka's own tools."""
        return self.home / JAVA_FILE

    @property
    def password_file(self) -> Path:
        """The administrator's password and nothing else."""
        return self.home / SECURITY / "admin.password"

    def client_properties(self) -> dict[str, str]:
        """How the administrator signs in, in librdkafka's words."""
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanisms": MECHANISM,
            "sasl.username": ADMIN,
            "sasl.password": self.admin_password,
            "ssl.ca.location": str(self.authority),
        }

    def gateway_options(self, host: str) -> list[str]:
        """How the gateway serves: by TLS with a new certificate, and to those who sign in."""
        pem = self._certificate("gateway", host)
        return ["--http", f"ssl.keystore.location={pem}", "--auth", "basic"]

    def registry_properties(self, url: str) -> dict[str, str]:
        """How nodes ask the gateway about schemas."""
        return {
            "confluent.schema.registry.url": url,
            "confluent.basic.auth.user.info": f"{NODE}:{self.node_password}",
            "confluent.ssl.truststore.location": str(self.authority),
        }

    def _certificate(self, name: str, host: str) -> Path:
        """A new certificate for all names that a process may be reached by."""
        hosts = dict.fromkeys(("localhost", CONTROLLER_HOST, "::1", host, socket.gethostname()))
        for every in ("0.0.0.0", "::"):
            hosts.pop(every, None)
        now = datetime.datetime.now(datetime.UTC)
        return issue_certificate(self.home / SECURITY, name, list(hosts), CERTIFICATE_DAYS, now, force=True)

    def users(self) -> list[UserScramCredentialRecord]:
        """Those whom a new cluster knows from the beginning."""
        return [
            _user(name, password, mechanism)
            for name, password in ((ADMIN, self.admin_password), (NODE, self.node_password))
            for mechanism in scram.MECHANISMS.values()
        ]

    def node_properties(self, place: NodeLayout, cluster: Sequence[NodeLayout]) -> dict[str, str]:
        """The settings of one node, with a new certificate."""
        pem = self._certificate(f"node-{place.node_id}", place.host)
        login = f'{SCRAM_LOGIN} username="{NODE}" password="{self.node_password}";'
        mechanism = MECHANISM.lower()
        return {
            **node_properties(place, cluster, SECURE_LISTENER),
            "listener.security.protocol.map": f"{SECURE_LISTENER}:SASL_SSL,{CONTROLLER_LISTENER}:SASL_SSL",
            "inter.broker.listener.name": SECURE_LISTENER,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(pem),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority),
            "sasl.enabled.mechanisms": ",".join(scram.MECHANISMS),
            "sasl.mechanism.inter.broker.protocol": MECHANISM,
            "sasl.mechanism.controller.protocol": MECHANISM,
            f"listener.name.{SECURE_LISTENER.lower()}.{mechanism}.sasl.jaas.config": login,
            f"listener.name.{CONTROLLER_LISTENER.lower()}.{mechanism}.sasl.jaas.config": login,
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "penstock.audit.enable": "true",
            "super.users": f"User:{ADMIN};User:{NODE}",
            "delegation.token.secret.key": self.token_secret,
        }

    def write_client_files(self, bootstrap_servers: str) -> None:
        """Write the settings of clients, in both vocabularies."""
        login = f'{SCRAM_LOGIN} username="{ADMIN}" password="{self.admin_password}";'
        java = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": login,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority),
        }
        for path, whose, properties in (
            (self.client_file, "librdkafka and `penstock --command-config`", self.client_properties()),
            (self.java_file, "Java clients and Kafka's tools", java),
        ):
            write_file(path, _text(f"For {whose}: {ADMIN}'s, who may do everything.", bootstrap_servers, properties))


def _text(comment: str, bootstrap_servers: str, properties: Mapping[str, str]) -> str:
    rows = {"bootstrap.servers": bootstrap_servers, **properties}
    return f"# {comment}\n" + "".join(f"{name}={value}\n" for name, value in rows.items())


def _secret(path: Path) -> str:
    if not path.exists():
        write_file(path, secrets.token_urlsafe(PASSWORD_BYTES) + "\n")
    return path.read_text("utf-8").strip()


def _user(name: str, password: str, mechanism: scram.Mechanism) -> UserScramCredentialRecord:
    salt = secrets.token_bytes(SALT_BYTES)
    made = scram.credential_of(mechanism, password, salt, ITERATIONS)
    return UserScramCredentialRecord(name, mechanism.code, salt, made.stored_key, made.server_key, ITERATIONS)
