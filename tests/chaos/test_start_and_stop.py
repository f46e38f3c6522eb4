"""Starting where one cannot, and stopping while clients are at work."""

from __future__ import annotations

import re
import socket
import threading
import time
from pathlib import Path

import pytest

from penstock.local.process import BrokerFailed
from penstock.node import Node
from penstock.runtime.replication.partitions import Partitions
from penstock.testing import Cluster
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.produce import ProduceRequest
from support.node_thread import NodeThread
from support.processes import eventually, fingerprint
from support.wire_client import (
    FETCH_VERSION,
    PRODUCE_VERSION,
    WireClient,
    batch_of,
    fetch_request,
    produce_request,
    records_in,
)


def partitions_of(node: Node) -> Partitions:
    assert node._broker is not None
    return node._broker.partitions


def test_a_second_broker_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    with Cluster(data_dir=tmp_path / "one") as first:
        topic = first.create_topic()
        second = Cluster({"log.dirs": str(first.data_dir)}, data_dir=tmp_path / "two")
        with pytest.raises(BrokerFailed, match="exit code 1") as failed:
            second.start()
        assert "in use by another process" in failed.value.log_tail
        assert "Traceback" not in failed.value.log_tail
        with WireClient(first.bootstrap_servers) as client:
            assert client.produce(topic, batch_of([b"unharmed"])).error_code == 0
        first.kill()
        # A crash leaves no lock behind.
        second.start()
        with WireClient(second.bootstrap_servers) as client:
            assert [record.value for record in records_in(client.fetch(topic, 0).records)] == [b"unharmed"]
        second.close()


def test_a_port_that_is_taken_is_named_and_the_data_left_alone(tmp_path: Path) -> None:
    with Cluster(data_dir=tmp_path / "broker") as broker:
        broker.create_topic()
    before = fingerprint(tmp_path / "broker" / "data")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        settings = {"listeners": f"PLAINTEXT://{address},CONTROLLER://127.0.0.1:0"}
        with pytest.raises(BrokerFailed, match="exit code 1") as failed:
            Cluster(settings, data_dir=tmp_path / "broker").start()
    assert f"cannot listen on {address}" in failed.value.log_tail
    assert "Traceback" not in failed.value.log_tail
    assert fingerprint(tmp_path / "broker" / "data") == before


class Writer(threading.Thread):
    """Produces with several requests in flight until the broker hangs up; notes what was acknowledged."""

    def __init__(self, address: str, topic: str, partition: int) -> None:
        super().__init__(name=f"writer {partition}")
        self._address = address
        self._topic = topic
        self._partition = partition
        self.acknowledged: dict[int, bytes] = {}

    def run(self) -> None:
        number = 0
        waiting: list[tuple[bytes, ProduceRequest]] = []
        try:
            with WireClient(self._address) as client:
                while True:
                    value = b"%d of %d" % (number, self._partition)
                    request = produce_request(self._topic, batch_of([value]), partition=self._partition)
                    client.send(request, PRODUCE_VERSION)
                    waiting.append((value, request))
                    number += 1
                    if len(waiting) >= 8:
                        value, request = waiting.pop(0)
                        _, response = client.receive(request, PRODUCE_VERSION)
                        answer = response.responses[0].partition_responses[0]
                        if answer.error_code == 0:
                            self.acknowledged[answer.base_offset] = value
        except ConnectionError:
            return


def test_stopping_under_load_is_clean_and_loses_nothing() -> None:
    with Cluster() as broker:
        topic = broker.create_topic(partitions=4)
        writers = [Writer(broker.bootstrap_servers, topic, partition) for partition in range(4)]
        for writer in writers:
            writer.start()
        assert eventually(lambda: all(len(writer.acknowledged) > 20 for writer in writers), 60)
        assert broker.stop(), broker.logs()[-3000:]
        for writer in writers:
            writer.join(10)
        assert (broker.data_dir / ".kafka_cleanshutdown").exists()
        assert "Traceback" not in broker.logs()
        broker.start()
        with WireClient(broker.bootstrap_servers) as client:
            for partition, writer in enumerate(writers):
                found = everything(client, topic, partition)
                assert {offset: found.get(offset) for offset in writer.acknowledged} == writer.acknowledged


def everything(client: WireClient, topic: str, partition: int) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    end = client.list_offset(topic, -1, partition=partition).offset
    while len(found) < end:
        for record in records_in(client.fetch(topic, len(found), partition=partition).records):
            assert record.value is not None
            found[record.offset] = record.value
    return found


def test_a_clean_start_scans_nothing(tmp_path: Path) -> None:
    with NodeThread(tmp_path) as node, WireClient(node.address) as client:
        client.call(CreateTopicsRequest([CreatableTopic("orders", 3, 1)], 5_000), 7)
        for partition in range(3):
            client.produce("orders", batch_of([b"x" * 1000] * 10), partition=partition)
    with NodeThread(tmp_path) as node:
        reports = node.look(lambda node: [partition.log.recovery for partition in partitions_of(node)])
        assert len(reports) == 3
        assert all(report.clean and report.segments_scanned == 0 for report in reports)


def test_stopping_answers_long_polls_at_once() -> None:
    """A poll of a minute is answered with nothing, and the stop is clean."""
    with Cluster() as broker:
        topic = broker.create_topic()
        with WireClient(broker.bootstrap_servers) as client:
            request = fetch_request(topic, 0, max_wait_ms=60_000)
            client.send(request, FETCH_VERSION)
            time.sleep(0.3)
            began = time.monotonic()
            assert broker.stop()
            assert time.monotonic() - began < 20
            assert client.receive(request, FETCH_VERSION)[1].error_code == 0
        assert "Traceback" not in broker.logs()


def test_a_connection_that_never_reads_does_not_hold_up_a_stop() -> None:
    with Cluster() as broker:
        topic = broker.create_topic()
        with WireClient(broker.bootstrap_servers) as client:
            for _ in range(20):
                client.produce(topic, batch_of([bytes(900_000)]), acks=1)
            for _ in range(20):
                client.send(fetch_request(topic, 0), FETCH_VERSION)
            time.sleep(0.5)
            began = time.monotonic()
            broker.stop()
            assert time.monotonic() - began < 25
        assert "stopped cleanly" in broker.logs()
        assert not re.search("Traceback|CRITICAL", broker.logs())
