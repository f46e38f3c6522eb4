"""What `penstock doctor` looks at in matters of security: certificates, mechanisms, and listeners without either."""

from __future__ import annotations

import datetime
import socket
import ssl
from collections.abc import Callable, Sequence
from functools import partial

from penstock.cli.doctor.command import NOTE, OK, WRONG, Finding
from penstock.cli.options import Connection
from penstock.cli.security.cert_files import state_of
from penstock.client.connection import Connection as BrokerConnection
from penstock.client.failures import AuthenticationFailed, NoAnswer
from penstock.client.settings import read_settings
from penstock.config.listeners import Listener, is_loopback, unprotected
from penstock.config.node import NodeSettings
from penstock.runtime.security.certificates import CertificateFacts, read_certificates
from penstock.runtime.security.sign_in import SignInSettings, SignInUnusable, login_of
from penstock.runtime.security.tls import TlsSettings, TlsUnusable, client_context, key_and_chain, server_context

TIMEOUT_S = 3.0
RENEW = "issue another, `penstock security cert issue … --force`, and put it in its place: nodes need no restart"
PROTECT = "give it TLS and a sign-in: docs/security.md describes how, listener by listener, with no downtime"
Address = tuple[str, int]


def check_listeners(settings: NodeSettings, now: datetime.datetime) -> list[Finding]:
    """Findings about the listeners in a node's settings."""
    findings = [
        Finding(NOTE, f"listener {listener} is open to the network", why, PROTECT)
        for listener, why in unprotected(settings.listeners, bool(settings.authorizer_class_name))
    ]
    for listener in settings.listeners:
        look_up = partial(settings.listener_property, listener.name)
        if listener.security_protocol.endswith("SSL"):
            findings += _check_certificate(settings, listener, look_up, now)
        if listener.security_protocol.startswith("SASL"):
            findings += _check_mechanisms(settings, listener, look_up)
    return findings


def _check_certificate(
    settings: NodeSettings, listener: Listener, look_up: Callable[[str], str | None], now: datetime.datetime
) -> list[Finding]:
    tls = TlsSettings.read(look_up)
    try:
        server_context(tls)
        if listener.name in (settings.inter_broker_listener_name, *settings.controller_listener_names):
            client_context(tls)
        chain, _ = key_and_chain(tls)
        certificates = read_certificates(chain)
    except (TlsUnusable, OSError, ValueError) as error:
        return [Finding(WRONG, f"listener {listener.name} cannot speak TLS", str(error), "correct its ssl.* settings")]
    own = certificates[0]
    advertised = [one.host for one in settings.advertised_listeners if one.name == listener.name and one.host]
    return check_certificate(f"the certificate of listener {listener.name}", own, advertised, now)


def check_certificate(
    what: str, certificate: CertificateFacts, hosts: Sequence[str], now: datetime.datetime
) -> list[Finding]:
    """Whether a certificate is good now, for a while, and for these names."""
    findings = []
    state = state_of(certificate, now)
    if state.startswith(("expired", "not valid")):
        why = "clients and other nodes refuse to connect"
        findings.append(Finding(WRONG, f"{what} {'is ' if state.startswith('not') else ''}{state}", why, RENEW))
    elif state.startswith("expires"):
        findings.append(Finding(NOTE, f"{what} {state}", "after that no client can connect", RENEW))
    for host in dict.fromkeys(hosts):
        if not certificate.covers(host):
            names = ", ".join(certificate.hosts) or "no host at all"
            why = f"it is for {names}; clients that check names refuse it"
            advice = f"issue one with --host {host} as well, or advertise a name that it has"
            findings.append(Finding(WRONG, f"{what} is not for {host}", why, advice))
    return findings or [Finding(OK, f"{what}: {state}")]


def _check_mechanisms(
    settings: NodeSettings, listener: Listener, look_up: Callable[[str], str | None]
) -> list[Finding]:
    try:
        enabled = SignInSettings.read(look_up, partial(login_of, settings.properties, listener.name)).mechanisms
    except SignInUnusable as error:
        return [Finding(WRONG, f"no client could sign in on listener {listener.name}", str(error))]
    name = None
    if listener.name == settings.inter_broker_listener_name:
        name = "sasl.mechanism.inter.broker.protocol"
    elif listener.name in settings.controller_listener_names:
        name = "sasl.mechanism.controller.protocol"
    if name is not None and (wanted := look_up(name)) not in enabled:
        why = f"it takes {', '.join(enabled) or 'none'}, so that nodes cannot sign in to each other"
        advice = f"add {wanted} to its sasl.enabled.mechanisms, or set {name} to one of them"
        return [Finding(WRONG, f"{name}={wanted} does not fit listener {listener.name}", why, advice)]
    return [Finding(OK, f"listener {listener.name} takes {', '.join(enabled)}")]


def check_sign_in(connection: Connection, addresses: Sequence[Address]) -> list[Finding]:
    """Whether brokers take the way that -X and --command-config describe; nothing where only librdkafka can tell."""
    try:
        settings = read_settings({**connection.properties, "bootstrap.servers": connection.bootstrap})
    except ValueError as error:
        mechanism = connection.properties.get("sasl.mechanisms", connection.properties.get("sasl.mechanism", ""))
        if mechanism.upper() in ("OAUTHBEARER", "GSSAPI"):
            return []
        return [Finding(WRONG, "the settings of this client cannot be used", str(error))]
    findings: list[Finding] = []
    now = datetime.datetime.now(datetime.UTC)
    for host, port in addresses:
        found = peer_certificate(host, port)
        if found is None and not settings.tls:
            continue
        if found is not None and not settings.tls:
            advice = "add -X security.protocol=sasl_ssl (or ssl) and -X ssl.ca.location=ca.pem"
            return [Finding(WRONG, f"{host}:{port} speaks TLS", "this client does not", advice)]
        if found is None:
            advice = "use another port, or -X security.protocol=sasl_plaintext (or plaintext)"
            return [Finding(WRONG, f"{host}:{port} does not speak TLS", "this client does", advice)]
        findings += check_certificate(f"the certificate of {host}:{port}", found, [host], now)
    try:
        BrokerConnection(settings.bootstrap[0], settings, TIMEOUT_S).close()
    except AuthenticationFailed as error:
        findings.append(Finding(WRONG, "the broker and this client do not accept each other", str(error)))
    except NoAnswer:
        # The check of the connection itself reports that.
        return findings
    else:
        if settings.credentials is not None:
            findings.append(
                Finding(OK, f"{settings.credentials.username} signs in by {settings.credentials.mechanism}")
            )
    return findings


def check_plain_text(connection: Connection, node_id: int, host: str, port: int) -> list[Finding]:
    """Whether a broker takes clients in plain text at an address of the network."""
    protocol = connection.properties.get("security.protocol", "plaintext").upper()
    if is_loopback(host) or protocol.endswith("SSL"):
        return []
    listener = Listener(protocol, host, port, protocol)
    return [
        Finding(NOTE, f"broker {node_id} takes clients at {host}:{port} without TLS", why, PROTECT)
        for _, why in unprotected([listener], has_access_lists=False)
    ]


def peer_certificate(host: str, port: int) -> CertificateFacts | None:
    """The certificate that is presented there, by whatever authority; None where no TLS is spoken."""
    try:
        with (
            socket.create_connection((host, port), timeout=TIMEOUT_S) as plain,
            unverified_context().wrap_socket(plain, server_hostname=host) as wrapped,
        ):
            encoded = wrapped.getpeercert(binary_form=True)
    except (OSError, ValueError):
        return None
    return read_certificates(ssl.DER_cert_to_PEM_cert(encoded).encode())[0] if encoded else None


def unverified_context() -> ssl.SSLContext:
    """For looking at a certificate: who vouches for it is for clients to decide."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
