"""A node's security put together from its settings: TLS and sign-in of each listener, and the access lists."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from penstock.api.context import Client
from penstock.api.dispatch import ClientSession, Dispatcher
from penstock.api.sign_in_session import SignInSession
from penstock.config.listeners import Listener
from penstock.config.node import NodeSettings
from penstock.core.metadata.image import METADATA_VERSION, Image
from penstock.core.security.authorizer import Authorizer
from penstock.core.security.principal_mapping import InvalidRules, PrincipalMapping
from penstock.core.security.quotas import Windows
from penstock.model.access import USER_PREFIX
from penstock.node.failures import CannotStart
from penstock.runtime.env import Env
from penstock.runtime.raft.metadata_files import read_bootstrap
from penstock.runtime.security.access_control import STANDARD_AUTHORIZER, AccessControl
from penstock.runtime.security.client_quotas import ClientQuotas
from penstock.runtime.security.sign_in import DelegationTokens, SignIn, SignInSettings, SignInUnusable
from penstock.runtime.security.tls import TlsSettings, TlsUnusable, distinguished_name, server_context
from penstock.server.connection import Session

WATCH_INTERVAL_S = 5.0
# Kafka's: eleven windows of a second.
QUOTA_WINDOWS = Windows(11, 1000)

logger = logging.getLogger("penstock.security")


class TlsListener:
    """A listener's certificates: read again when their files change, so that nobody has to restart for a new one."""

    def __init__(self, name: str, look_up: Callable[[str], str | None]) -> None:
        """Raises TlsUnusable."""
        self._name = name
        self._look_up = look_up
        self._settings = TlsSettings.read(look_up)
        self._fingerprint = self._settings.fingerprint()
        self._context = server_context(self._settings)

    def context(self) -> ssl.SSLContext:
        """For the next connection."""
        return self._context

    def refresh(self) -> None:
        """Take new files or settings up; those that cannot be used are reported, and the old ones serve on."""
        settings = TlsSettings.read(self._look_up)
        fingerprint = settings.fingerprint()
        if (settings, fingerprint) == (self._settings, self._fingerprint):
            return
        self._settings, self._fingerprint = settings, fingerprint
        try:
            self._context = server_context(settings)
        except TlsUnusable as error:
            logger.error("listener %s keeps its old certificate: %s", self._name, error)
        else:
            logger.info("listener %s has a new certificate", self._name)


class NodeSecurity:
    """Who may connect to this node, and what they may do."""

    def __init__(self, env: Env, settings: NodeSettings) -> None:
        """Raises CannotStart with what is wrong in the settings."""
        self._env = env
        self._settings = settings
        self.tokens = DelegationTokens(
            settings.properties.get("delegation.token.secret.key"),
            settings.delegation_token_max_lifetime_ms,
            settings.delegation_token_expiry_time_ms,
        )
        self.access = AccessControl(self._authorizer())
        self.quotas = ClientQuotas(env, QUOTA_WINDOWS, QUOTA_WINDOWS)
        # Until the metadata log has begun, those who may sign in are those whom the cluster was formatted with.
        self.bootstrap_records: tuple[Any, ...] = ()
        self._bootstrap_image = Image()
        self._image = self._bootstrap_image
        self._tls: dict[str, TlsListener] = {}
        self._sign_in: dict[str, SignIn] = {}
        self._mappings: dict[str, PrincipalMapping] = {}
        self._protocols: dict[str, str] = {}
        for listener in settings.listeners:
            try:
                self._prepare(listener)
            except (TlsUnusable, SignInUnusable, InvalidRules) as error:
                raise CannotStart(f"listener {listener.name} ({listener.security_protocol}): {error}") from error

    def _authorizer(self) -> Authorizer | None:
        settings = self._settings
        name = settings.properties.get("authorizer.class.name", "")
        if not name:
            return None
        if name != STANDARD_AUTHORIZER:
            raise CannotStart(f"authorizer.class.name={name} is not supported: use {STANDARD_AUTHORIZER}")
        everyone = settings.properties.get("allow.everyone.if.no.acl.found", "false").lower() == "true"
        return Authorizer(settings.super_users, everyone)

    def _prepare(self, listener: Listener) -> None:
        name, protocol = listener.name, listener.security_protocol
        look_up = partial(self._settings.listener_property, name)
        self._protocols[name] = protocol
        if protocol.endswith("SSL"):
            self._tls[name] = TlsListener(name, look_up)
            self._mappings[name] = PrincipalMapping(look_up("ssl.principal.mapping.rules") or "DEFAULT")
        if protocol.startswith("SASL"):
            read = SignInSettings.read(look_up, partial(self.jaas, name))
            self._sign_in[name] = SignIn(self._env, read, self._known, self.tokens)

    def jaas(self, listener_name: str, mechanism: str) -> str | None:
        """The login of one mechanism on a listener, as Kafka's settings have it."""
        properties = self._settings.properties
        own = f"listener.name.{listener_name.lower()}.{mechanism.lower()}.sasl.jaas.config"
        return properties.get(own, properties.get("sasl.jaas.config"))

    def tls(self, listener_name: str) -> Callable[[], ssl.SSLContext] | None:
        """What gives a listener the context for its next connection; None for plain text."""
        found = self._tls.get(listener_name)
        return found.context if found is not None else None

    def session(self, dispatcher: Dispatcher, listener_name: str, address: tuple[str, int]) -> Session:
        """The conversation of a new connection."""
        principal_of = partial(self._principal_of, listener_name) if listener_name in self._tls else None
        plain: ClientSession = dispatcher.session(
            listener_name, address, self._protocols.get(listener_name, "PLAINTEXT"), principal_of
        )
        sign_in = self._sign_in.get(listener_name)
        return plain if sign_in is None else SignInSession(plain, sign_in, self._heard)

    def _principal_of(self, listener_name: str, certificate: Mapping[str, object]) -> str:
        name = distinguished_name(certificate)
        mapped = self._mappings[listener_name].principal(name)
        return USER_PREFIX + (name if mapped is None else mapped)

    def _heard(self, client: Client, mechanism: str, user: str, refusal: str | None) -> None:
        if refusal is not None:
            logger.warning(
                "%s on %s: sign-in by %s as %r refused: %s",
                client.host,
                client.listener_name,
                mechanism,
                user[:100],
                refusal,
            )

    def read_bootstrap(self, directory: Path) -> None:
        """Take up what the directory was formatted with; raises DamagedMetadata."""
        self.bootstrap_records = tuple(read_bootstrap(self._env.filesystem, directory))
        for record in self.bootstrap_records:
            self._bootstrap_image.replay(record)

    def _known(self) -> Image:
        return self._image if METADATA_VERSION in self._image.features else self._bootstrap_image

    def committed(self, records: Sequence[Any]) -> None:
        """Follow the metadata log."""
        self.access.committed(records)
        self.quotas.committed(records)

    def start(self, image: Image) -> None:
        """Go by what the metadata log says, and look for changed certificates, from now on."""
        self._image = image
        self.access.load(image)
        self.quotas.load(image)
        if self._tls:
            self._env.spawn(self._refresh(), "watch certificates")

    async def _refresh(self) -> None:
        while True:
            await asyncio.sleep(WATCH_INTERVAL_S)
            for listener in self._tls.values():
                listener.refresh()
