"""An SSL context from the TLS settings of Kafka's clients."""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path

from penstock.client import failures
from penstock.client.failures import AuthenticationFailed, NoAnswer
from penstock.client.settings import ConnectionSettings

# OpenSSL's error numbers for a trusted certificate of another host: a different name, a different address.
WRONG_NAMES = (62, 64)
KEY_STORES = (".jks", ".p12", ".pfx")


def tls_context(settings: ConnectionSettings) -> ssl.SSLContext:
    """A context for one connection, read anew so that renewed certificates are used. Raises AuthenticationFailed."""
    authorities = _path(settings, "ssl.ca.location", "ssl.truststore.location")
    inline = _either(settings, "ssl.ca.pem", "ssl.truststore.certificates")
    chain = _path(settings, "ssl.certificate.location", "ssl.keystore.location")
    key = _path(settings, "ssl.key.location")
    own = [_either(settings, "ssl.key.pem", "ssl.keystore.key")]
    own.append(_either(settings, "ssl.certificate.pem", "ssl.keystore.certificate.chain"))
    password = settings.get("ssl.key.password")
    try:
        directory = authorities is not None and authorities.is_dir()
        context = ssl.create_default_context(
            cafile=None if directory else authorities, capath=authorities if directory else None, cadata=inline or None
        )
        # Without a password OpenSSL would prompt for one on the terminal.
        if chain is not None:
            context.load_cert_chain(chain, key, lambda: password)
        elif any(own):
            # Python's ssl reads the client's certificate only from files.
            with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".pem") as file:
                file.write("\n".join(own))
                file.flush()
                context.load_cert_chain(file.name, password=lambda: password)
    except OSError as error:
        why = getattr(error, "reason", None) or error.strerror or error
        raise AuthenticationFailed(f"the certificates in the ssl.* properties cannot be used: {why}") from error
    if settings.get("ssl.endpoint.identification.algorithm", "https").lower() in ("", "none"):
        context.check_hostname = False
    if settings.get("enable.ssl.certificate.verification", "true").lower() == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def reason_of(error: Exception) -> str:
    """Why a connection could not be opened, or broke."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in WRONG_NAMES:
            return f"its certificate is for another name: {error.verify_message}"
        return f"its certificate is not trusted ({error.verify_message}): set ssl.ca.location to its authority's file"
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or str(error)).replace("_", " ").lower()
        return f"TLS failed ({reason}): check security.protocol, and that the port is that of a TLS listener"
    return failures.reason_of(error)


def failure_of(error: Exception) -> tuple[type[NoAnswer], str]:
    """The kind of failure that a broken connection is, and why it broke."""
    kind = AuthenticationFailed if isinstance(error, ssl.SSLCertVerificationError) else NoAnswer
    return kind, reason_of(error)


def _path(settings: ConnectionSettings, *names: str) -> Path | None:
    """The file that the first of these properties that is set names."""
    for name in names:
        text = settings.get(name)
        # librdkafka's keyword for the system's certificates, which are used without a file anyway.
        if not text or text == "probe":
            continue
        if text.endswith(KEY_STORES):
            raise AuthenticationFailed(f"{name} is a key store, {text}: give a PEM file (keytool and openssl convert)")
        if not Path(text).exists():
            raise AuthenticationFailed(f"{name} names {text}, which does not exist")
        return Path(text)
    return None


def _either(settings: ConnectionSettings, librdkafka: str, java: str) -> str:
    return settings.get(librdkafka) or settings.get(java)
