"""Certificates for a test: an authority, and the certificates that it signs, as PEM files."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)


class Authority:
    """Makes certificates below one directory; `file` is its own."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        built = self._builder(self._name, self._key).add_extension(constraints, True).add_extension(usage, True)
        identifier = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        certificate = built.add_extension(identifier, False).sign(self._key, hashes.SHA256())
        self.file = self._write(f"{name}.pem", certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, address: str = "127.0.0.1", password: str = "") -> tuple[Path, Path]:
        """A certificate for an address and its key, which the password locks."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        built = self._builder(subject, key).add_extension(names, False).add_extension(issuer, False)
        certificate = built.sign(self._key, hashes.SHA256())
        lock: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password:
            lock = serialization.BestAvailableEncryption(password.encode())
        secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, lock)
        return (
            self._write(f"{name}.pem", certificate.public_bytes(serialization.Encoding.PEM)),
            self._write(f"{name}.key", secret),
        )

    def server_context(self, address: str = "127.0.0.1", *, wants_certificates: bool = False) -> ssl.SSLContext:
        """What a server at an address presents; with `wants_certificates` clients need one from here as well."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*self.issue("server", address))
        if wants_certificates:
            context.load_verify_locations(self.file)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder(subject_name=subject, issuer_name=self._name, public_key=key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - DAY)
            .not_valid_after(now + DAY)
        )

    def _write(self, name: str, content: bytes) -> Path:
        path = self._directory / name
        path.write_bytes(content)
        return path
