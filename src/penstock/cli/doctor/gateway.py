"""What `penstock doctor` looks at in a gateway: whether it is ready, its certificate, and who may call it."""

from __future__ import annotations

import datetime
import http.client
import json
import ssl
from contextlib import closing
from functools import partial
from http.client import HTTPConnection, HTTPSConnection
from urllib.parse import urlsplit

from penstock.cli.doctor.command import NOTE, OK, WRONG, Finding
from penstock.cli.doctor.security import check_certificate, peer_certificate, unverified_context
from penstock.config.listeners import is_loopback

TIMEOUT_S = 10.0
PORTS = {"http": 80, "https": 443}
SAY_URL = "name it as http://host:port or https://host:port"
START = "start it, `penstock gateway -b …`, or name another with --gateway"


def check_gateway(url: str) -> list[Finding]:
    """Findings about the gateway at a URL."""
    try:
        address = urlsplit(url)
        host, port = address.hostname, address.port or PORTS.get(address.scheme)
    except ValueError as error:
        return [Finding(WRONG, f"{url} is not the URL of a gateway", str(error), SAY_URL)]
    if host is None or port is None or address.scheme not in PORTS:
        return [Finding(WRONG, f"{url} is not the URL of a gateway", "scheme or host is missing", SAY_URL)]
    is_secure = address.scheme == "https"
    try:
        status, text = _get(host, port, "/health/ready", is_secure)
    except (OSError, http.client.HTTPException) as error:
        return [_no_answer(url, host, port, is_secure, error)]
    findings = []
    if is_secure and (certificate := peer_certificate(host, port)) is not None:
        now = datetime.datetime.now(datetime.UTC)
        findings += check_certificate(f"the certificate of {host}:{port}", certificate, [host], now)
    if status == http.client.OK:
        findings.append(Finding(OK, f"the gateway at {url} is ready"))
    else:
        advice = "check its -b and --command-config, and that the brokers run: `penstock doctor -b …`"
        findings.append(Finding(WRONG, f"the gateway at {url} is not ready ({status})", _reason(text), advice))
    return findings if is_loopback(host) else findings + _check_openness(url, host, port, is_secure)


def _no_answer(url: str, host: str, port: int, is_secure: bool, error: Exception) -> Finding:
    if not is_secure and peer_certificate(host, port) is not None:
        return Finding(WRONG, f"{host}:{port} speaks TLS", f"{url} does not", f"use https://{host}:{port}")
    if isinstance(error, ssl.SSLError):
        return Finding(WRONG, f"{host}:{port} does not speak TLS", str(error), f"use http://{host}:{port}")
    why = f"{error.strerror or error}" if isinstance(error, OSError) else f"it does not speak HTTP: {error}"
    return Finding(WRONG, f"no gateway answers at {url}", why, START)


def _check_openness(url: str, host: str, port: int, is_secure: bool) -> list[Finding]:
    """What is wrong with a gateway that the network can reach."""
    findings = []
    if not is_secure:
        why = "anyone on the path can read and change what callers send, their passwords too"
        advice = "give it a certificate: --http ssl.keystore.location=FILE, see docs/security.md"
        findings.append(Finding(NOTE, f"the gateway at {url} takes callers without TLS", why, advice))
    try:
        status, _ = _get(host, port, "/v3/clusters", is_secure)
    except (OSError, http.client.HTTPException):
        return findings
    if status == http.client.OK:
        why = "they act as the gateway itself, with all of its rights"
        advice = "have callers sign in: --auth basic, see docs/security.md"
        findings.append(Finding(NOTE, f"the gateway at {url} takes callers that do not sign in", why, advice))
    return findings


def _get(host: str, port: int, path: str, is_secure: bool) -> tuple[int, str]:
    connect = partial(HTTPSConnection, context=unverified_context()) if is_secure else HTTPConnection
    with closing(connect(host, port, timeout=TIMEOUT_S)) as connection:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read(65_536).decode("utf-8", errors="replace")


def _reason(text: str) -> str:
    try:
        checks = json.loads(text)["checks"].values()
        return "; ".join(check["reason"] for check in checks if not check["ok"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return text[:200]
