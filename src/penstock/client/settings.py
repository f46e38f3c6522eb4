"""How to reach a cluster: addresses, TLS and SASL from Kafka's client properties.

Both sets of names work: librdkafka's (`sasl.username`, `ssl.ca.location`), as in -X of Penstock's commands, and the
Java client's (`sasl.jaas.config`, `ssl.truststore.location` with PEM files), as in jobs written for Spark's Kafka
connector.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.client.address import Address, parse_addresses

if TYPE_CHECKING:
    from penstock.client.tokens import TokenEndpoint

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
OAUTHBEARER = "OAUTHBEARER"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTHBEARER)
CLIENT_ID = "penstock"
# The largest of Kafka's timeouts.
MS_MAX = 2**31 - 1
MS_DIGITS_MAX = 10

# What only the Java client has, and what belongs to (de)serializers.
_JAVA_ONLY = (
    "sasl.jaas.config",
    "sasl.login.",
    "sasl.client.callback.",
    "sasl.oauthbearer.client.credentials.",
    "key.",
    "value.",
)
# The Java client's property names and librdkafka's.
_LIBRDKAFKA_NAMES = {
    "sasl.mechanism": "sasl.mechanisms",
    "ssl.truststore.location": "ssl.ca.location",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}


@dataclass(frozen=True, slots=True)
class Credentials:
    """The credentials for SASL; with OAUTHBEARER the password is a token, or tokens come from an endpoint."""

    mechanism: str
    username: str
    password: str = field(repr=False)
    tokens: TokenEndpoint | None = None


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """Where and how to connect. Serialized to Spark's executors; equal settings share connections.

    `properties` are all Kafka client properties as they were given, also those unrelated to connections.
    """

    bootstrap: tuple[Address, ...]
    properties: tuple[tuple[str, str], ...] = field(repr=False)
    tls: bool = False
    credentials: Credentials | None = None
    # Timeouts of connecting and of responses: Kafka's defaults for clients.
    connect_timeout_s: float = 10.0
    request_timeout_s: float = 30.0

    def get(self, name: str, default: str = "") -> str:
        """One of the given Kafka client properties."""
        return dict(self.properties).get(name, default)

    @property
    def client_id(self) -> str:
        """This client's name in brokers' logs and quotas."""
        return self.get("client.id", CLIENT_ID)


def read_settings(properties: Mapping[str, str]) -> ConnectionSettings:
    """The settings in a set of client properties; raises ValueError with what is wrong and what to write."""
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise ValueError(f"security.protocol is {protocol!r}: use one of {', '.join(PROTOCOLS)}")
    return ConnectionSettings(
        parse_addresses(properties.get("bootstrap.servers", "")),
        tuple(sorted(properties.items())),
        protocol.endswith("SSL"),
        _credentials(properties) if protocol.startswith("SASL") else None,
        _seconds(properties, "socket.connection.setup.timeout.ms", "10000"),
        _seconds(properties, "request.timeout.ms", "30000"),
    )


def librdkafka_properties(settings: ConnectionSettings) -> dict[str, str]:
    """The same settings with librdkafka's names, for producers."""
    properties = {}
    for name, value in settings.properties:
        if name.startswith(_JAVA_ONLY):
            continue
        properties[_LIBRDKAFKA_NAMES.get(name, name)] = value
    if settings.credentials is not None and settings.credentials.tokens is not None:
        properties |= _librdkafka_tokens(settings.credentials.tokens)
    elif settings.credentials is not None:
        properties["sasl.username"] = settings.credentials.username
        properties["sasl.password"] = settings.credentials.password
        properties["sasl.mechanisms"] = settings.credentials.mechanism
    if properties.get("ssl.keystore.type", "").upper() == "PEM" and "ssl.keystore.location" in properties:
        # One file with both; by librdkafka's word it would be PKCS12.
        del properties["ssl.keystore.type"]
        properties["ssl.key.location"] = properties["ssl.certificate.location"] = properties.pop(
            "ssl.keystore.location"
        )
    if "ssl.truststore.type" in properties and properties.pop("ssl.truststore.type").upper() != "PEM":
        raise ValueError("ssl.truststore.type must be PEM: Java key stores cannot be read here, convert with keytool")
    return properties


def _seconds(properties: Mapping[str, str], name: str, default: str) -> float:
    text = properties.get(name, default)
    if not (text.isascii() and text.isdigit() and len(text) <= MS_DIGITS_MAX) or not 0 < int(text) <= MS_MAX:
        raise ValueError(f"{name} is {text[:20]!r}: write a number of milliseconds, up to {MS_MAX}")
    return int(text) / 1000


def _credentials(properties: Mapping[str, str]) -> Credentials:
    # Imported only where there is a sign-in, so that other commands start sooner.
    from penstock.core.security.jaas import InvalidJaas, parse_jaas

    mechanism = (properties.get("sasl.mechanism") or properties.get("sasl.mechanisms") or "").upper()
    if mechanism not in MECHANISMS:
        raise ValueError(f"sasl.mechanism is {mechanism or 'not set'}: use one of {', '.join(MECHANISMS)}")
    login = properties.get("sasl.jaas.config", "").strip()
    try:
        fields = parse_jaas(login).options if login else {}
    except InvalidJaas as error:
        raise ValueError(f"sasl.jaas.config cannot be read: {error}") from None
    if mechanism == OAUTHBEARER:
        tokens = _token_endpoint(properties, fields)
        return Credentials(mechanism, tokens.client_id or "the bearer of a token", "", tokens)
    username = properties.get("sasl.username") or fields.get("username", "")
    password = properties.get("sasl.password") or fields.get("password", "")
    if not username:
        raise ValueError("SASL needs a username: set sasl.username and sasl.password, or sasl.jaas.config")
    return Credentials(mechanism, username, password)


def _token_endpoint(properties: Mapping[str, str], fields: Mapping[str, str]) -> TokenEndpoint:
    """By librdkafka's names, the Java client's since 4.1, and those of its JAAS options before."""
    from penstock.client.tokens import TokenEndpoint

    prefix = "sasl.oauthbearer."

    def given(name: str, field_name: str) -> str:
        java = properties.get(f"{prefix}client.credentials.{name}")
        return properties.get(prefix + name) or java or fields.get(field_name, "")

    url = properties.get(prefix + "token.endpoint.url", "")
    if not url:
        raise ValueError(f"OAUTHBEARER needs {prefix}token.endpoint.url: where tokens come from, or a file:// with one")
    return TokenEndpoint(
        url,
        given("client.id", "clientId"),
        given("client.secret", "clientSecret"),
        given("scope", "scope"),
        properties.get("https.ca.location"),
    )


def _librdkafka_tokens(tokens: TokenEndpoint) -> dict[str, str]:
    if tokens.is_file:
        raise ValueError("librdkafka cannot read a token from a file: name the identity provider's token endpoint")
    prefix = "sasl.oauthbearer."
    named = {
        "sasl.mechanisms": OAUTHBEARER,
        prefix + "method": "oidc",
        prefix + "token.endpoint.url": tokens.url,
        prefix + "client.id": tokens.client_id,
        prefix + "client.secret": tokens.client_secret,
    }
    return {**named, **({prefix + "scope": tokens.scope} if tokens.scope else {})}
