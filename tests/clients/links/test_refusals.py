"""What cannot be a link is refused when it is made, with what to do; and secrets only go where they were meant to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from link_pair import LINK, QUICK, alter, describe, link, produce

from penstock.model.errors import ErrorCode
from penstock.runtime.controller.links import LinkAction
from penstock.testing import Cluster
from support.kafka_broker import free_port


@pytest.fixture(scope="module")
def source() -> Iterator[Cluster]:
    with Cluster() as running:
        yield running


@pytest.fixture(scope="module")
def destination() -> Iterator[Cluster]:
    with Cluster() as running:
        yield running


def test_sources_that_cannot_be_mirrored_are_refused(source: Cluster, destination: Cluster) -> None:
    at = {"bootstrap.servers": source.bootstrap_servers}
    closed = {"bootstrap.servers": f"127.0.0.1:{free_port()}"}
    here = {"bootstrap.servers": destination.bootstrap_servers}
    signed = {
        **at,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "u",
        "sasl.password": "p",
    }
    topic = source.create_topic()
    destination.create_topic(topic)
    produce(destination, topic, ["own"])
    for configs, code, advice in (
        (closed, ErrorCode.NETWORK_EXCEPTION, "Check the address"),
        (here, ErrorCode.INVALID_REQUEST, "this cluster itself"),
        (signed, ErrorCode.SASL_AUTHENTICATION_FAILED, "sign-in"),
        ({**at, "ssl.ca.location": "/etc/passwd"}, ErrorCode.INVALID_CONFIG, "PEM"),
        ({**at, "sasl.jaas.config": "x"}, ErrorCode.INVALID_CONFIG, "not a setting of links"),
        ({}, ErrorCode.INVALID_CONFIG, "bootstrap.servers"),
        (at, ErrorCode.TOPIC_ALREADY_EXISTS, "--exclude"),
    ):
        refused = alter(destination, LinkAction.CREATE, ["*"], configs)
        assert (refused.error_code, advice in (refused.error_message or "")) == (code, True), refused
    assert describe(destination) == []
    assert alter(destination, LinkAction.PAUSE).error_code == ErrorCode.RESOURCE_NOT_FOUND


def test_a_cycle_is_refused(source: Cluster) -> None:
    with Cluster() as other:
        topic = source.create_topic()
        link(source, other, topic)
        back = {"bootstrap.servers": other.bootstrap_servers, **QUICK}
        refused = alter(source, LinkAction.CREATE, ["nothing"], back)
        assert (refused.error_code, "cycle" in (refused.error_message or "")) == (ErrorCode.INVALID_REQUEST, True)


def test_a_link_never_shows_its_secrets_and_sends_them_nowhere_else(source: Cluster) -> None:
    with Cluster() as destination:
        secret = {"sasl.username": "me", "sasl.password": "hidden", "sasl.mechanism": "PLAIN"}
        link(source, destination, "some", **secret)
        (found,) = describe(destination)
        shown = {row.name: row.value for row in found.configs}
        assert shown["sasl.password"] is None
        assert shown["sasl.username"] == "me"
        elsewhere: dict[str, str | None] = {"bootstrap.servers": f"{source.bootstrap_servers},localhost:1"}
        refused = alter(destination, LinkAction.ALTER, None, elsewhere)
        assert (refused.error_code, "sasl.password" in (refused.error_message or "")) == (
            ErrorCode.INVALID_CONFIG,
            True,
        )
        assert alter(destination, LinkAction.ALTER, None, {**elsewhere, "sasl.password": "again"}).error_code == 0
        assert alter(destination, LinkAction.ALTER, ["other"], {"link.fetch.max.bytes": "1000000"}).error_code == 0
        (altered,) = describe(destination)
        assert (altered.name, list(altered.topics)) == (LINK, ["other"])
