"""Why a broker gave no answer, as exceptions and in words that a person can act on."""

from __future__ import annotations

import socket
import ssl

# OpenSSL's numbers for a certificate that is trusted and belongs to somebody else: another name, another address.
_WRONG_NAMES = (62, 64)


class NoAnswer(ConnectionError):
    """No answer can be had from a broker; the message says which one, and why. Its connection is closed."""


class NotServed(NoAnswer):
    """The broker serves no version of the API that this client speaks. Trying again does not help."""


class AuthenticationFailed(NoAnswer):
    """One side could not show the other who it is: by sign-in or by certificate. Trying again does not help."""


def reason_of(error: Exception) -> str:
    """Why a connection could not be opened, or broke."""
    if isinstance(error, socket.gaierror):
        return "this name cannot be resolved"
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there (connection refused)"
    if isinstance(error, TimeoutError):
        return "no answer (a firewall, or the wrong address)"
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _WRONG_NAMES:
            return f"its certificate is for another name: {error.verify_message}"
        return (
            f"its certificate is not trusted ({error.verify_message}): set ssl.ca.location to its authority's PEM file"
        )
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or str(error)).replace("_", " ").lower()
        return f"TLS failed ({reason}): check security.protocol, and that the port is that of a TLS listener"
    return getattr(error, "strerror", None) or str(error)
