"""Reloads certificates and keys when their files or settings change."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable

from penstock.runtime.security.tls import TlsSettings, TlsUnusable

logger = logging.getLogger("penstock.security")


class ReloadingContext:
    """The TLS context of one listener; `refresh` reloads it, so that new certificates need no restart."""

    def __init__(
        self, name: str, look_up: Callable[[str], str | None], make: Callable[[TlsSettings], ssl.SSLContext]
    ) -> None:
        """Raises TlsUnusable."""
        self._make = make
        self._name = name
        self._look_up = look_up
        self._settings = TlsSettings.read(look_up)
        self._fingerprint = self._settings.fingerprint()
        self._context = make(self._settings)

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
            self._context = self._make(settings)
        except TlsUnusable as error:
            logger.error("listener %s keeps its old certificate: %s", self._name, error)
        else:
            logger.info("listener %s has a new certificate", self._name)
