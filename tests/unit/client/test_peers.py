"""A cluster asked from an event loop, asyncio's and uvloop: fallbacks, TLS, and sign-in."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

from penstock.client.address import Address
from penstock.client.failures import AuthenticationFailed, NoAnswer
from penstock.client.operations import offsets, topics
from penstock.client.operations.routing import Refused
from penstock.client.peers import Peers
from penstock.client.settings import read_settings
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.wire.apis import ApiKey
from penstock.wire.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from penstock.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from support.certificates import Authority
from support.scripted_broker import ScriptedBroker

SIGN_IN = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "ann", "sasl.password": "secret"}
REQUEST = MetadataRequest(topics=())


def answering(name: str, **how: Any) -> ScriptedBroker:
    broker = ScriptedBroker(**how)
    broker.answers[ApiKey.METADATA] = lambda _: MetadataResponse(cluster_id=name)
    return broker


def asked(bootstrap: str, check: Callable[[Peers], Awaitable[Any]], new_loop: Any = None, **properties: str) -> Any:
    """What `check` returns with the peers of a cluster, on a loop of its own."""
    given = {name.replace("_", "."): value for name, value in properties.items()}

    async def run() -> Any:
        peers = Peers(read_settings({"bootstrap.servers": bootstrap, **given}))
        try:
            return await check(peers)
        finally:
            await peers.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(run())


async def ask(peers: Peers) -> Any:
    return (await peers.ask(REQUEST)).cluster_id


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_tls_and_a_sign_in_over_it(authority: Authority, new_loop: Any) -> None:
    with answering("safe", context=authority.server_context(), mechanism="SCRAM-SHA-512") as broker:
        properties = {"security.protocol": "SASL_SSL", "ssl.ca.location": str(authority.file), **SIGN_IN}
        assert asked(broker.address, ask, new_loop, **properties) == "safe"
        assert broker.connections == 1


def test_many_requests_wait_for_one_sign_in() -> None:
    async def ask_often(peers: Peers) -> list[Any]:
        return await asyncio.gather(*(ask(peers) for _ in range(20)))

    with answering("plain", mechanism="SCRAM-SHA-512") as broker:
        properties = {"security.protocol": "SASL_PLAINTEXT", **SIGN_IN}
        assert asked(broker.address, ask_often, **properties) == ["plain"] * 20
        assert broker.connections == 1


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_certificate_of_an_unknown_authority_is_refused(authority: Authority, new_loop: Any) -> None:
    with (
        answering("safe", context=authority.server_context()) as broker,
        pytest.raises(NoAnswer, match=r"cannot connect: its certificate is not trusted .*ssl\.ca\.location"),
    ):
        asked(broker.address, ask, new_loop, security_protocol="SSL")


def test_certificates_that_cannot_be_used_are_named() -> None:
    with answering("safe") as broker, pytest.raises(NoAnswer, match=r"no\.pem, which does not exist"):
        asked(broker.address, ask, security_protocol="SSL", ssl_ca_location="no.pem")


def test_a_wrong_password_is_reported_in_the_brokers_words() -> None:
    async def ask_there(peers: Peers) -> Any:
        with pytest.raises(AuthenticationFailed, match="rejected ann: wrong name or password"):
            await peers.ask_at(Address("127.0.0.1", broker.port), REQUEST)
        return await ask(peers)

    with answering("safe", mechanism="PLAIN") as broker:
        properties = {"security.protocol": "SASL_PLAINTEXT", **SIGN_IN, "sasl.mechanism": "PLAIN", "sasl.password": "x"}
        with pytest.raises(NoAnswer, match=f"{broker.address} rejected ann"):
            asked(broker.address, ask_there, **properties)


def test_the_next_broker_is_queried_when_one_is_gone_and_known_brokers_last() -> None:
    with answering("one") as one, answering("two") as two:
        brokers = [MetadataResponseBroker(2, "127.0.0.1", two.port)]
        one.answers[ApiKey.METADATA] = lambda _: MetadataResponse(brokers=brokers, cluster_id="one")

        async def check(peers: Peers) -> list[Any]:
            answers = [await ask(peers)]
            one.answers.clear()
            one.hang_up()
            answers.append(await ask(peers))
            each = await peers.ask_each([Address("127.0.0.1", two.port), Address("127.0.0.1", 1)], REQUEST)
            return [*answers, *(found.cluster_id for found in each.values())]

        assert asked(f"127.0.0.1:1,{one.address}", check) == ["one", "two", "two"]


def test_without_any_answer_the_error_has_the_reason_of_each_broker() -> None:
    with pytest.raises(NoAnswer, match=r"127\.0\.0\.1:1 is lost: cannot connect: nothing listens.*; 127\.0\.0\.1:2 is"):
        asked("127.0.0.1:1,127.0.0.1:2", ask)


def test_operations_are_retried_until_they_succeed_or_the_patience_is_over() -> None:
    codes = [ErrorCode.NOT_CONTROLLER, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.TOPIC_ALREADY_EXISTS]

    def answer(_: CreateTopicsRequest) -> CreateTopicsResponse:
        code = codes.pop(0) if len(codes) > 1 else codes[0]
        return CreateTopicsResponse(throttle_time_ms=60_000, topics=[CreatableTopicResult("t", error_code=code)])

    async def check(peers: Peers) -> None:
        with pytest.raises(Refused) as caught:
            await peers.run(topics.create_topic, "t")
        assert caught.value.code == ErrorCode.TOPIC_ALREADY_EXISTS
        assert peers.throttled_until > time.monotonic() + 50
        codes[:] = [ErrorCode.LEADER_NOT_AVAILABLE]
        peers._patience_s = 0.1
        with pytest.raises(TimeoutError, match="did not answer within 0 s: t: LEADER_NOT_AVAILABLE"):
            await peers.run(topics.create_topic, "t")

    with answering("one") as one:
        one.answers[ApiKey.CREATE_TOPICS] = answer
        asked(one.address, check)


def test_positions_of_leaders_that_do_not_answer_are_left_out() -> None:
    with answering("one") as one:
        brokers = [MetadataResponseBroker(1, "127.0.0.1", one.port), MetadataResponseBroker(2, "127.0.0.1", 1)]
        rows = [MetadataResponsePartition(0, number, leader) for number, leader in enumerate((-1, 1, 2))]
        metadata = MetadataResponse(brokers=brokers, topics=[MetadataResponseTopic(name="t", partitions=rows)])
        one.answers[ApiKey.METADATA] = lambda _: metadata
        found = ListOffsetsTopicResponse("t", [ListOffsetsPartitionResponse(1, 0, offset=7)])
        one.answers[ApiKey.LIST_OFFSETS] = lambda _: ListOffsetsResponse(topics=[found])
        wanted = {TopicPartition("t", number): offsets.LATEST for number in (0, 1, 2)}

        async def check(peers: Peers) -> Any:
            return await peers.run(offsets.reachable_positions, wanted)

        assert {name.partition: each.offset for name, each in asked(one.address, check).items()} == {1: 7}
