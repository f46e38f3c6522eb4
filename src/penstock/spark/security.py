"""How to reach a cluster: addresses, TLS and SASL out of the properties that Kafka's clients take.

Both vocabularies are understood: the Java client's (`sasl.jaas.config`, `ssl.truststore.location` with PEM files), as
jobs written for Spark's Kafka connector have them, and librdkafka's (`sasl.username`, `ssl.ca.location`).
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

PORT_DEFAULT = 9092
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

_JAAS_FIELD = re.compile(r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))""")
# What the Java client calls a property and librdkafka's word for it.
_LIBRDKAFKA_NAMES = {
    "sasl.mechanism": "sasl.mechanisms",
    "ssl.truststore.location": "ssl.ca.location",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Credentials:
    """What SASL needs."""

    mechanism: str
    username: str
    password: str

    def __repr__(self) -> str:
        return f"Credentials({self.mechanism}, {self.username})"


@dataclass(frozen=True, slots=True)
class Access:
    """Everything that opening a connection takes; it travels to executors, and equal ones share connections."""

    bootstrap: tuple[Address, ...]
    properties: tuple[tuple[str, str], ...]
    tls: bool
    credentials: Credentials | None

    def property(self, name: str, default: str = "") -> str:
        """One of Kafka's client properties as it was given."""
        return dict(self.properties).get(name, default)


def read_access(properties: Mapping[str, str]) -> Access:
    """The settings in a set of client properties; ValueError says what is wrong with them and what to write."""
    bootstrap = parse_addresses(properties.get("bootstrap.servers", ""))
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise ValueError(f"security.protocol is {protocol!r}: use one of {', '.join(PROTOCOLS)}")
    credentials = _credentials(properties) if protocol.startswith("SASL") else None
    return Access(bootstrap, tuple(sorted(properties.items())), protocol.endswith("SSL"), credentials)


def parse_addresses(text: str) -> tuple[Address, ...]:
    """`host:port,host:port` as addresses; ValueError for anything else."""
    addresses = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        bare = word.rpartition("://")[2]
        host, colon, port = bare.rpartition(":")
        if not colon or bare.endswith("]"):
            host, port = bare, str(PORT_DEFAULT)
        if not port.isdigit() or not 0 < int(port) < 65536:
            raise ValueError(f"{word!r} is no address: write host:port")
        addresses.append(Address(host.strip("[]"), int(port)))
    if not addresses:
        raise ValueError("kafka.bootstrap.servers is missing: set it to the brokers' addresses, host:port,host:port")
    return tuple(addresses)


def librdkafka_properties(access: Access) -> dict[str, str]:
    """The same settings in librdkafka's words, for producers."""
    properties = {}
    for name, value in access.properties:
        if name == "sasl.jaas.config" or name.startswith(("key.", "value.")):
            continue
        properties[_LIBRDKAFKA_NAMES.get(name, name)] = value
    if access.credentials is not None:
        properties["sasl.username"] = access.credentials.username
        properties["sasl.password"] = access.credentials.password
        properties["sasl.mechanisms"] = access.credentials.mechanism
    if "ssl.truststore.type" in properties and properties.pop("ssl.truststore.type").upper() != "PEM":
        raise ValueError("ssl.truststore.type must be PEM: Java key stores cannot be read here, convert with keytool")
    return properties


def tls_context(access: Access) -> ssl.SSLContext:
    """The TLS settings as Python's ssl takes them."""
    authorities = access.property("ssl.ca.location") or access.property("ssl.truststore.location")
    inline = access.property("ssl.truststore.certificates") or access.property("ssl.ca.pem")
    if authorities.endswith((".jks", ".p12", ".pfx")):
        raise ValueError(f"{authorities} is a Java key store: give the certificate authorities as a PEM file instead")
    context = ssl.create_default_context(cafile=authorities or None, cadata=inline or None)
    chain = access.property("ssl.certificate.location") or access.property("ssl.keystore.location")
    if chain:
        key = access.property("ssl.key.location") or (chain if "PRIVATE KEY" in Path(chain).read_text("utf-8") else "")
        password = access.property("ssl.key.password") or None
        context.load_cert_chain(chain, key or None, password)
    if not access.property("ssl.endpoint.identification.algorithm", "https").strip().removeprefix("none"):
        context.check_hostname = False
    return context


def _credentials(properties: Mapping[str, str]) -> Credentials:
    mechanism = (properties.get("sasl.mechanism") or properties.get("sasl.mechanisms") or "").upper()
    if mechanism not in MECHANISMS:
        raise ValueError(f"sasl.mechanism is {mechanism or 'not set'}: use one of {', '.join(MECHANISMS)}")
    fields = {
        name: re.sub(r"\\(.)", r"\1", double or single or bare)
        for name, double, single, bare in _JAAS_FIELD.findall(properties.get("sasl.jaas.config", ""))
    }
    username = properties.get("sasl.username") or fields.get("username", "")
    password = properties.get("sasl.password") or fields.get("password", "")
    if not username:
        raise ValueError(
            "SASL needs a name: set kafka.sasl.username and kafka.sasl.password, or kafka.sasl.jaas.config"
        )
    return Credentials(mechanism, username, password)
