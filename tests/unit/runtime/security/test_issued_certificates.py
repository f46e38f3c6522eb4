"""What certificates that are issued here may be used for."""

from __future__ import annotations

import datetime

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from penstock.runtime.security.certificates import issue, make_authority, read_certificates

NOW = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
USAGES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
)


def usages(certificate: x509.Certificate) -> set[str]:
    extension = certificate.extensions.get_extension_for_class(x509.KeyUsage)
    assert extension.critical
    return {name for name in USAGES if getattr(extension.value, name)}


def load(pem: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem.encode())


def test_an_authority_signs_certificates_and_nothing_else() -> None:
    authority = load(make_authority("Authority", NOW).certificate)
    assert usages(authority) == {"key_cert_sign", "crl_sign"}
    constraints = authority.extensions.get_extension_for_class(x509.BasicConstraints)
    assert constraints.critical
    assert constraints.value.ca


def test_a_node_or_a_client_signs_handshakes_and_no_certificates() -> None:
    authority = make_authority("Authority", NOW)
    issued = load(issue(authority, "node", NOW, ["localhost", "10.0.0.7"]).certificate)
    assert usages(issued) == {"digital_signature"}
    assert not issued.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    extended = issued.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert set(extended) == {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}
    issued.verify_directly_issued_by(load(authority.certificate))


def test_the_facts_of_certificates_are_those_that_clients_see() -> None:
    authority = make_authority("Authority", NOW)
    chain = issue(authority, "node", NOW, ["localhost", "10.0.0.7"], days=90).certificate + authority.certificate
    node, signer = read_certificates(chain.encode())
    assert (node.subject, node.issuer, node.hosts) == ("CN=node", "CN=Authority", ("localhost", "10.0.0.7"))
    assert (node.is_authority, signer.is_authority) == (False, True)
    assert node.not_after - NOW == datetime.timedelta(days=90)
    assert node.not_before < NOW, "clocks of other machines may be late"
    assert node.covers("localhost")
    assert node.covers("10.0.0.7")
    assert not node.covers("example.org")
