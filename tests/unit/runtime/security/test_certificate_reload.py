"""Certificates that change while a node runs."""

from __future__ import annotations

import datetime
import os
import ssl
from pathlib import Path

import pytest

from penstock.runtime.security.certificate_reload import ReloadingContext
from penstock.runtime.security.certificates import issue, make_authority
from penstock.runtime.security.tls import server_context

NOW = datetime.datetime.now(datetime.UTC)
AUTHORITY = make_authority("Tests", NOW)


class Listener:
    """A listener whose key store is a file."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "node.pem"
        self._settings = {"ssl.keystore.location": str(self._path), "ssl.enabled.protocols": "TLSv1.3"}
        self._stamp = 1_700_000_000
        self.put("node-1", "localhost", "127.0.0.1")
        self.tls = ReloadingContext("CLIENTS", self._settings.get, server_context, keeps_identity=True)

    def put(self, subject: str, *hosts: str, allow: str = "") -> None:
        self._path.write_text(issue(AUTHORITY, subject, NOW, hosts).pem)
        # Two files of one moment look the same.
        self._stamp += 10
        os.utime(self._path, (self._stamp, self._stamp))
        if allow:
            self._settings[allow] = "true"

    def takes_up(self, subject: str, *hosts: str, allow: str = "") -> bool:
        before: ssl.SSLContext = self.tls.context()
        self.put(subject, *hosts, allow=allow)
        self.tls.refresh()
        return self.tls.context() is not before


def test_a_new_certificate_for_the_same_names_is_taken_up(tmp_path: Path) -> None:
    listener = Listener(tmp_path)
    assert listener.takes_up("node-1", "localhost", "127.0.0.1")
    assert listener.takes_up("node-1", "127.0.0.1", "localhost", "broker1.example")
    # The names of the last one count.
    assert not listener.takes_up("node-1", "localhost", "127.0.0.1")


@pytest.mark.parametrize(
    ("subject", "hosts", "setting"),
    [
        ("node-2", ("localhost", "127.0.0.1"), "ssl.allow.dn.changes"),
        ("node-1", ("127.0.0.1",), "ssl.allow.san.changes"),
    ],
)
def test_another_subject_or_fewer_names_must_be_allowed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, subject: str, hosts: tuple[str, ...], setting: str
) -> None:
    listener = Listener(tmp_path)
    assert not listener.takes_up(subject, *hosts)
    assert f"set {setting}=true" in caplog.text
    assert listener.takes_up("node-1", "localhost", "127.0.0.1")
    assert listener.takes_up(subject, *hosts, allow=setting)
