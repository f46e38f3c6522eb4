"""A link survives whatever is recorded of it and whatever its source does; the reason is shown."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.client.address import Address
from penstock.client.failures import NoAnswer
from penstock.core.metadata.image import Image
from penstock.core.metadata.link_decisions import config_rows
from penstock.core.metadata.links import MirrorState
from penstock.core.metrics.sheet import Sheet
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicPartition
from penstock.node.metrics.links import LinkCollector
from penstock.runtime.env import SystemEnv
from penstock.runtime.link import source as link_source
from penstock.runtime.link.links import Links
from penstock.runtime.link.probe import probe
from penstock.runtime.link.runner import LinkRunner
from penstock.runtime.link.source import ANSWER_BYTES_MAX, BROKERS_MAX, FETCH_LANE, Source
from penstock.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from penstock.wire.messages.fetch import FetchResponse
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
from penstock.wire.messages.metadata_records import (
    LinkRecord,
    MirrorTopicRecord,
    PartitionRecord,
    RemoveLinkRecord,
    TopicRecord,
)
from penstock.wire.messages.table import ApiKey
from penstock.wire.messages.update_mirrors import UpdateMirrorsResponse
from support.scripted_broker import ScriptedBroker

LINK = LinkRecord(link_id=b"l" * 16, name="eu", source_cluster_id="theirs", topics=["*"])


class World:
    """The links of one broker, without any partitions."""

    def __init__(self) -> None:
        self.env = SystemEnv()
        self.image = Image()
        self.asked: list[Any] = []
        self.answer = UpdateMirrorsResponse(error_message=None)
        self.led: dict[tuple[str, int], Any] = {}
        partitions: Any = SimpleNamespace(get=lambda *name: self.led.get(name))
        self.links = Links(self.env, 1, self.image, partitions, self._ask, lambda: 1)
        self.links.start()

    async def _ask(self, request: Any) -> UpdateMirrorsResponse:
        self.asked.append(request)
        return self.answer

    def commit(self, *records: Any) -> None:
        for record in records:
            self.image.replay(record)
        self.links.follow(records)

    def record(self, **configs: str) -> None:
        named = {name.replace("_", "."): value for name, value in configs.items()}
        self.commit(LINK._replace(configs=config_rows(named)))

    @property
    def problem(self) -> str:
        return self.links.runners[LINK.link_id].problem

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.01)


def run(story: Callable[[World], Awaitable[None]]) -> None:
    async def told() -> None:
        world = World()
        try:
            await story(world)
        finally:
            world.links.close()
            await world.env.close()

    asyncio.run(told())


def metadata(broker: ScriptedBroker, cluster_id: str = "theirs") -> Callable[[Any], MetadataResponse]:
    return lambda _: MetadataResponse(
        brokers=[MetadataResponseBroker(1, "127.0.0.1", broker.port)], cluster_id=cluster_id
    )


def metadata_of(broker: ScriptedBroker, **partitions: int) -> Callable[[Any], MetadataResponse]:
    """Topics of the source, by their names, and how many partitions they have."""
    topics = [
        MetadataResponseTopic(
            name=name,
            topic_id=name.encode().ljust(16, b"."),
            partitions=[MetadataResponsePartition(partition_index=index, leader_id=1) for index in range(count)],
        )
        for name, count in partitions.items()
    ]
    return lambda _: metadata(broker)(_)._replace(topics=topics)


def configs_without(*hidden: str) -> Callable[[DescribeConfigsRequest], DescribeConfigsResponse]:
    """No topic has settings of its own, and those of some may not be described."""
    return lambda request: DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(
                error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED if row.resource_name in hidden else 0,
                resource_type=row.resource_type,
                resource_name=row.resource_name,
            )
            for row in request.resources
        ]
    )


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LinkRunner, "_is_coordinator", lambda _: True)


@pytest.mark.usefixtures("coordinator")
def test_a_topic_whose_settings_may_not_be_described_stops_nothing_else() -> None:
    async def story(world: World) -> None:
        with ScriptedBroker() as source:
            source.answers[ApiKey.METADATA] = metadata_of(source, hidden=1, open=2)
            source.answers[ApiKey.DESCRIBE_CONFIGS] = configs_without("hidden")
            world.record(bootstrap_servers=source.address)
            await world.until(lambda: bool(world.asked))
            assert [row.name for row in world.asked[0].topics] == ["open"]
            (described,) = world.links.describe(None)
            assert "topic hidden is not mirrored" in described.problem
            assert "TOPIC_AUTHORIZATION_FAILED" in described.problem
            assert not world.problem

    run(story)


@pytest.mark.usefixtures("coordinator")
def test_a_controller_that_refuses_updates_stops_no_mirror(monkeypatch: pytest.MonkeyPatch) -> None:
    assigned: list[int] = []
    assign = LinkRunner._assign

    def counted(runner: LinkRunner, *arguments: Any) -> None:
        assigned.append(len(runner._image.topics))
        assign(runner, *arguments)

    monkeypatch.setattr(LinkRunner, "_assign", counted)

    async def story(world: World) -> None:
        with ScriptedBroker() as source:
            world.answer = UpdateMirrorsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH, error_message="an old broker")
            source.answers[ApiKey.METADATA] = metadata_of(source, open=1)
            source.answers[ApiKey.DESCRIBE_CONFIGS] = configs_without()
            world.record(bootstrap_servers=source.address)
            await world.until(lambda: "an old broker" in world.links.describe(None)[0].problem)
            assert assigned
            assert not world.problem
            world.answer = UpdateMirrorsResponse(error_message=None)
            world.record(bootstrap_servers=source.address, client_id="another")
            await world.until(lambda: not world.links.describe(None)[0].problem)

    run(story)


def mirror_of_one_empty_partition(world: World) -> MirrorTopicRecord:
    """Topic orders, which is led here; returns its record."""
    topic_id = b"orders".ljust(16, b".")
    world.led["orders", 0] = SimpleNamespace(
        name=TopicPartition("orders", 0),
        topic_id=topic_id,
        leading=object(),
        leader_epoch=0,
        high_watermark=0,
        is_truncating=False,
        log=SimpleNamespace(start_offset=0, local_start_offset=0, end_offset=0),
    )
    mirror = MirrorTopicRecord(topic_id=topic_id, link_id=LINK.link_id, link_name="eu", source_topic_id=topic_id)
    partition = PartitionRecord(0, topic_id, replicas=[1], isr=[1], leader=1, leader_epoch=0, partition_epoch=0)
    world.commit(TopicRecord(name="orders", topic_id=topic_id), partition, mirror)
    return mirror


@pytest.mark.parametrize("is_paused", [False, True])
@pytest.mark.usefixtures("coordinator")
def test_a_promotion_waits_for_partitions_that_were_added_at_the_source(is_paused: bool) -> None:
    async def story(world: World) -> None:
        with ScriptedBroker() as source:
            source.answers[ApiKey.METADATA] = metadata_of(source, orders=1)
            source.answers[ApiKey.DESCRIBE_CONFIGS] = configs_without()
            source.answers[ApiKey.FETCH] = lambda _: FetchResponse(throttle_time_ms=50)
            source.answers[ApiKey.LIST_OFFSETS] = lambda request: ListOffsetsResponse(
                topics=[
                    ListOffsetsTopicResponse(row.name, [ListOffsetsPartitionResponse(offset=0)])
                    for row in request.topics
                ]
            )
            mirror = mirror_of_one_empty_partition(world)
            # What was read before the promotion is not read again for an hour, if nothing else has it read.
            world.record(bootstrap_servers=source.address, link_metadata_refresh_ms="3600000")
            runner = world.links.runners[LINK.link_id]
            await world.until(lambda: bool(runner.mirrors))
            world.commit(world.image.links.links[LINK.link_id]._replace(is_paused=is_paused))
            source.answers[ApiKey.METADATA] = metadata_of(source, orders=2, another=1)
            world.commit(mirror._replace(state=MirrorState.PROMOTING, promotion_id=7))
            await world.until(lambda: any(request.topics for request in world.asked))
            grown = {row.name: row.partitions for request in world.asked for row in request.topics}
            assert grown["orders"] == 2
            assert ("another" in grown) is (not is_paused)
            await world.until(lambda: bool(runner.withheld))
            assert "the source has 2 partitions" in world.links.describe(None)[0].mirrors[0].partitions[0].reason
            assert not any(request.claims for request in world.asked)
            source.answers[ApiKey.METADATA] = metadata_of(source, orders=1)
            await world.until(lambda: any(request.claims for request in world.asked))
            assert not runner.withheld
            assert not world.problem

    run(story)


@pytest.mark.parametrize(
    "configs",
    [
        {},
        {"bootstrap_servers": "no address:x:y"},
        {"bootstrap_servers": "127.0.0.1:1", "request_timeout_ms": "soon"},
        {"bootstrap_servers": "127.0.0.1:1", "link_fetch_max_bytes": "-1"},
        {"bootstrap_servers": "127.0.0.1:1", "ssl_ca_location": "/etc/passwd"},
        {"bootstrap_servers": "127.0.0.1:1", "security_protocol": "SSL", "ssl_ca_pem": "no certificate"},
        {"bootstrap_servers": "127.0.0.1:1", "security_protocol": "SASL_SSL"},
        {"bootstrap_servers": "127.0.0.1:1"},
        {"bootstrap_servers": f"{'x' * 300}.invalid:1"},
    ],
)
def test_bad_recorded_settings_fail_the_link_until_they_are_altered(configs: dict[str, str]) -> None:
    async def story(world: World) -> None:
        with ScriptedBroker() as source:
            source.answers[ApiKey.METADATA] = metadata(source)
            world.record(**configs)
            await world.until(lambda: bool(world.problem))
            (described,) = world.links.describe(None)
            assert described.problem
            world.record(bootstrap_servers=source.address)
            await world.until(lambda: not world.problem)

    run(story)


def test_metrics_have_every_link_and_its_problem() -> None:
    async def story(world: World) -> None:
        world.record(bootstrap_servers="127.0.0.1:1")
        await world.until(lambda: bool(world.problem))
        world.links.runners[LINK.link_id].counters.bytes = 1234
        sheet = Sheet()
        for _ in LinkCollector(world.links)(sheet):
            pass
        text = b"".join(sheet.render(openmetrics=False)).decode()
        for line in (
            'penstock_link_mirrored_bytes_total{link="eu"} 1234',
            'penstock_link_has_problem{link="eu"} 1',
            'penstock_link_lag_max{link="eu"} 0',
        ):
            assert line in text

    run(story)


def test_another_cluster_at_the_same_address_is_not_mirrored() -> None:
    async def story(world: World) -> None:
        with ScriptedBroker() as source:
            source.answers[ApiKey.METADATA] = metadata(source, "somebody else")
            world.record(bootstrap_servers=source.address)
            await world.until(lambda: "somebody else" in world.problem)
            source.answers[ApiKey.METADATA] = metadata(source)
            await world.until(lambda: not world.problem)
            world.commit(RemoveLinkRecord(link_id=LINK.link_id))
            assert world.links.runners == {}

    run(story)


def test_connections_to_brokers_that_left_the_source_are_closed() -> None:
    async def story(world: World) -> None:
        with ScriptedBroker() as first:
            both = [MetadataResponseBroker(1, "127.0.0.1", first.port), MetadataResponseBroker(2, "127.0.0.1", 1)]
            first.answers[ApiKey.METADATA] = lambda _: MetadataResponse(brokers=both, cluster_id="theirs")
            world.record(bootstrap_servers=first.address, link_metadata_refresh_ms="100")
            runner = world.links.runners[LINK.link_id]
            await world.until(lambda: runner._source is not None and 2 in runner._source.brokers)
            source = runner._source
            assert source is not None
            with pytest.raises(ConnectionError):
                await source.ask_at(source.brokers[2], MetadataRequest(None), 100)
            assert len(source._peers) == 2
            only = [MetadataResponseBroker(1, "127.0.0.1", first.port)]
            first.answers[ApiKey.METADATA] = lambda _: MetadataResponse(brokers=only, cluster_id="theirs")
            await world.until(lambda: len(source._peers) == 1)

    run(story)


def test_a_source_that_announces_a_huge_answer_or_sends_garbage_is_refused() -> None:
    for sent in (struct.pack(">i", 2**31 - 1), struct.pack(">i", 4) + b"\0\0\0\7", b"HTTP/1.1 400 Bad Request\r\n\r\n"):
        with socket.create_server(("127.0.0.1", 0)) as server:

            def serve(sent: bytes = sent, server: socket.socket = server) -> None:
                for _ in range(2):
                    connection, _ = server.accept()
                    with connection:
                        connection.recv(1000)
                        connection.sendall(sent)

            threading.Thread(target=serve, daemon=True).start()

            async def story(port: int = server.getsockname()[1]) -> None:
                env = SystemEnv()
                try:
                    await probe(env, {"bootstrap.servers": f"127.0.0.1:{port}", "request.timeout.ms": "2000"})
                finally:
                    await env.close()

            with pytest.raises(ApiError) as refused:
                asyncio.run(story())
            assert refused.value.code == ErrorCode.NETWORK_EXCEPTION


@pytest.mark.parametrize(("lane", "reason"), [("", "announced an answer"), (FETCH_LANE, "it closed the connection")])
def test_only_a_fetch_may_have_a_large_answer(lane: str, reason: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(struct.pack(">i", ANSWER_BYTES_MAX + 1))

        threading.Thread(target=serve, daemon=True).start()

        async def story(port: int = server.getsockname()[1]) -> None:
            env = SystemEnv()
            source = Source(env, {"bootstrap.servers": f"127.0.0.1:{port}"})
            try:
                with pytest.raises(NoAnswer, match=reason):
                    await source.ask_at(Address("127.0.0.1", port), MetadataRequest(None), 20_000, lane)
            finally:
                source.close()
                await env.close()

        asyncio.run(story())


def test_a_source_with_too_many_brokers_or_elements_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        with ScriptedBroker() as source:
            many = [MetadataResponseBroker(number, f"host{number}", 1) for number in range(BROKERS_MAX + 1)]
            source.answers[ApiKey.METADATA] = lambda _: MetadataResponse(brokers=many, cluster_id="theirs")
            world.record(bootstrap_servers=source.address)
            await world.until(lambda: f"lists {BROKERS_MAX + 1} brokers" in world.problem)
            monkeypatch.setattr(link_source, "ANSWER_ENTRIES_MAX", BROKERS_MAX)
            await world.until(lambda: "too many elements" in world.problem)
            source.answers[ApiKey.METADATA] = metadata(source)
            await world.until(lambda: not world.problem)

    run(story)


def test_a_wrong_password_is_refused_with_advice() -> None:
    async def story(world: World) -> None:
        with ScriptedBroker(mechanism="SCRAM-SHA-256", password="right") as source:
            source.answers[ApiKey.METADATA] = metadata(source)
            configs = {
                "bootstrap.servers": source.address,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.username": "ann",
                "sasl.password": "not-the-one",
            }
            with pytest.raises(ApiError) as refused:
                await probe(world.env, configs)
            assert refused.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert "not-the-one" not in refused.value.message
            found = await probe(world.env, {**configs, "sasl.password": "right"})
            assert (found.cluster_id, found.origins, found.topics) == ("theirs", [], [])

    run(story)
