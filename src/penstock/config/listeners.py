"""Listeners: the addresses a node opens, those it advertises to clients, and who uses which."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from penstock.config.properties import Finding, nearest

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_LISTENER = re.compile(
    r"(?P<name>[A-Za-z0-9_.\-]+)://\[?(?P<host>[0-9a-zA-Z\-%._:]*)\]?:(?P<port>[0-9]{1,5})", re.ASCII
)
_HOST_PORT = re.compile(r"\[?(?P<host>[0-9a-zA-Z\-%._:]+)\]?:(?P<port>[0-9]{1,5})", re.ASCII)
_PORT_MAX = 65535


class Endpoint(NamedTuple):
    """Where another node is reached."""

    host: str
    port: int


class MetricsListener(NamedTuple):
    """Where metrics and health are served; an empty host means every interface."""

    host: str
    port: int
    tls: bool = False


@dataclass(frozen=True, slots=True)
class Listener:
    """One address. An empty host means every interface, or, when advertised, this machine's own name."""

    name: str
    host: str
    port: int
    security_protocol: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Listeners:
    """The listeners of a node, resolved: the broker's and the controller's, bound and advertised."""

    bound: tuple[Listener, ...]
    advertised: tuple[Listener, ...]
    controller_names: tuple[str, ...]
    inter_broker_name: str | None
    # Of every listener of the cluster by name, those of other nodes too.
    protocols: Mapping[str, str]

    @property
    def controller(self) -> tuple[Listener, ...]:
        return tuple(listener for listener in self.bound if listener.name in self.controller_names)

    @property
    def broker(self) -> tuple[Listener, ...]:
        return tuple(listener for listener in self.bound if listener.name not in self.controller_names)


@dataclass(frozen=True, slots=True)
class ListenerTexts:
    """What the configuration contains about listeners; None for what is not set."""

    listeners: str
    advertised: str | None
    protocol_map: str
    protocol_map_given: bool
    controller_names: str | None
    inter_broker_name: str | None
    inter_broker_protocol: str
    inter_broker_protocol_given: bool


def is_loopback(host: str) -> bool:
    """Whether an address means "this machine" wherever it is used."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def unprotected(listeners: Iterable[Listener], has_access_lists: bool) -> list[tuple[Listener, str]]:
    """The listeners without TLS that other machines can reach, each with what may happen there."""
    found = []
    for listener in listeners:
        if listener.security_protocol.endswith("SSL") or is_loopback(listener.host):
            continue
        why = "anyone on the path can read and change what is sent"
        if listener.security_protocol == "SASL_PLAINTEXT":
            why += ", passwords of PLAIN among it"
        elif not has_access_lists:
            why = f"any client that reaches it may do everything, and {why}"
        found.append((listener, why))
    return found


def parse_endpoint(text: str) -> Endpoint | None:
    """Read host:port; None when it is something else."""
    match = _HOST_PORT.fullmatch(text)
    if match is None or int(match["port"]) > _PORT_MAX:
        return None
    return Endpoint(match["host"], int(match["port"]))


def resolve_listeners(texts: ListenerTexts, roles: frozenset[str], findings: list[Finding]) -> Listeners:
    """Read and cross-check everything about listeners; what is wrong is added to `findings`."""
    controller_names = tuple(name.upper() for name in listed(texts.controller_names or ""))
    if not controller_names:
        text = "controller.listener.names is not set: name the listener of the controllers, for example CONTROLLER"
        findings.append(Finding("controller.listener.names", text))
    protocols = _protocol_map(texts, controller_names, findings)
    bound = _parse_listeners("listeners", texts.listeners, protocols, findings)
    _check_bound(bound, findings)
    given = _parse_listeners("advertised.listeners", texts.advertised or "", protocols, findings)
    advertised = _advertised(bound, given, controller_names)
    _check_advertised(given, advertised, bound, findings)
    resolved = Listeners(bound, advertised, controller_names, _inter_broker_name(texts, roles, findings), protocols)
    if not findings:
        _check_roles(resolved, roles, texts, findings)
    return resolved


def listed(text: str | None) -> tuple[str, ...]:
    """The items of a list with commas, without those that are empty."""
    return tuple(item.strip() for item in (text or "").split(",") if item.strip())


def _protocol_map(texts: ListenerTexts, controller_names: tuple[str, ...], findings: list[Finding]) -> dict[str, str]:
    name = "listener.security.protocol.map"
    protocols: dict[str, str] = {}
    for item in listed(texts.protocol_map):
        listener, separator, protocol = item.rpartition(":")
        if not separator or protocol.upper() not in SECURITY_PROTOCOLS:
            findings.append(
                Finding(name, f"{name}: {item!r}: expected NAME:PROTOCOL with one of {', '.join(SECURITY_PROTOCOLS)}")
            )
            continue
        protocols[listener.strip().upper()] = protocol.upper()
    # Kafka lets a plain-text node name its controller listeners without saying that they are plain text.
    secured = any(word in texts.listeners.upper() for word in ("SSL:", "SASL_PLAINTEXT:"))
    if not texts.protocol_map_given and not secured:
        for controller_name in controller_names:
            protocols.setdefault(controller_name, "PLAINTEXT")
    return protocols


def _parse_listeners(name: str, text: str, protocols: dict[str, str], findings: list[Finding]) -> tuple[Listener, ...]:
    listeners: list[Listener] = []
    for item in listed(text):
        match = _LISTENER.fullmatch(item)
        if match is None or int(match["port"]) > _PORT_MAX:
            findings.append(
                Finding(name, f"{name}: {item!r}: expected NAME://host:port, for example PLAINTEXT://:9092")
            )
            continue
        listener_name = match["name"].upper()
        protocol = protocols.get(listener_name)
        if protocol is None:
            findings.append(Finding(name, _unmapped(name, listener_name, protocols)))
            continue
        listeners.append(Listener(listener_name, match["host"], int(match["port"]), protocol))
    return tuple(listeners)


def _unmapped(name: str, listener_name: str, protocols: dict[str, str]) -> str:
    suggestion = nearest(listener_name, protocols)
    hint = f"did you mean {suggestion}? Or " if suggestion else ""
    return (
        f"{name}: {listener_name} has no security protocol: {hint}"
        f"add {listener_name}:PLAINTEXT (or SSL, SASL_SSL) to listener.security.protocol.map"
    )


def _check_bound(bound: tuple[Listener, ...], findings: list[Finding]) -> None:
    names: dict[str, Listener] = {}
    ports: dict[int, Listener] = {}
    for listener in bound:
        if listener.name in names:
            findings.append(
                Finding("listeners", f"listeners: the name {listener.name} is used twice; names are unique")
            )
        names[listener.name] = listener
        other = ports.get(listener.port)
        if listener.port != 0 and other is not None and not _different_families(listener, other):
            text = f"listeners: {other} and {listener} use the same port {listener.port}: give each its own port"
            findings.append(Finding("listeners", text))
        ports[listener.port] = listener


def _different_families(one: Listener, other: Listener) -> bool:
    # Kafka allows the same port once for IPv4 and once for IPv6.
    def numeric(host: str) -> bool:
        return ":" in host or host.replace(".", "").isdigit()

    return numeric(one.host) and numeric(other.host) and (":" in one.host) != (":" in other.host)


def _advertised(
    bound: tuple[Listener, ...], given: tuple[Listener, ...], controller_names: tuple[str, ...]
) -> tuple[Listener, ...]:
    if not given:
        return tuple(_named(one, controller_names) for one in bound)
    names = {listener.name for listener in given}
    added = (_named(one, controller_names) for one in bound if one.name in controller_names and one.name not in names)
    return (*given, *added)


def _named(listener: Listener, controller_names: tuple[str, ...]) -> Listener:
    # Only other nodes look for a controller, and in a fixed quorum by controller.quorum.voters: there, every
    # interface of this machine is as good as its name.
    if listener.name in controller_names and listener.host in ("0.0.0.0", "::"):
        return replace(listener, host="")
    return listener


def _check_advertised(
    given: tuple[Listener, ...],
    advertised: tuple[Listener, ...],
    bound: tuple[Listener, ...],
    findings: list[Finding],
) -> None:
    bound_names = {listener.name for listener in bound}
    name = "advertised.listeners"
    for listener in given:
        if listener.name not in bound_names:
            text = (
                f"{name}: {listener.name} is not among listeners, which has {', '.join(sorted(bound_names)) or 'none'}"
            )
            findings.append(Finding(name, text))
    for listener in advertised:
        if listener.host != "0.0.0.0":
            continue
        example = f"{name}={listener.name}://myhost:{listener.port}"
        if listener in given:
            text = f"{name}: {listener}: clients cannot connect to 0.0.0.0; name this machine, for example {example}"
            findings.append(Finding(name, text))
        else:
            text = f"listeners: {listener}: clients would be told to connect to 0.0.0.0; add {example}"
            findings.append(Finding("listeners", text))


def _inter_broker_name(texts: ListenerTexts, roles: frozenset[str], findings: list[Finding]) -> str | None:
    if texts.inter_broker_name and texts.inter_broker_protocol_given:
        text = "inter.broker.listener.name and security.inter.broker.protocol are both set: keep only the first"
        findings.append(Finding("security.inter.broker.protocol", text))
    if "broker" not in roles:
        return None
    return (texts.inter_broker_name or texts.inter_broker_protocol).upper()


def _check_roles(resolved: Listeners, roles: frozenset[str], texts: ListenerTexts, findings: list[Finding]) -> None:
    bound_names = [listener.name for listener in resolved.bound]
    known = ", ".join(bound_names)
    missing = [name for name in resolved.controller_names if name not in bound_names]
    name = "controller.listener.names"
    if "controller" in roles and missing:
        text = f"{name}: {', '.join(missing)} is not among listeners ({known}): add it there, for example "
        findings.append(Finding(name, text + f"listeners={texts.listeners},{missing[0]}://:9093"))
    elif roles == {"broker"} and resolved.controller:
        text = f"{name}: {resolved.controller[0].name} is among listeners, but this node is not a controller: "
        findings.append(Finding(name, text + "take it out of listeners, or add controller to process.roles"))
    elif roles == {"controller"} and resolved.broker:
        text = f"listeners: {resolved.broker[0].name} is not a controller listener, but this node is not a broker: "
        findings.append(Finding("listeners", text + f"take it out, or add it to {name}"))
    if "broker" in roles and not findings:
        _check_broker_listeners(resolved, findings)


def _check_broker_listeners(resolved: Listeners, findings: list[Finding]) -> None:
    names = [one.name for one in resolved.advertised if one.name not in resolved.controller_names]
    if not names:
        text = "listeners: a broker needs a listener for clients; all of these belong to controller.listener.names"
        findings.append(Finding("listeners", text))
    elif resolved.inter_broker_name not in names:
        text = (
            f"inter.broker.listener.name is {resolved.inter_broker_name}, which is not among the broker's listeners "
            f"({', '.join(names)}): set inter.broker.listener.name={names[0]}"
        )
        findings.append(Finding("inter.broker.listener.name", text))
