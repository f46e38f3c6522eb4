"""A node's security, assembled from its settings: TLS and sign-in of each listener, and the access lists."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from penstock.api.context import Client
from penstock.api.dispatch import ClientSession, Dispatcher
from penstock.api.security.sign_in_session import SignInSession
from penstock.client.settings import MECHANISMS, Credentials
from penstock.config.listeners import Listener
from penstock.config.node import NodeSettings
from penstock.core.metadata import security as metadata_security
from penstock.core.metadata.image import METADATA_VERSION, Image
from penstock.core.security.authorizer import Authorizer
from penstock.core.security.jaas import InvalidJaas, parse_jaas
from penstock.core.security.principal_mapping import InvalidRules, PrincipalMapping
from penstock.core.security.quotas import Windows
from penstock.model.access import ANONYMOUS, USER_PREFIX, Operation
from penstock.node.failures import CannotStart
from penstock.runtime.env import Env
from penstock.runtime.keep_running import keep_running
from penstock.runtime.peer import PLAIN_TEXT, PeerSecurity
from penstock.runtime.raft.metadata_files import read_bootstrap
from penstock.runtime.security.access_control import STANDARD_AUTHORIZER, AccessControl
from penstock.runtime.security.audit import AuditTrail
from penstock.runtime.security.certificate_reload import CurrentContext, ReloadingContext
from penstock.runtime.security.client_quotas import ClientQuotas
from penstock.runtime.security.sign_in import DelegationTokens, SignIn, SignInSettings, SignInUnusable, login_of
from penstock.runtime.security.tls import TlsUnusable, client_context, distinguished_name, server_context
from penstock.server.connection import RequestSession
from penstock.wire.messages.metadata_records import DelegationTokenRecord, RemoveDelegationTokenRecord

WATCH_INTERVAL_S = 5.0
METRICS = "METRICS"

logger = logging.getLogger("penstock.security")


class NodeSecurity:
    """Who may connect to this node, and what they may do."""

    def __init__(self, env: Env, settings: NodeSettings) -> None:
        """Raises CannotStart if the settings are wrong."""
        self._env = env
        self._settings = settings
        self.tokens = DelegationTokens(
            settings.delegation_token_secret_key,
            settings.delegation_token_max_lifetime_ms,
            settings.delegation_token_expiry_time_ms,
        )
        self.access = AccessControl(self._authorizer())
        self.audit = AuditTrail(
            env,
            settings.node_id,
            settings.penstock_audit_queue_max_events,
            # A controller has no partitions to write to.
            is_on=settings.penstock_audit_enable and settings.is_broker,
            logs=settings.penstock_audit_log,
        )
        if self.audit.is_on:
            self.access.on_denied(self.audit.denied)
        self.quotas = ClientQuotas(env, *_quota_windows(settings))
        # For the node's own requests; nothing is ever set in it.
        self.no_quotas = ClientQuotas(env, *_quota_windows(settings))
        # Until the metadata log has records, the credentials are those that the cluster was formatted with.
        self.bootstrap_records: tuple[object, ...] = ()
        self._bootstrap_image = Image()
        self._image = self._bootstrap_image
        # Until this node learns what is committed, the credentials in its log.
        self._unconfirmed: Image | None = None
        self._tls: dict[str, ReloadingContext] = {}
        self._contexts: list[ReloadingContext] = []
        self._sign_in: dict[str, SignIn] = {}
        self._mappings: dict[str, PrincipalMapping] = {}
        self._protocols: dict[str, str] = {}
        for listener in settings.listeners:
            try:
                self._prepare(listener)
            except (TlsUnusable, SignInUnusable, InvalidRules) as error:
                raise CannotStart(f"listener {listener.name} ({listener.security_protocol}): {error}") from error
        self.metrics_tls = self._prepare_metrics()
        inter_broker = settings.inter_broker_listener_name
        self.to_brokers = self._to_peers(inter_broker, "sasl.mechanism.inter.broker.protocol")
        self.to_controllers = self._to_peers(
            settings.controller_listener_names[0], "sasl.mechanism.controller.protocol"
        )

    def _authorizer(self) -> Authorizer | None:
        settings = self._settings
        name = settings.authorizer_class_name
        if not name:
            return None
        if name != STANDARD_AUTHORIZER:
            raise CannotStart(f"authorizer.class.name={name} is not supported: use {STANDARD_AUTHORIZER}")
        super_users = (each.strip() for each in settings.super_users.split(";"))
        return Authorizer(filter(None, super_users), settings.allow_everyone_if_no_acl_found)

    def _prepare(self, listener: Listener) -> None:
        name, protocol = listener.name, listener.security_protocol
        look_up = self._look_up(name)
        self._protocols[name] = protocol
        if protocol.endswith("SSL"):
            self._tls[name] = ReloadingContext(name, look_up, server_context, keeps_identity=True)
            self._contexts.append(self._tls[name])
            self._mappings[name] = PrincipalMapping(look_up("ssl.principal.mapping.rules") or "DEFAULT")
        if protocol.startswith("SASL"):
            read = SignInSettings.read(look_up, partial(login_of, self._settings.properties, name))
            self._sign_in[name] = SignIn(self._env, read, self._known, self.tokens)

    def _prepare_metrics(self) -> ssl.SSLContext | None:
        """The context of the metrics listener; None for plain HTTP."""
        wanted = self._settings.penstock_metrics_listener
        if wanted is None or not wanted.tls:
            return None
        try:
            reloading = ReloadingContext("for metrics", self._look_up(METRICS), server_context)
        except TlsUnusable as error:
            raise CannotStart(f"penstock.metrics.listener (https): {error}") from error
        self._contexts.append(reloading)
        return CurrentContext(reloading.context)

    def _look_up(self, listener_name: str) -> Callable[[str], str | None]:
        """Looks up a listener's current properties by name."""
        return lambda name: self._settings.listener_property(listener_name, name)

    def is_exempt(self, client: Client) -> bool:
        """Whether requests between brokers are not counted for this client: a broker, or not authenticated yet."""
        is_anonymous = client.principal == ANONYMOUS and client.security_protocol.startswith("SASL")
        return is_anonymous or self.access.allows_on_cluster(client, Operation.CLUSTER_ACTION, quiet=True)

    def settings_changed(self, settings: NodeSettings) -> None:
        """Certificates, mechanisms or passwords were changed while the node runs."""
        self._settings = settings
        self._refresh_certificates()
        for name, sign_in in self._sign_in.items():
            try:
                sign_in.settings = SignInSettings.read(
                    self._look_up(name), partial(login_of, self._settings.properties, name)
                )
            except SignInUnusable as error:
                logger.error("listener %s keeps its mechanisms: %s", name, error)

    def _to_peers(self, listener_name: str | None, mechanism_setting: str) -> PeerSecurity:
        """How this node authenticates to others on a listener of that name."""
        protocol = self._settings.security_protocols.get(listener_name or "", "PLAINTEXT")
        if listener_name is None or protocol == "PLAINTEXT":
            return PLAIN_TEXT
        tls = credentials = None
        look_up = self._look_up(listener_name)
        try:
            if protocol.endswith("SSL"):
                tls = ReloadingContext(listener_name, look_up, client_context, keeps_identity=True)
                self._contexts.append(tls)
            if protocol.startswith("SASL"):
                credentials = self._credentials(listener_name, look_up(mechanism_setting) or "")
        except (TlsUnusable, SignInUnusable) as error:
            raise CannotStart(f"connections to other nodes by {listener_name} ({protocol}): {error}") from error
        return PeerSecurity(tls.context if tls is not None else None, credentials)

    def _credentials(self, listener_name: str, mechanism: str) -> Credentials:
        if mechanism not in MECHANISMS:
            raise SignInUnusable(f"nodes sign in to each other by one of {', '.join(MECHANISMS)}, not by {mechanism}")
        text = login_of(self._settings.properties, listener_name, mechanism)
        name = f"listener.name.{listener_name.lower()}.{mechanism.lower()}.sasl.jaas.config"
        if text is None:
            raise SignInUnusable(f"{name} is missing: it has the username and password of this node")
        try:
            options = parse_jaas(text).options
        except InvalidJaas as error:
            raise SignInUnusable(f"{name} cannot be read: {error}") from None
        if "username" not in options or "password" not in options:
            raise SignInUnusable(f"{name} needs a username and a password, with which this node signs in to others")
        return Credentials(mechanism, options["username"], options["password"])

    def tls(self, listener_name: str) -> Callable[[], ssl.SSLContext] | None:
        """What returns the context for a listener's next connection; None for plain text."""
        found = self._tls.get(listener_name)
        return found.context if found is not None else None

    def session(self, dispatcher: Dispatcher, listener_name: str, address: tuple[str, int]) -> RequestSession:
        """The session of a new connection."""
        principal_of = partial(self._principal_of, listener_name) if listener_name in self._tls else None
        plain: ClientSession = dispatcher.session(
            listener_name, address, self._protocols.get(listener_name, "PLAINTEXT"), principal_of
        )
        sign_in = self._sign_in.get(listener_name)
        return plain if sign_in is None else SignInSession(plain, sign_in, self._report_sign_in)

    def _principal_of(self, listener_name: str, certificate: Mapping[str, object]) -> str:
        name = distinguished_name(certificate)
        mapped = self._mappings[listener_name].principal(name)
        return USER_PREFIX + (name if mapped is None else mapped)

    def _report_sign_in(self, client: Client, mechanism: str, user: str, refusal: str | None) -> None:
        if refusal is not None:
            self.audit.sign_in_refused(client, mechanism, user, refusal)
            logger.warning(
                "%s on %s: sign-in by %s as %r refused: %s",
                client.host,
                client.listener_name,
                mechanism,
                user[:100],
                refusal,
            )

    def read_bootstrap(self, directory: Path) -> None:
        """Load what the directory was formatted with; raises DamagedMetadata."""
        self.bootstrap_records = tuple(read_bootstrap(self._env.filesystem, directory))
        for record in self.bootstrap_records:
            self._bootstrap_image.replay(record)

    def _known(self) -> Image:
        if self._unconfirmed is not None:
            return self._unconfirmed
        return self._image if METADATA_VERSION in self._image.features else self._bootstrap_image

    def committed(self, records: Sequence[object]) -> None:
        """Apply the metadata log."""
        self._unconfirmed = None
        self.access.committed(records)
        self.quotas.committed(records)
        for record in records:
            if isinstance(record, DelegationTokenRecord):
                self.tokens.learn((record.token_id,))
            elif isinstance(record, RemoveDelegationTokenRecord):
                self.tokens.forget(record.token_id)

    def start(self, image: Image, unconfirmed: Iterable[Any] = ()) -> None:
        """Use the metadata log from now on, and watch for changed certificates.

        `unconfirmed` are the records in the log that may be committed. Controllers that start all together have to sign
        in to each other before any of them can know, so until then the users in these records count.
        """
        self._image = image
        self._unconfirmed = _with_changes(image, unconfirmed)
        self.access.load(image)
        self.quotas.load(image)
        self.tokens.learn(image.security.tokens)
        if self._contexts:
            keep_running(self._env, self._watch, "watch certificates")

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_INTERVAL_S)
            self._refresh_certificates()

    def _refresh_certificates(self) -> None:
        for context in self._contexts:
            context.refresh()


def _with_changes(image: Image, records: Iterable[Any]) -> Image | None:
    """What an image and further records say of security; None if the records say nothing of it."""
    changes = [record for record in records if type(record) in metadata_security.REPLAY]
    if not changes:
        return None
    changed = Image()
    changed.security = image.security.copy()
    for record in changes:
        changed.replay(record)
    return changed


def _quota_windows(settings: NodeSettings) -> tuple[Windows, Windows]:
    """The windows of the rates of clients, and of their changes to the cluster."""
    return (
        Windows(settings.quota_window_num, settings.quota_window_size_seconds * 1000),
        Windows(settings.controller_quota_window_num, settings.controller_quota_window_size_seconds * 1000),
    )
