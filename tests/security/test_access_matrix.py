"""Every API with every right present, missing and denied: Penstock answers as Apache Kafka does in the same run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from access_probe import World
from access_probes import PROBES
from access_rights import HIDDEN, SEEN, Entry, cases
from matrix import ADMIN, ALICE, TOPICS, Matrix, secured, sign_in

from penstock.api.table import BROKER_APIS, CONTROLLER_APIS, FIRST_OWN_KEY
from penstock.model.access import Operation, Permission, ResourceType
from penstock.model.errors import ErrorCode
from penstock.testing import Cluster
from penstock.wire.apis import APIS
from penstock.wire.messages import delete_records
from penstock.wire.records import Record, build_batch
from support.kafka_broker import free_port, kafka_broker
from support.kafka_tools import java_missing, libraries_of
from support.wire_client import KEYS, produce_request

REFERENCE = "4.3.1"
# Everybody may ask which versions there are and sign in.
FREE = {"api_versions", "sasl_handshake", "sasl_authenticate", "get_telemetry_subscriptions", "push_telemetry"}
REGEX = f"{SEEN}|{SEEN}-forgotten|{HIDDEN}"
READS_GROUP: list[Entry] = [(ResourceType.GROUP, Operation.READ, Permission.ALLOW)]
REGEX_CASES = {
    "regex of one who sees": [*READS_GROUP, (ResourceType.TOPIC, Operation.DESCRIBE, Permission.ALLOW)],
    "regex of one who sees nothing": READS_GROUP,
}


@contextmanager
def kafka(path: Path) -> Iterator[Matrix]:
    reason = java_missing(REFERENCE)
    if reason is not None:
        pytest.skip(reason)
    port, controller_port = free_port(), free_port()
    with (
        kafka_broker(path, secured(port, controller_port), port=port, libraries=libraries_of(REFERENCE)) as broker,
        Matrix(broker.address, f"127.0.0.1:{controller_port}") as matrix,
    ):
        yield matrix


@contextmanager
def penstock() -> Iterator[Matrix]:
    port, controller_port = free_port(), free_port()
    with (
        Cluster(secured(port, controller_port)),
        Matrix(f"127.0.0.1:{port}", f"127.0.0.1:{controller_port}") as matrix,
    ):
        yield matrix


def test_every_api_has_a_probe() -> None:
    world = World({name: bytes(16) for name in TOPICS})
    probed = {(probe.at_controller, KEYS[type(probe.make(world)).__name__]) for probe in PROBES}
    on_brokers = {key for key in BROKER_APIS if APIS[key].module not in FREE and key < FIRST_OWN_KEY}
    assert on_brokers == {key for at_controller, key in probed if not at_controller}
    only_there = {
        key
        for key, row in CONTROLLER_APIS.items()
        if not row.on_broker and APIS[key].module not in FREE and key < FIRST_OWN_KEY
    }
    # Both serve it, and mean something else.
    assert {key for at_controller, key in probed if at_controller} == only_there | {KEYS["DescribeClusterRequest"]}


def test_own_apis_of_controllers_are_for_brokers() -> None:
    rows = [row for key, row in CONTROLLER_APIS.items() if key >= FIRST_OWN_KEY and not row.on_broker]
    own = {api.key: api.cluster_right for row in rows for api in row.declarations()}
    assert own.keys() >= {row.key for row in rows} != set()
    assert set(own.values()) == {Operation.CLUSTER_ACTION}


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_answer_is_that_of_kafka(tmp_path: Path) -> None:
    with kafka(tmp_path / "kafka") as matrix:
        expected = matrix.ask_everything()
    with penstock() as matrix:
        answers = matrix.ask_everything()
    assert len(expected) == len(cases()) * len(PROBES)
    different = [
        f"{probe} with {case}: {expected[case, probe]} is Kafka's, {answers[case, probe]} ours"
        for case, probe in expected
        if answers[case, probe] != expected[case, probe]
    ]
    assert not different, "\n".join(different[:20])


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_patterns_stand_for_the_topics_that_they_stand_for_with_kafka(tmp_path: Path) -> None:
    def ask(matrix: Matrix) -> dict[str, list[str]]:
        found = {}
        for case, entries in REGEX_CASES.items():
            matrix.grant(entries)
            found[case] = matrix.resolved(REGEX, case)
        return found

    with kafka(tmp_path / "kafka") as matrix:
        expected = ask(matrix)
    with penstock() as matrix:
        assert ask(matrix) == expected
    assert [*expected.values()] == [[SEEN, f"{SEEN}-forgotten"], []]


def ask_of_coordinators(matrix: Matrix) -> dict[tuple[str, str], tuple[int, int]]:
    """What a super user hears who writes and trims what coordinators keep, by client id and topic."""
    found = {}
    for client_id in ("matrix", "__admin_client"):
        with sign_in(matrix.address, ADMIN, client_id) as admin:
            for topic in ("__consumer_offsets", "__transaction_state"):
                batch = build_batch([Record(0, 0, b"key", b"value")])
                written = admin.call(produce_request(topic, batch), 12).responses[0].partition_responses[0]
                rows = [delete_records.DeleteRecordsTopic(topic, [delete_records.DeleteRecordsPartition(0, 0)])]
                trimmed = admin.call(delete_records.DeleteRecordsRequest(rows, 5_000), 2).topics[0].partitions[0]
                found[client_id, topic] = written.error_code, trimmed.error_code
    return found


def test_no_client_writes_or_trims_topics_of_coordinators() -> None:
    refused = int(ErrorCode.INVALID_TOPIC_EXCEPTION)
    with penstock() as matrix:
        found = ask_of_coordinators(matrix)
        assert {codes for (client_id, _), codes in found.items() if client_id == "matrix"} == {(refused, refused)}
        # Nor does a client that has all rights on topics, whatever it calls itself.
        matrix.grant_on("__consumer_offsets", Operation.ALL)
        with sign_in(matrix.address, ALICE, "__admin_client") as alice:
            batch = build_batch([Record(0, 0, b"key", b"value")])
            answer = alice.call(produce_request("__consumer_offsets", batch), 12)
        assert answer.responses[0].partition_responses[0].error_code == refused


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_kafka_refuses_the_same_of_what_coordinators_keep(tmp_path: Path) -> None:
    with kafka(tmp_path / "kafka") as matrix:
        expected = ask_of_coordinators(matrix)
    with penstock() as matrix:
        assert ask_of_coordinators(matrix) == expected
