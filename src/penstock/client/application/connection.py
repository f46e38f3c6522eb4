"""`Connection`: where the brokers are, and how to sign in to them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.client.application.errors import PenstockError
from penstock.client.settings import ConnectionSettings, librdkafka_properties, read_settings
from penstock.config.load import read_properties
from penstock.config.properties import ConfigError

BOOTSTRAP_DEFAULT = "localhost:9092"
CONNECT_TIMEOUT_MS = 10_000
# librdkafka's log on stderr: problems only, which errors do not tell.
LOG_LEVEL = 3
MECHANISM_DEFAULT = "SCRAM-SHA-512"

# The fields that variables set, such as PENSTOCK_CA_FILE.
SIGN_IN_FIELDS = ("username", "password", "mechanism", "ca_file", "certificate_file", "key_file")
TEXT_FIELDS = ("bootstrap", *SIGN_IN_FIELDS, "registry", "client_id")


@dataclass(frozen=True, slots=True)
class Connection:
    """One cluster: its address, TLS, the sign-in, and the schema registry. Every class here takes one.

    Without one they read the environment: `PENSTOCK_BOOTSTRAP`, `PENSTOCK_USERNAME`, `PENSTOCK_PASSWORD`,
    `PENSTOCK_MECHANISM`, `PENSTOCK_TLS`, `PENSTOCK_CA_FILE`, `PENSTOCK_CERTIFICATE_FILE`, `PENSTOCK_KEY_FILE`,
    `PENSTOCK_REGISTRY`, `PENSTOCK_CLIENT_ID`, and `PENSTOCK_COMMAND_CONFIG`, a properties file as the command line
    takes it. A username turns on SASL; `tls=True`, a `ca_file` or a certificate turns on TLS.

    >>> Connection("broker:9093", username="ship", password="secret", tls=True)
    Connection(bootstrap='broker:9093', username='ship', mechanism='SCRAM-SHA-512', tls=True)
    """

    bootstrap: str = BOOTSTRAP_DEFAULT
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    mechanism: str = MECHANISM_DEFAULT
    tls: bool | None = None
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    registry: str | None = None
    client_id: str = "penstock"
    properties: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __repr__(self) -> str:
        shown = [f"bootstrap={self.bootstrap!r}"]
        if self.username is not None:
            shown += [f"username={self.username!r}", f"mechanism={self.mechanism!r}"]
        if self.is_encrypted:
            shown.append("tls=True")
        return f"Connection({', '.join(shown)})"

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Connection:
        """The connection that `PENSTOCK_*` variables describe.

        >>> Connection.from_environment({"PENSTOCK_BOOTSTRAP": "broker:9092"})
        Connection(bootstrap='broker:9092')
        """
        found = os.environ if environment is None else environment
        given: dict[str, Any] = {name: found.get(f"PENSTOCK_{name.upper()}") for name in TEXT_FIELDS}
        fields = {name: text for name, text in given.items() if text}
        if found.get("PENSTOCK_TLS"):
            fields["tls"] = found["PENSTOCK_TLS"].lower() in ("1", "true", "yes")
        path = found.get("PENSTOCK_COMMAND_CONFIG")
        if path:
            properties = _read_file(path)
            fields.setdefault("bootstrap", properties.pop("bootstrap.servers", BOOTSTRAP_DEFAULT))
            fields["properties"] = properties
        return cls(**fields)

    @classmethod
    def of(cls, connection: Connection | str | None) -> Connection:
        """A connection as given, from an address, or from the environment.

        >>> Connection.of("broker:9092").bootstrap
        'broker:9092'
        """
        if isinstance(connection, str):
            return replace(cls.from_environment(), bootstrap=connection)
        return connection if connection is not None else cls.from_environment()

    @property
    def is_encrypted(self) -> bool:
        """Whether connections use TLS.

        >>> Connection(ca_file="ca.pem").is_encrypted
        True
        """
        return bool(self.ca_file or self.certificate_file) if self.tls is None else self.tls

    def librdkafka(self) -> dict[str, Any]:
        """The properties for librdkafka, for calls that Penstock does not wrap.

        >>> Connection("broker:9092").librdkafka()["bootstrap.servers"]
        'broker:9092'
        """
        protocol = ("SASL_" if self.username is not None else "") + ("SSL" if self.is_encrypted else "PLAINTEXT")
        properties: dict[str, object] = {
            "bootstrap.servers": self.bootstrap,
            "client.id": self.client_id,
            "log_level": LOG_LEVEL,
            "socket.connection.setup.timeout.ms": CONNECT_TIMEOUT_MS,
            "socket.nagle.disable": True,
            # librdkafka 2.16 was seen to hang after an outage of all brokers with the default; see docs/delivery.md.
            "metadata.recovery.strategy": "none",
        }
        if protocol != "PLAINTEXT":
            properties["security.protocol"] = protocol
        if self.username is not None:
            properties |= {"sasl.mechanisms": self.mechanism, "sasl.username": self.username}
            properties["sasl.password"] = self.password or ""
        files = {
            "ssl.ca.location": self.ca_file,
            "ssl.certificate.location": self.certificate_file,
            "ssl.key.location": self.key_file or self.certificate_file,
        }
        return properties | {name: path for name, path in files.items() if path} | dict(self.properties)

    def wire(self) -> ConnectionSettings:
        """The same for Penstock's own wire client, which speaks what librdkafka does not.

        >>> Connection("broker:9092").wire().client_id
        'penstock'
        """
        return read_settings({name: str(value) for name, value in self.librdkafka().items()})


def _read_file(path: str) -> dict[str, str]:
    try:
        with open(path, encoding="utf-8") as file:
            found = {entry.name: entry.value for entry in read_properties(file.read())}
        settings = read_settings({"bootstrap.servers": BOOTSTRAP_DEFAULT, **found})
        return librdkafka_properties(settings)
    except (OSError, UnicodeDecodeError, ValueError, ConfigError) as error:
        raise PenstockError(
            f"cannot use the client's properties in {path}", str(error), "correct it, or unset PENSTOCK_COMMAND_CONFIG"
        ) from error
