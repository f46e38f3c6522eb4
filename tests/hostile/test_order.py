"""Several requests in flight on one connection: answered in order, whatever each waits for; nothing stays behind."""

from __future__ import annotations

import struct
import time
from contextlib import ExitStack

from penstock.testing import Cluster
from penstock.wire.messages.api_versions import ApiVersionsRequest
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.delete_topics import DeleteTopicsRequest
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from support.processes import descriptors, eventually
from support.wire_client import FETCH_VERSION, PRODUCE_VERSION, WireClient, batch_of, fetch_request, produce_request

LONG_POLL_MS = 400


def test_pipelined_requests_are_answered_in_order(broker: Cluster, client: WireClient) -> None:
    """Synced produces, a long poll and quick questions all mixed."""
    topic, quiet = broker.create_topic(), broker.create_topic()
    sent = []
    for number in range(12):
        requests = (
            (produce_request(topic, batch_of([b"synced %d" % number]), acks=-1), PRODUCE_VERSION),
            (ApiVersionsRequest("test", "1"), 3),
            (produce_request(topic, batch_of([b"not %d" % number]), acks=1), PRODUCE_VERSION),
            (MetadataRequest([MetadataRequestTopic(name=topic)]), 9),
            (fetch_request(quiet, 0, max_wait_ms=30), FETCH_VERSION),
        )
        sent += [(client.send(request, version), request, version) for request, version in requests]
    offsets = []
    for correlation_id, request, version in sent:
        received, response = client.receive(request, version)
        assert received == correlation_id
        if version == PRODUCE_VERSION and hasattr(response, "responses") and hasattr(response.responses[0], "name"):
            offsets += [row.base_offset for row in getattr(response.responses[0], "partition_responses", ())]
    assert offsets == list(range(24))


def test_what_is_behind_a_long_poll_waits_and_is_then_served(broker: Cluster, client: WireClient) -> None:
    """More than is read ahead: 200 kB of requests behind a parked fetch."""
    topic, quiet = broker.create_topic(), broker.create_topic()
    poll = fetch_request(quiet, 0, max_wait_ms=LONG_POLL_MS)
    began = time.monotonic()
    client.send(poll, FETCH_VERSION)
    produces = [produce_request(topic, batch_of([b"x" * 4000]), acks=1) for _ in range(50)]
    for request in produces:
        client.send(request, PRODUCE_VERSION)
    with WireClient(broker.bootstrap_servers) as neighbour:
        neighbour.call(MetadataRequest([]), 12)
        assert time.monotonic() - began < LONG_POLL_MS / 1000, "a neighbour had to wait for the long poll"
    client.receive(poll, FETCH_VERSION)
    assert time.monotonic() - began >= LONG_POLL_MS / 1000 * 0.9
    answers = [client.receive(request, PRODUCE_VERSION)[1] for request in produces]
    assert [answer.responses[0].partition_responses[0].base_offset for answer in answers] == list(range(50))


def test_a_request_sees_what_the_one_before_it_did(client: WireClient) -> None:
    """A topic is created and asked for in one go."""
    create = CreateTopicsRequest([CreatableTopic("made-and-asked-for", 1, 1)], 5_000)
    ask = MetadataRequest([MetadataRequestTopic(name="made-and-asked-for")], allow_auto_topic_creation=False)
    client.send(create, 7)
    client.send(ask, 9)
    assert client.receive(create, 7)[1].topics[0].error_code == 0
    assert client.receive(ask, 9)[1].topics[0].error_code == 0


def test_leaving_while_requests_are_parked_leaves_nothing_behind(broker: Cluster) -> None:
    """Eighty peers begin polls of a minute, with more requests behind them, and go away."""
    quiet = broker.create_topic()
    before = descriptors(broker.pid)
    with ExitStack() as peers:
        for _ in range(80):
            peer = peers.enter_context(WireClient(broker.bootstrap_servers))
            peer.send(fetch_request(quiet, 0, max_wait_ms=60_000), FETCH_VERSION)
            peer.send(produce_request(quiet, batch_of([b"never served"])), PRODUCE_VERSION)
            peer.send_bytes(struct.pack(">hhih", 3, 1, 1, -1)[:6])
        # Connections of the topic's creator may have closed meanwhile.
        assert eventually(lambda: descriptors(broker.pid) > before + 70, 5)
    assert eventually(lambda: descriptors(broker.pid) <= before, 5), "connections that are gone are still held"
    with WireClient(broker.bootstrap_servers) as client:
        assert client.list_offset(quiet, -1).offset == 0, "a request behind a parked one was served"


def test_a_topic_deleted_under_its_readers_and_writers(broker: Cluster) -> None:
    """Parked requests are answered with the loss at once, and the broker's other topics go on."""
    topic, other = broker.create_topic(), broker.create_topic()
    request = fetch_request(topic, 0, max_wait_ms=20_000)
    with WireClient(broker.bootstrap_servers) as reader, WireClient(broker.bootstrap_servers) as writer:
        reader.send(request, FETCH_VERSION)
        produces = [produce_request(topic, batch_of([b"%d" % number])) for number in range(20)]
        delete = DeleteTopicsRequest((), [topic], 5_000)
        time.sleep(0.1)
        with WireClient(broker.bootstrap_servers) as admin:
            for produce in produces:
                writer.send(produce, PRODUCE_VERSION)
            assert admin.call(delete, 4).responses[0].error_code == 0
            began = time.monotonic()
            reader.receive(request, FETCH_VERSION)
            codes = {
                writer.receive(produce, PRODUCE_VERSION)[1].responses[0].partition_responses[0].error_code
                for produce in produces
            }
            assert time.monotonic() - began < 20
            assert codes <= {0, 3}
            assert admin.produce(other, batch_of([b"unharmed"])).error_code == 0
