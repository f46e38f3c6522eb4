"""Reloads certificates and keys when their files or settings change."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from typing import Any

from penstock.runtime.security.tls import TlsSettings, TlsUnusable, own_certificate

logger = logging.getLogger("penstock.security")


class CurrentContext(ssl.SSLContext):
    """Hands every new connection to the context that is current then; for servers that take one context for all."""

    def __new__(cls, current: Callable[[], ssl.SSLContext]) -> CurrentContext:  # noqa: ARG004
        return super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)

    def __init__(self, current: Callable[[], ssl.SSLContext]) -> None:
        self._current = current

    def wrap_bio(self, *arguments: Any, **named: Any) -> ssl.SSLObject:
        """The TLS side of a new connection."""
        return self._current().wrap_bio(*arguments, **named)


class ReloadingContext:
    """The TLS context of one listener; `refresh` reloads it, so that new certificates need no restart."""

    def __init__(
        self,
        name: str,
        look_up: Callable[[str], str | None],
        make: Callable[[TlsSettings], ssl.SSLContext],
        *,
        keeps_identity: bool = False,
    ) -> None:
        """With `keeps_identity` a new certificate must be for the same subject and names. Raises TlsUnusable."""
        self._keeps_identity = keeps_identity
        self._make = make
        self._name = name
        self._look_up = look_up
        self._settings = TlsSettings.read(look_up)
        self._fingerprint = self._settings.fingerprint()
        self._context = make(self._settings)
        self._certificate = own_certificate(self._settings)

    def context(self) -> ssl.SSLContext:
        """The context for the next connection."""
        return self._context

    def refresh(self) -> None:
        """Load changed files or settings; if they cannot be used that is logged, and the old ones stay in use."""
        settings = TlsSettings.read(self._look_up)
        fingerprint = settings.fingerprint()
        if (settings, fingerprint) == (self._settings, self._fingerprint):
            return
        self._settings, self._fingerprint = settings, fingerprint
        try:
            context = self._make(settings)
            certificate = own_certificate(settings)
            self._check_identity(certificate)
        except TlsUnusable as error:
            logger.error("listener %s keeps its old certificate: %s", self._name, error)
        else:
            self._context, self._certificate = context, certificate
            logger.info("listener %s has a new certificate", self._name)

    def _check_identity(self, new_pem: bytes) -> None:
        """As in Kafka, another certificate must be for the same subject and names, unless that is allowed to change."""
        is_another = self._certificate and new_pem and self._certificate != new_pem
        if not (self._keeps_identity and is_another):
            return
        # Parsing is what a start does without.
        from penstock.runtime.security.certificates import read_certificates

        try:
            old, new = read_certificates(self._certificate)[0], read_certificates(new_pem)[0]
        except ValueError as error:
            raise TlsUnusable(f"the certificate cannot be read: {error}") from None
        if old.subject != new.subject and not self._allows("ssl.allow.dn.changes"):
            raise TlsUnusable(
                f"the new one is for {new.subject} instead of {old.subject}: set ssl.allow.dn.changes=true, or restart"
            )
        missing = sorted({*old.hosts}.difference(new.hosts))
        if missing and not self._allows("ssl.allow.san.changes"):
            raise TlsUnusable(
                f"the new one lacks the names {', '.join(missing)}: set ssl.allow.san.changes=true, or restart"
            )

    def _allows(self, name: str) -> bool:
        return (self._look_up(name) or "").strip().lower() == "true"
