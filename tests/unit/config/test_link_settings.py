"""The settings of links: none names a file, and a secret never follows a change of where it goes."""

from __future__ import annotations

import pytest

from penstock.config.link import (
    COPIED_CONFIGS,
    FETCH_MAX_BYTES,
    REDIRECTING,
    SECRETS,
    altered,
    check_link_configs,
    copied_configs,
    number,
    shown,
)
from penstock.model.errors import ApiError

SOURCE = {"bootstrap.servers": "a:1"}
SECRET = {**SOURCE, "sasl.password": "hidden", "ssl.key.pem": "key"}


@pytest.mark.parametrize(
    "name",
    [
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.keystore.location",
        "ssl.truststore.location",
        "sasl.kerberos.keytab",
        "sasl.jaas.config",
        "https.ca.location",
        "plugin.library.paths",
        "anything",
    ],
)
def test_settings_that_name_files_or_are_unknown_are_refused(name: str) -> None:
    with pytest.raises(ApiError):
        check_link_configs({**SOURCE, name: "/etc/passwd"})


@pytest.mark.parametrize("url", ["file:///etc/passwd", "FILE:/x", "/etc/passwd", "ftp://x/y"])
def test_tokens_come_from_no_file(url: str) -> None:
    with pytest.raises(ApiError):
        check_link_configs({**SOURCE, "sasl.oauthbearer.token.endpoint.url": url})


@pytest.mark.parametrize("value", ["", "x", "-5", "1" * 5000, "99999999999", "١٢٣"])
def test_numbers_have_limits(value: str) -> None:
    for name in (FETCH_MAX_BYTES, "request.timeout.ms", "socket.connection.setup.timeout.ms"):
        with pytest.raises(ApiError):
            check_link_configs({**SOURCE, name: value})


def test_secrets_are_not_shown() -> None:
    assert shown(SECRET) == {"bootstrap.servers": "a:1", "sasl.password": None, "ssl.key.pem": None}


@pytest.mark.parametrize("name", sorted(REDIRECTING))
def test_who_redirects_a_link_must_know_its_secrets(name: str) -> None:
    value = "https://elsewhere" if name.endswith(".url") else "elsewhere"
    with pytest.raises(ApiError) as refused:
        altered(SECRET, {name: value})
    assert "sasl.password, ssl.key.pem" in refused.value.message
    new = altered(SECRET, {name: value, "sasl.password": "known", "ssl.key.pem": None})
    assert new[name] == value
    assert "ssl.key.pem" not in new


def test_other_changes_keep_secrets() -> None:
    assert altered(SECRET, {FETCH_MAX_BYTES: "1000000"})["sasl.password"] == "hidden"
    assert altered(SECRET, {"bootstrap.servers": "a:1"}) == SECRET
    assert {"sasl.password", "sasl.oauthbearer.client.secret", "ssl.key.pem", "ssl.key.password"} >= SECRETS


def test_defaults() -> None:
    assert number(SOURCE, FETCH_MAX_BYTES) == 8 * 1024 * 1024
    assert copied_configs(SOURCE) == set(COPIED_CONFIGS.split(","))
    assert copied_configs({"link.topic.configs": "retention.ms, max.message.bytes"}) == {
        "retention.ms",
        "max.message.bytes",
    }
    assert copied_configs({"link.topic.configs": ""}) == set()
