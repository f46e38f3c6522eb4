"""A broker with something in it, and a way to ask it anything in any version while another codec reads along."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from api_world import Ask, World
from kio.index import load_entity_schema
from kio.serial import entity_reader
from kio.static.constants import EntityType

from penstock.api.table import FIRST_OWN_KEY
from penstock.testing import Cluster
from penstock.wire.apis import APIS, response_class
from penstock.wire.codec import decode
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from support.wire_client import KEYS, WireClient, batch_of

pytest.register_assert_rewrite(
    "admin_checks", "data_checks", "group_checks", "share_checks", "share_group_checks", "streams_group_checks"
)


@pytest.fixture(scope="session")
def world() -> Iterator[World]:
    with Cluster({"offsets.topic.num.partitions": "3"}) as cluster:
        topic = cluster.create_topic("orders", partitions=2, configs={"max.message.bytes": "2000000"})
        now = int(time.time() * 1000)
        with WireClient(cluster.bootstrap_servers) as client:
            producer_id = client.new_producer_id()
            options: dict[str, Any] = {
                "compression": 1,
                "producer_id": producer_id,
                "producer_epoch": 0,
                "base_sequence": 0,
            }
            batch = batch_of([b"a", b"b", b"c"], timestamps=[now, now + 10, now + 5], **options)
            assert client.produce(topic, batch).error_code == 0
            described = client.call(MetadataRequest([MetadataRequestTopic(name=topic)]), 12)
            await_coordinator(client)
        yield World(cluster, topic, described.topics[0].topic_id, producer_id, now)


@pytest.fixture
def client(world: World) -> Iterator[WireClient]:
    with WireClient(world.cluster.bootstrap_servers) as connected:
        yield connected


@pytest.fixture
def ask(client: WireClient) -> Ask:
    """Ask in a version; our codec, and kio where the API is Kafka's, must read the answer to its last byte."""

    def asked(request: Any, version: int) -> Any:
        sent = client.send(request, version)
        received, body = client.receive_body(request, version)
        assert received == sent
        key = KEYS[type(request).__name__]
        if key < FIRST_OWN_KEY:
            try:
                _, size = entity_reader(load_entity_schema(kio_name(key), version, EntityType.response))(body, 0)
                assert size == len(body)
            except KeyError as unknown:
                # kio does not skip tagged fields that are our own, as readers should.
                if not re.search(r"tag: 1\d{4}\b", str(unknown)):
                    raise
        return decode(response_class(key), version, body)

    return asked


def kio_name(key: int) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", APIS[key].name).lower()


def await_coordinator(client: WireClient) -> None:
    """The topic that groups live in is created when a client first looks for its coordinator."""
    deadline = time.monotonic() + 10
    while client.call(FindCoordinatorRequest(coordinator_keys=["any"]), 4).coordinators[0].error_code:
        assert time.monotonic() < deadline
        time.sleep(0.02)
