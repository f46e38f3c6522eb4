"""TLS from Kafka's settings: contexts for listeners and for connections to other nodes.

Keys and certificates are PEM, in files or in the setting itself, or PKCS12. Java key stores (JKS) are rejected with the
command that converts them. A context is created from the files' contents at the time; `TlsSettings.fingerprint` shows
whether the files have changed since.
"""

from __future__ import annotations

import contextlib
import os
import ssl
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from penstock.config.listeners import listed

PEM, PKCS12, JKS = "PEM", "PKCS12", "JKS"
VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}

# Java's names of the TLS 1.2 suites that are still safe. Those of 1.3 are always enabled.
SUITES = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_DHE_RSA_WITH_AES_128_GCM_SHA256": "DHE-RSA-AES128-GCM-SHA256",
    "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384": "DHE-RSA-AES256-GCM-SHA384",
}
# Enough of a file to tell its format.
HEAD_BYTES = 4096
CERTIFICATE_BEGINS, CERTIFICATE_ENDS = b"-----BEGIN CERTIFICATE-----", b"-----END CERTIFICATE-----"
SUITES_OF_TLS_1_3 = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")

Lookup = Callable[[str], str | None]


class TlsUnusable(Exception):
    """Settings that no context can be created from; the text is what to do, and never contains a secret."""


class TlsSettings(NamedTuple):
    """The `ssl.*` settings of one listener, or of connections to other nodes."""

    keystore_type: str
    keystore_location: str | None
    keystore_password: str | None
    key_password: str | None
    certificate_chain: str | None
    key: str | None
    truststore_type: str
    truststore_location: str | None
    truststore_password: str | None
    trusted_certificates: str | None
    client_auth: str
    versions: tuple[str, ...]
    cipher_suites: tuple[str, ...]
    checks_host_names: bool

    @classmethod
    def read(cls, look_up: Lookup) -> TlsSettings:
        """From properties by name."""

        return cls(
            _store_type(look_up("ssl.keystore.type"), look_up("ssl.keystore.location")),
            look_up("ssl.keystore.location"),
            look_up("ssl.keystore.password"),
            look_up("ssl.key.password"),
            look_up("ssl.keystore.certificate.chain"),
            look_up("ssl.keystore.key"),
            _store_type(look_up("ssl.truststore.type"), look_up("ssl.truststore.location")),
            look_up("ssl.truststore.location"),
            look_up("ssl.truststore.password"),
            look_up("ssl.truststore.certificates"),
            (look_up("ssl.client.auth") or "none").lower(),
            listed(look_up("ssl.enabled.protocols")),
            listed(look_up("ssl.cipher.suites")),
            (look_up("ssl.endpoint.identification.algorithm") or "").lower() == "https",
        )

    def fingerprint(self) -> tuple[object, ...]:
        """Changes when a file that a context was created from changes."""
        return tuple(map(_stamp, (self.keystore_location, self.truststore_location)))


def _store_type(stated: str | None, location: str | None) -> str:
    """The type of a store; if it is not stated, by the file's content."""
    stated = (stated or "").upper()
    if stated in (PEM, PKCS12):
        return stated
    if location is None:
        return PEM
    with contextlib.suppress(OSError):
        with Path(location).open("rb") as file:
            head = file.read(HEAD_BYTES)
        if b"-----BEGIN" in head:
            return PEM
        if head[:1] == b"\x30":
            return PKCS12
    return JKS


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    """For a listener; raises TlsUnusable."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _choose(context, settings)
    _load_key(context, settings, needed=True)
    context.verify_mode = CLIENT_AUTH.get(settings.client_auth, ssl.CERT_NONE)
    if context.verify_mode is not ssl.CERT_NONE:
        _load_trust(context, settings)
    # A session must not outlive a replaced certificate, and tickets would be shared by no other node.
    context.num_tickets = 0
    return context


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """For connections to other nodes: certificates are checked, and host names unless that is turned off."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _choose(context, settings)
    context.check_hostname = settings.checks_host_names
    _load_key(context, settings, needed=False)
    _load_trust(context, settings)
    return context


def _choose(context: ssl.SSLContext, settings: TlsSettings) -> None:
    versions = [VERSIONS[name] for name in settings.versions if name in VERSIONS]
    if settings.versions and not versions:
        raise TlsUnusable(f"ssl.enabled.protocols={','.join(settings.versions)}: only TLSv1.2 and TLSv1.3 are offered")
    context.minimum_version = min(versions, default=ssl.TLSVersion.TLSv1_2)
    context.maximum_version = max(versions, default=ssl.TLSVersion.TLSv1_3)
    context.options |= ssl.OP_NO_RENEGOTIATION
    wanted = [name for name in settings.cipher_suites if name not in SUITES_OF_TLS_1_3]
    unknown = [name for name in wanted if name not in SUITES]
    if unknown:
        raise TlsUnusable(f"ssl.cipher.suites: {unknown[0]} is not offered; choose from {', '.join(SUITES)}")
    if wanted:
        context.set_ciphers(":".join(SUITES[name] for name in wanted))


def _load_key(context: ssl.SSLContext, settings: TlsSettings, *, needed: bool) -> None:
    try:
        chain, password = key_and_chain(settings)
    except OSError as error:
        raise TlsUnusable(f"ssl.keystore.location={settings.keystore_location}: {error.strerror}") from None
    if not chain:
        if needed:
            raise TlsUnusable(
                "a TLS listener needs a key and a certificate: set ssl.keystore.location to a PEM file with both"
            )
        return
    with _as_file(chain) as path:
        try:
            context.load_cert_chain(path, password=lambda: password or "")
        except ssl.SSLError as error:
            raise TlsUnusable(
                f"the key and its certificate cannot be used ({error.reason or 'unreadable'}): they must belong "
                "together, the key must be PKCS#8 PEM, and ssl.key.password must open it if it is encrypted"
            ) from None


def key_and_chain(settings: TlsSettings) -> tuple[bytes, str | None]:
    """Key and certificates in one PEM text, and the password of the key; raises TlsUnusable, and OSError of a file."""
    if settings.key or settings.certificate_chain:
        if not (settings.key and settings.certificate_chain):
            raise TlsUnusable("ssl.keystore.key and ssl.keystore.certificate.chain belong together: set both")
        return f"{_lines(settings.key)}\n{_lines(settings.certificate_chain)}\n".encode(), settings.key_password
    if settings.keystore_location is None:
        return b"", None
    path = Path(settings.keystore_location)
    if settings.keystore_type == PEM:
        return path.read_bytes(), settings.key_password
    if settings.keystore_type == PKCS12:
        return _from_pkcs12(path, settings.keystore_password, "keystore")[0], None
    raise TlsUnusable(_jks(path, "keystore"))


def own_certificate(settings: TlsSettings) -> bytes:
    """The certificate that peers are shown, as PEM; empty if there is none. Raises TlsUnusable."""
    try:
        chain, _ = key_and_chain(settings)
    except OSError as error:
        raise TlsUnusable(f"ssl.keystore.location={settings.keystore_location}: {error.strerror}") from None
    _, begins, rest = chain.partition(CERTIFICATE_BEGINS)
    body, ends, _ = rest.partition(CERTIFICATE_ENDS)
    return begins + body + ends


def _load_trust(context: ssl.SSLContext, settings: TlsSettings) -> None:
    """The authorities that peers' certificates must come from; by default those that this machine trusts."""
    location = settings.truststore_location
    if settings.trusted_certificates:
        text = _lines(settings.trusted_certificates)
    elif location is None:
        context.load_default_certs()
        return
    else:
        path = Path(location)
        try:
            if settings.truststore_type == PEM:
                text = path.read_text()
            elif settings.truststore_type == PKCS12:
                text = _from_pkcs12(path, settings.truststore_password, "truststore")[1].decode()
            else:
                raise TlsUnusable(_jks(path, "truststore"))
        except OSError as error:
            raise TlsUnusable(f"ssl.truststore.location={location}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise TlsUnusable(f"ssl.truststore.location={location} is not a PEM file") from None
    try:
        context.load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError):
        raise TlsUnusable("the trusted certificates cannot be read: they must be PEM, one after another") from None


def _from_pkcs12(path: Path, password: str | None, store: str) -> tuple[bytes, bytes]:
    """Key and chain as PEM, and all certificates as PEM."""
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12

    data = path.read_bytes()
    try:
        found = pkcs12.load_pkcs12(data, password.encode() if password else None)
    except ValueError:
        raise TlsUnusable(
            f"ssl.{store}.location={path} cannot be opened: it is not PKCS12, or ssl.{store}.password is wrong"
        ) from None
    own = [found.cert.certificate] if found.cert is not None else []
    others = [each.certificate for each in found.additional_certs]
    certificates = b"".join(each.public_bytes(Encoding.PEM) for each in [*own, *others])
    if found.key is None:
        return b"", certificates
    key = found.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return key + certificates, certificates


def _jks(path: Path, store: str) -> str:
    return (
        f"ssl.{store}.location={path} is a Java key store, which only Java reads. Convert it: keytool -importkeystore "
        f"-srckeystore {path.name} -destkeystore {path.stem}.p12 -deststoretype PKCS12; set ssl.{store}.type=PKCS12"
    )


def _lines(text: str) -> str:
    """A PEM text in a property may be in one line, with \\n for line breaks."""
    return text.replace("\\n", "\n").strip()


@contextlib.contextmanager
def _as_file(data: bytes) -> Iterator[str]:
    """OpenSSL reads keys from files only; this one is private, and deleted at once."""
    with tempfile.TemporaryDirectory(prefix="penstock-tls-") as directory:
        path = Path(directory) / "key.pem"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        yield str(path)


def _stamp(location: str | None) -> object:
    if location is None:
        return None
    try:
        found = os.stat(location)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


# The names in certificates.

_SHORT = {
    "commonName": "CN",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}


def distinguished_name(certificate: Mapping[str, object]) -> str:
    """The subject of a peer's certificate as Java writes it (RFC 2253): `CN=Duke,OU=ServiceUsers,O=Org,C=US`."""
    subject = certificate.get("subject", ())
    assert isinstance(subject, tuple)
    return ",".join(
        "+".join(f"{_SHORT.get(kind, kind)}={_escaped(value)}" for kind, value in parts) for parts in reversed(subject)
    )


def _escaped(value: str) -> str:
    text = "".join(f"\\{character}" if character in ',+"\\<>;' else character for character in value)
    if text[:1] in ("#", " "):
        text = "\\" + text
    return text[:-1] + "\\ " if text.endswith(" ") and len(text) > 1 else text
