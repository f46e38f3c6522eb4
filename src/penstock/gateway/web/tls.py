"""TLS on the gateway's ports, with Kafka's `ssl.*` settings."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping

from penstock.core.security.principal_mapping import InvalidRules, PrincipalMapping
from penstock.model.access import USER_PREFIX
from penstock.runtime.security.certificate_reload import CurrentContext, ReloadingContext
from penstock.runtime.security.tls import TlsUnusable, distinguished_name, server_context

# A peer that does not complete its handshake in this time is disconnected.
HANDSHAKE_TIMEOUT_S = 10.0
RELOAD_INTERVAL_S = 5.0
CLIENT_AUTH = "ssl.client.auth"
MAPPING_RULES = "ssl.principal.mapping.rules"
KEYS = ("ssl.keystore.location", "ssl.keystore.key")
SETTINGS = (
    *KEYS,
    "ssl.keystore.type",
    "ssl.keystore.password",
    "ssl.keystore.certificate.chain",
    "ssl.key.password",
    "ssl.truststore.type",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.certificates",
    CLIENT_AUTH,
    MAPPING_RULES,
    "ssl.enabled.protocols",
    "ssl.cipher.suites",
)


class HttpTls:
    """The TLS of a gateway's ports; changed files are loaded while it runs. Raises TlsUnusable."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        try:
            self._mapping = PrincipalMapping(properties.get(MAPPING_RULES, ""))
        except InvalidRules as error:
            raise TlsUnusable(f"{MAPPING_RULES}: {error}") from None
        self._reloading = ReloadingContext("of the gateway", properties.get, server_context)
        self.context: ssl.SSLContext = CurrentContext(self._reloading.context)

    async def keep_current(self) -> None:
        """Reload changed files until cancelled."""
        while True:
            await asyncio.sleep(RELOAD_INTERVAL_S)
            self._reloading.refresh()

    def principal_of(self, transport: asyncio.BaseTransport) -> str | None:
        """The principal in the client's certificate, which the handshake has checked; None if it sent none."""
        peer = transport.get_extra_info("ssl_object")
        certificate = peer.getpeercert() if peer is not None else None
        if not certificate:
            return None
        name = distinguished_name(certificate)
        mapped = self._mapping.principal(name)
        return USER_PREFIX + (name if mapped is None else mapped)


def is_on(properties: Mapping[str, str]) -> bool:
    """Whether these settings turn TLS on: they do with a key."""
    return any(properties.get(name) for name in KEYS)
