"""Access lists on a cluster of our own: what is revoked is gone, and forwarded requests keep their principal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from access_rights import HIDDEN, SEEN, Entry
from matrix import ALICE, JAAS, Matrix, secured, sign_in

from penstock.local.layout import free_ports
from penstock.model.access import Operation, PatternType, Permission, ResourceType
from penstock.model.errors import ErrorCode
from penstock.testing import Cluster
from penstock.wire.messages.create_acls import AclCreation, CreateAclsRequest
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.describe_clients import DescribeClientsRequest
from penstock.wire.messages.describe_hot_keys import DescribeHotKeysRequest
from penstock.wire.messages.describe_lag import DescribeLagRequest
from support.kafka_broker import free_port
from support.wire_client import batch_of, fetch_request, produce_request

READ_TOPIC: Entry = (ResourceType.TOPIC, Operation.READ, Permission.ALLOW)
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.fixture
def matrix() -> Iterator[Matrix]:
    port, controller_port = free_port(), free_port()
    with (
        Cluster(secured(port, controller_port)),
        Matrix(f"127.0.0.1:{port}", f"127.0.0.1:{controller_port}") as found,
    ):
        yield found


def test_a_fetch_session_outlives_no_right(matrix: Matrix) -> None:
    matrix.grant([READ_TOPIC])
    with sign_in(matrix.address, ALICE) as alice:
        opened = alice.call(fetch_request(SEEN, 0, session_epoch=0), 12)
        assert opened.session_id
        assert opened.responses[0].partitions[0].error_code == 0
        nothing_new = fetch_request(SEEN, 0)._replace(topics=[], session_id=opened.session_id)
        assert alice.call(nothing_new._replace(session_epoch=1), 12).responses == ()
        waits = nothing_new._replace(session_epoch=2, max_wait_ms=15_000)
        sent = alice.send(waits, 12)
        matrix.grant([])
        matrix.admin.call(produce_request(SEEN, batch_of([b"not for alice"])), 12)
        received, answer = alice.receive(waits, 12)
        assert received == sent
        assert [row.error_code for topic in answer.responses for row in topic.partitions] == [DENIED]
        again = alice.call(nothing_new._replace(session_epoch=3), 12)
        assert [row.error_code for topic in again.responses for row in topic.partitions] == [DENIED]
        assert not any(row.records for topic in again.responses for row in topic.partitions)
        matrix.grant([READ_TOPIC])
        served = alice.call(nothing_new._replace(session_epoch=4), 12)
        assert [row.error_code for topic in served.responses for row in topic.partitions] == [0]


def test_lag_is_shown_of_groups_that_one_may_describe(matrix: Matrix) -> None:
    matrix.grant([(ResourceType.GROUP, Operation.DESCRIBE, Permission.ALLOW)])
    with sign_in(matrix.address, ALICE) as alice:
        named = alice.call(DescribeLagRequest([f"{SEEN}-offsets", HIDDEN]), 0)
        assert [row.error_code for row in named.groups] == [0, ErrorCode.GROUP_AUTHORIZATION_FAILED]
        names = {row.group_id for row in alice.call(DescribeLagRequest(None), 0).groups}
        assert f"{SEEN}-offsets" in names
        assert HIDDEN not in names


def test_keys_are_counted_for_readers_and_clients_shown_to_those_who_may_describe_the_cluster(matrix: Matrix) -> None:
    matrix.grant([(ResourceType.TOPIC, Operation.DESCRIBE, Permission.ALLOW)])
    with sign_in(matrix.address, ALICE) as alice:
        refused = alice.call(DescribeHotKeysRequest(SEEN, None, 10, 1), 0)
        assert (refused.error_code, refused.partitions) == (DENIED, ())
        unseen = alice.call(DescribeClientsRequest(None), 0)
        assert (unseen.error_code, unseen.clients) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ())
    matrix.grant([READ_TOPIC, (ResourceType.CLUSTER, Operation.DESCRIBE, Permission.ALLOW)])
    with sign_in(matrix.address, ALICE) as alice:
        assert alice.call(DescribeHotKeysRequest(SEEN, None, 10, 1), 0).error_code == 0
        assert alice.call(DescribeHotKeysRequest(HIDDEN, None, 10, 1), 0).error_code == DENIED
        assert alice.call(DescribeClientsRequest(None), 0).error_code == 0


def _nodes() -> dict[int, dict[str, str]]:
    """Nodes whose clients sign in, and that trust each other by the listener between them."""
    ports = free_ports(9)
    settings = {}
    for node_id in (1, 2, 3):
        mine = ports[3 * (node_id - 1) : 3 * node_id]
        listeners = f"SASL_PLAINTEXT://127.0.0.1:{mine[0]},PLAINTEXT://127.0.0.1:{mine[1]}"
        settings[node_id] = {
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{mine[2]}",
            "advertised.listeners": listeners,
            "controller.quorum.voters": ",".join(f"{n}@127.0.0.1:{ports[3 * (n - 1) + 2]}" for n in (1, 2, 3)),
            "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:admin;User:ANONYMOUS",
        }
    return settings


def test_every_broker_forwards_for_its_client() -> None:
    settings = _nodes()
    addresses = [one["listeners"].split(",")[0].partition("://")[2] for one in settings.values()]
    with Cluster(nodes=3, node_settings=settings):

        def create(address: str, name: str) -> Any:
            with sign_in(address, ALICE) as alice:
                answer = alice.call(CreateTopicsRequest([CreatableTopic(name, 1, 1)], 15_000), 7)
                return answer.topics[0].error_code

        assert [create(address, "hers") for address in addresses] == [DENIED] * 3
        with sign_in(addresses[0], "admin") as admin:
            right = AclCreation(
                ResourceType.TOPIC,
                "hers",
                PatternType.PREFIXED,
                f"User:{ALICE}",
                "127.0.0.1",
                Operation.CREATE,
                Permission.ALLOW,
            )
            assert admin.call(CreateAclsRequest([right]), 3).results[0].error_code == 0
        # Whichever of them leads knows by now, for it is the one that decided.
        assert [create(address, f"hers-{number}") for number, address in enumerate(addresses)] == [0, 0, 0]
        assert [create(address, "other") for address in addresses] == [DENIED] * 3
