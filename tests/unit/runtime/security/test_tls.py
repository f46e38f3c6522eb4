"""TLS from Kafka's settings: which stores are read, what is refused, and what handshakes come of it."""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)

from penstock.runtime.security.certificates import KeyPair, issue, make_authority
from penstock.runtime.security.tls import (
    TlsSettings,
    TlsUnusable,
    client_context,
    distinguished_name,
    server_context,
)

NOW = datetime.datetime.now(datetime.UTC)
AUTHORITY = make_authority("Test authority", NOW)
NODE = issue(AUTHORITY, "node-1", NOW, hosts=["localhost", "127.0.0.1"])
CLIENT = issue(AUTHORITY, "Duke, Jr.", NOW, organization="Org")


def settings(**properties: str) -> TlsSettings:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    named.setdefault("ssl.enabled.protocols", "TLSv1.2,TLSv1.3")
    named.setdefault("ssl.endpoint.identification.algorithm", "https")
    return TlsSettings.read(named.get)


def inline(pair: KeyPair = NODE, **more: str) -> TlsSettings:
    return settings(
        ssl_keystore_key=pair.key,
        ssl_keystore_certificate_chain=pair.certificate,
        ssl_truststore_certificates=AUTHORITY.certificate,
        **more,
    )


def handshake(server: TlsSettings, client: TlsSettings, name: str = "localhost") -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Both ends of a connection, shaken hands in memory."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    accepting = server_context(server).wrap_bio(up, down, server_side=True)
    asking = client_context(client).wrap_bio(down, up, server_hostname=name)
    waiting = [asking, accepting]
    for _ in range(10):
        for end in list(waiting):
            try:
                end.do_handshake()
                waiting.remove(end)
            except ssl.SSLWantReadError:
                continue
        if not waiting:
            return accepting, asking
    raise AssertionError("the handshake did not end")


def pkcs12_file(path: Path, pair: KeyPair, password: str) -> Path:
    key = load_pem_private_key(pair.key.encode(), None)
    certificate = x509.load_pem_x509_certificate(pair.certificate.encode())
    authority = x509.load_pem_x509_certificate(AUTHORITY.certificate.encode())
    path.write_bytes(
        pkcs12.serialize_key_and_certificates(
            b"node",
            key,  # type: ignore[arg-type]
            certificate,
            [authority],
            BestAvailableEncryption(password.encode()),
        )
    )
    return path


def test_keys_in_the_settings_themselves() -> None:
    accepting, asking = handshake(inline(), inline())
    assert asking.version() == "TLSv1.3"
    assert accepting.getpeercert() is None or accepting.getpeercert() == {}


def test_keys_in_one_line_with_escaped_ends() -> None:
    one_line = NODE.key.replace("\n", "\\n"), NODE.certificate.replace("\n", "\\n")
    handshake(inline(KeyPair(*one_line)), inline())


def test_keys_in_pem_files(tmp_path: Path) -> None:
    keys, trust = tmp_path / "node.pem", tmp_path / "ca.pem"
    keys.write_text(NODE.pem)
    trust.write_text(AUTHORITY.certificate)
    files = settings(ssl_keystore_location=str(keys), ssl_truststore_location=str(trust))
    handshake(files, files)
    before = files.fingerprint()
    assert files.fingerprint() == before
    keys.write_text(NODE.pem + "\n")
    assert files.fingerprint() != before


def test_an_encrypted_key_is_opened_by_its_password() -> None:
    key = load_pem_private_key(NODE.key.encode(), None)
    locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")).decode()
    pair = KeyPair(locked, NODE.certificate)
    handshake(inline(pair, ssl_key_password="secret"), inline())
    with pytest.raises(TlsUnusable, match=r"ssl\.key\.password") as refused:
        server_context(inline(pair, ssl_key_password="wrong-password"))
    assert "wrong-password" not in str(refused.value)


def test_keys_in_pkcs12(tmp_path: Path) -> None:
    path = str(pkcs12_file(tmp_path / "node.p12", NODE, "secret"))
    stores = settings(
        ssl_keystore_location=path,
        ssl_keystore_password="secret",
        ssl_keystore_type="PKCS12",
        ssl_truststore_location=path,
        ssl_truststore_password="secret",
    )
    handshake(stores, stores)
    with pytest.raises(TlsUnusable, match=r"ssl\.keystore\.password"):
        server_context(stores._replace(keystore_password="wrong"))


def test_a_java_key_store_is_refused_with_the_command_that_converts_it(tmp_path: Path) -> None:
    path = tmp_path / "server.jks"
    path.write_bytes(b"\xfe\xed\xfe\xed" + bytes(100))
    with pytest.raises(TlsUnusable, match=r"keytool -importkeystore -srckeystore server\.jks"):
        server_context(settings(ssl_keystore_location=str(path)))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"ssl_keystore_location": "/nowhere/node.pem", "ssl_keystore_type": "PEM"}, "No such file"),
        ({}, "needs a key and a certificate"),
        ({"ssl_keystore_key": NODE.key}, "belong together"),
        (
            {"ssl_keystore_key": CLIENT.key, "ssl_keystore_certificate_chain": NODE.certificate},
            "must belong together",
        ),
        ({"ssl_enabled_protocols": "TLSv1.1"}, "only TLSv1.2 and TLSv1.3"),
        ({"ssl_cipher_suites": "TLS_RSA_WITH_RC4_128_MD5"}, "is not offered"),
    ],
)
def test_refused_settings_come_with_advice(change: dict[str, str], expected: str) -> None:
    with pytest.raises(TlsUnusable, match=expected):
        server_context(settings(**change))


def test_versions_and_suites_are_those_that_were_chosen() -> None:
    suite = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
    _, asking = handshake(inline(ssl_enabled_protocols="TLSv1.2", ssl_cipher_suites=suite), inline())
    assert asking.version() == "TLSv1.2"
    cipher = asking.cipher()
    assert cipher is not None
    assert cipher[0] == "ECDHE-ECDSA-AES256-GCM-SHA384"


def test_a_wrong_host_name_is_rejected_unless_checks_are_off() -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(inline(), inline(), name="elsewhere.example")
    handshake(inline(), inline(ssl_endpoint_identification_algorithm=""), name="elsewhere.example")


def test_an_unknown_authority_is_refused_by_both_sides() -> None:
    other = make_authority("Other", NOW)
    stranger = issue(other, "stranger", NOW, hosts=["localhost"])
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(inline(stranger), inline())
    with pytest.raises(ssl.SSLError):
        handshake(inline(ssl_client_auth="required"), inline(stranger))


def test_an_expired_certificate_is_refused() -> None:
    old = issue(AUTHORITY, "old", NOW - datetime.timedelta(days=3), hosts=["localhost"], days=1)
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        handshake(inline(old), inline())


def test_a_client_presents_its_certificate_where_it_is_requested() -> None:
    accepting, _ = handshake(inline(ssl_client_auth="required"), inline(CLIENT))
    certificate = accepting.getpeercert()
    assert certificate is not None
    assert distinguished_name(certificate) == "CN=Duke\\, Jr.,O=Org"
    without = settings(ssl_truststore_certificates=AUTHORITY.certificate)
    accepting, _ = handshake(inline(ssl_client_auth="requested"), without)
    assert not accepting.getpeercert()
    with pytest.raises(ssl.SSLError):
        handshake(inline(ssl_client_auth="required"), without)
