"""Settings of a gateway: its cluster, its addresses, and its limits."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from penstock.gateway.callers.credentials import CERTIFICATE, METHODS
from penstock.gateway.named_limits import NamedLimits
from penstock.gateway.roles import ALL
from penstock.gateway.web.access import is_origin
from penstock.gateway.web.limits import Limits
from penstock.gateway.web.tls import CLIENT_AUTH, SETTINGS, is_on
from penstock.gateway.work.budgets import Budgets

HOST_NAME = re.compile(r"\.?[0-9A-Za-z_-]+(\.[0-9A-Za-z_-]+)*\.?")
# Numbers among the settings that are not limits.
PORTS = ("rest_port", "registry_port")
NUMBER_MAX = 10**15
# The gateway's own certificate, which must not authenticate its callers to brokers.
OWN_CERTIFICATE = (
    "ssl.certificate.location",
    "ssl.certificate.pem",
    "ssl.key.location",
    "ssl.key.pem",
    "ssl.key.password",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.type",
)


class SettingError(ValueError):
    """An invalid setting; the message has the reason, and what is valid."""


@dataclass(frozen=True, slots=True)
class GatewaySettings(NamedLimits):
    """The settings that a gateway is started with. Port 0 is any free port."""

    bootstrap_servers: str
    host: str = "127.0.0.1"
    rest_port: int = 8080
    registry_port: int = 8081
    client_properties: Mapping[str, str] = field(default_factory=dict)
    # Callbacks of librdkafka's clients, by its names.
    client_callbacks: Mapping[str, object] = field(default_factory=dict, repr=False)
    # Settings of the HTTP ports by Kafka's names, `ssl.*`.
    http_properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    # How callers may sign in; empty without sign-in. How they reach the brokers, where that differs from the gateway.
    sign_in_methods: tuple[str, ...] = ()
    caller_properties: Mapping[str, str] = field(default_factory=dict)
    roles: tuple[str, ...] = ALL
    limits: Limits = field(default_factory=Limits)
    budgets: Budgets = field(default_factory=Budgets)
    # Host names that callers may use besides the machine's own, origins whose pages may call it, and addresses of
    # proxies whose X-Forwarded-For headers are trusted.
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    trusted_proxies: tuple[str, ...] = ()
    # Callers that have signed in: how many have connections of their own, and for how long without a request.
    callers_max: int = 200
    caller_idle_s: float = 600.0
    # How long a sign-in counts before the brokers verify it again, how many may be in progress, and how many may fail
    # within a minute: of one user from one address, and of all users from one address.
    sign_in_s: float = 15.0
    sign_ins_max: int = 64
    failed_sign_ins_max: int = 5
    failed_sign_ins_per_address_max: int = 30
    # The console's sessions: how many there are, and how long one lasts without a request, and at most.
    console_sessions_max: int = 1000
    console_idle_s: float = 30 * 60.0
    console_session_s: float = 12 * 60 * 60.0
    # Of each caller; 0 for no limit.
    caller_requests_per_s_max: int = 0
    caller_bytes_per_s_max: int = 0
    # Publishing: how long small records wait to be batched, and how many may be queued.
    linger_ms: int = 2
    publish_timeout_ms: int = 30_000
    queued_records_max: int = 100_000
    # Reading: consumers for reads by offset, reads that wait for records, and how much one read returns.
    readers_max: int = 16
    long_polls_max: int = 64
    long_polls_per_caller_max: int = 32
    read_bytes_max: int = 8 * 1024 * 1024
    poll_timeout_ms_max: int = 60_000
    # Consumers that belong to callers: group members over HTTP, and live tails.
    instances_max: int = 200
    instances_per_caller_max: int = 100
    instance_idle_s: float = 300.0
    tails_max: int = 100
    tails_per_caller_max: int = 50
    # Cached answers to requests with an Idempotency-Key.
    idempotency_keys_max: int = 100_000
    idempotency_s: float = 24 * 60 * 60

    def limited(self, words: Mapping[str, str]) -> GatewaySettings:
        """A copy with other limits, by name. Raises SettingError."""
        names = [name for owner in (GatewaySettings, Limits, Budgets) for name in limit_names(owner)]
        unknown = sorted(set(words) - set(names))
        if unknown:
            raise SettingError(f"there is no limit {unknown[0]!r}; the limits are {', '.join(sorted(names))}")
        return replace(
            self,
            limits=replace(self.limits, **_numbers(Limits, words)),
            budgets=replace(self.budgets, **_numbers(Budgets, words)),
            **_numbers(GatewaySettings, words),
        )

    def checked(self) -> GatewaySettings:
        """The same settings if they are valid. Raises SettingError."""
        for origin in self.allowed_origins:
            if not is_origin(origin):
                raise SettingError(f"{origin!r} is not an origin; write it as https://app.example.com, without a path")
        for name in self.allowed_hosts:
            if not HOST_NAME.fullmatch(name):
                raise SettingError(f"{name!r} is not a host name; write it as app.example.com, without port or path")
        for proxy in self.trusted_proxies:
            try:
                ipaddress.ip_network(proxy, strict=False)
            except ValueError:
                raise SettingError(f"{proxy!r} is not an address; write it as 10.0.0.7 or 10.0.0.0/24") from None
        unknown = sorted(set(self.http_properties) - set(SETTINGS))
        if unknown:
            raise SettingError(f"there is no HTTP setting {unknown[0]!r}; the settings are {', '.join(SETTINGS)}")
        if self.http_properties and not is_on(self.http_properties):
            raise SettingError(
                "the ssl.* settings need a key: set ssl.keystore.location to a PEM file with key and certificate"
            )
        for name, given, known in (("--auth", self.sign_in_methods, METHODS), ("--role", self.roles, ALL)):
            if wrong := sorted(set(given) - set(known)):
                raise SettingError(f"{name} {wrong[0]!r} is not one of {', '.join(known)}")
        self._check_sign_in()
        return self

    def _check_sign_in(self) -> None:
        if not self.sign_in_methods:
            return
        protocol = self.for_callers({}).client_properties.get("security.protocol", "PLAINTEXT").upper()
        if not protocol.startswith("SASL"):
            raise SettingError(
                f"--auth: callers sign in to the brokers themselves, and {protocol} has no sign-in; name a listener "
                "that has one with --caller bootstrap.servers=… --caller security.protocol=SASL_SSL"
            )
        if CERTIFICATE in self.sign_in_methods and not is_on(self.http_properties):
            raise SettingError(
                "--auth certificate needs TLS: set --http ssl.keystore.location and ssl.truststore.location"
            )

    def tls_properties(self) -> dict[str, str]:
        """The settings of TLS on the HTTP ports; certificates are requested if they are a sign-in method."""
        defaults = {CLIENT_AUTH: "requested"} if CERTIFICATE in self.sign_in_methods else {}
        return {**defaults, **self.http_properties}

    def for_callers(self, properties: Mapping[str, str], callbacks: Mapping[str, Any] | None = None) -> GatewaySettings:
        """The settings of a caller's connections: the gateway's, without the gateway's own credentials."""
        kept = {
            name: value
            for name, value in self.client_properties.items()
            if not name.startswith("sasl.") and name not in OWN_CERTIFICATE
        }
        kept |= self.caller_properties
        servers = kept.pop("bootstrap.servers", self.bootstrap_servers)
        return replace(
            self,
            bootstrap_servers=servers,
            client_properties={**kept, **properties},
            client_callbacks=dict(callbacks or {}),
        )

    def client(self, **more: Any) -> dict[str, Any]:
        """librdkafka's settings; the operator's settings take precedence."""
        return {
            "bootstrap.servers": self.bootstrap_servers,
            "client.id": "penstock-gateway",
            "log_level": 3,
            "socket.connection.setup.timeout.ms": 5000,
            "reconnect.backoff.max.ms": 1000,
            **more,
            **self.client_callbacks,
            **self.client_properties,
        }


LimitOwner = type[GatewaySettings | Limits | Budgets]


def limit_names(owner: LimitOwner) -> dict[str, type[int | float]]:
    """The limits that `--limit` sets: names, and their types."""
    kinds: dict[str, type[int | float]] = {"int": int, "float": float}
    return {each.name: kinds[str(each.type)] for each in fields(owner) if each.type in kinds and each.name not in PORTS}


def _numbers(owner: LimitOwner, words: Mapping[str, str]) -> dict[str, Any]:
    return {name: _number(name, words[name], kind) for name, kind in limit_names(owner).items() if name in words}


def _number(name: str, text: str, kind: type[int | float]) -> int | float:
    try:
        value = kind(text)
    except ValueError:
        expected = "an integer" if kind is int else "a number"
        raise SettingError(f"the limit {name} must be {expected}, not {text[:40]!r}") from None
    if not 0 < value <= NUMBER_MAX:
        raise SettingError(f"the limit {name} must be above 0 and at most {NUMBER_MAX:,}, not {text[:40]!r}")
    return value
