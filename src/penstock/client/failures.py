"""Why a broker gave no answer, as exceptions and in words that a person can act on."""

from __future__ import annotations

import socket


class NoAnswer(ConnectionError):
    """No answer can be had from a broker; the message says which one, and why. Its connection is closed."""


class NotServed(NoAnswer):
    """The broker serves no version of the API that this client speaks. Trying again does not help."""


class AuthenticationFailed(NoAnswer):
    """One side could not show the other who it is: by sign-in or by certificate. Trying again does not help."""


def reason_of(error: Exception) -> str:
    """Why a plain connection could not be opened, or broke; `tls.reason_of` knows of TLS as well."""
    if isinstance(error, socket.gaierror):
        return "this name cannot be resolved"
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there (connection refused)"
    if isinstance(error, TimeoutError):
        return "no answer (a firewall, or the wrong address)"
    return getattr(error, "strerror", None) or str(error)
