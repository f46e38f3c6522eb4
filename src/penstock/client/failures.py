"""Why a broker gave no answer: exceptions, and reasons that users can act on."""

from __future__ import annotations

import socket
from collections.abc import Sequence


class NoAnswer(ConnectionError):
    """A broker gave no answer; the message contains which one, and why. Its connection is closed."""


class Unreachable(NoAnswer):
    """No connection to the broker could be opened."""


class NotServed(NoAnswer):
    """The broker supports no version of the API that this client supports. Retrying does not help."""


class AuthenticationFailed(NoAnswer):
    """Authentication failed on either side, by SASL or by certificate. Retrying does not help."""


class CredentialsRejected(AuthenticationFailed):
    """The broker knows the mechanism, and rejects these credentials."""


class MechanismMissing(AuthenticationFailed):
    """The broker's listener does not have the mechanism."""


def all_failed(failures: Sequence[NoAnswer]) -> NoAnswer:
    """The failure of a request that several brokers did not answer: a permanent one of them, or all reasons."""
    permanent = [each for each in failures if isinstance(each, NotServed | AuthenticationFailed)]
    if permanent:
        return permanent[-1]
    kind = Unreachable if all(isinstance(each, Unreachable) for each in failures) else NoAnswer
    return kind("; ".join(dict.fromkeys(map(str, failures))))


def reason_of(error: Exception) -> str:
    """Why a connection could not be opened, or broke; `tls.reason_of` covers TLS as well."""
    if isinstance(error, socket.gaierror):
        return "this name cannot be resolved"
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there (connection refused)"
    if isinstance(error, TimeoutError):
        return "no answer (a firewall, or the wrong address)"
    return getattr(error, "strerror", None) or str(error)
