"""Creates a small certificate authority and its certificates, for clusters that have none of their own."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_DAYS = 3650
CERTIFICATE_DAYS = 397
# The machines' clocks differ a little: a new certificate is valid from a little earlier.
BACKDATED = datetime.timedelta(minutes=5)


class CertificateFacts(NamedTuple):
    """What a certificate contains."""

    subject: str
    issuer: str
    hosts: tuple[str, ...]
    not_before: datetime.datetime
    not_after: datetime.datetime
    is_authority: bool
    fingerprint: str

    def covers(self, host: str) -> bool:
        """Whether it is good for a name or address, as clients check it: `*` stands for one word at the start."""
        wanted = host.strip("[]").lower()
        try:
            return str(ipaddress.ip_address(wanted)) in self.hosts
        except ValueError:
            rest = wanted.partition(".")[2]
            return any(name.lower() in (wanted, f"*.{rest}") for name in self.hosts)


class KeyPair(NamedTuple):
    """A private key (PKCS#8) and its certificate, both as PEM."""

    key: str
    certificate: str

    @property
    def pem(self) -> str:
        """Both in one text, which Kafka calls a PEM key store."""
        return self.key + self.certificate


def make_authority(name: str, now: datetime.datetime) -> KeyPair:
    """An authority that signs certificates of nodes and clients."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        _builder(subject, subject, key.public_key(), now, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _pair(key, certificate)


def issue(
    authority: KeyPair,
    name: str,
    now: datetime.datetime,
    hosts: Sequence[str] = (),
    days: float = CERTIFICATE_DAYS,
    organization: str = "",
) -> KeyPair:
    """A certificate for a node (with its host names and addresses) or for a client."""
    issuer = x509.load_pem_x509_certificate(authority.certificate.encode())
    signer = load_pem_private_key(authority.key.encode(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
    if organization:
        parts.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    builder = (
        _builder(x509.Name(parts), issuer.subject, key.public_key(), now, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName([_name(host) for host in hosts]), critical=False)
    return _pair(key, builder.sign(signer, hashes.SHA256()))


def read_certificates(pem: bytes) -> list[CertificateFacts]:
    """Every certificate of a PEM text, in order; raises ValueError when there is none, or one that is damaged."""
    return [_facts(certificate) for certificate in x509.load_pem_x509_certificates(pem)]


def _facts(certificate: x509.Certificate) -> CertificateFacts:
    hosts: tuple[str, ...] = ()
    is_authority = False
    for extension in certificate.extensions:
        if isinstance(extension.value, x509.SubjectAlternativeName):
            names = extension.value
            addresses = map(str, names.get_values_for_type(x509.IPAddress))
            hosts = (*names.get_values_for_type(x509.DNSName), *addresses)
        elif isinstance(extension.value, x509.BasicConstraints):
            is_authority = extension.value.ca
    return CertificateFacts(
        certificate.subject.rfc4514_string(),
        certificate.issuer.rfc4514_string(),
        hosts,
        certificate.not_valid_before_utc,
        certificate.not_valid_after_utc,
        is_authority,
        certificate.fingerprint(hashes.SHA256()).hex(":").upper(),
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime.datetime, days: float
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pair(key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> KeyPair:
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return KeyPair(private.decode(), certificate.public_bytes(Encoding.PEM).decode())
