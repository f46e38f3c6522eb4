"""Who may write dead letters: brokers, to topics that say that they take them, whatever rights there are on these."""

from __future__ import annotations

from pathlib import Path

from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ErrorCode
from penstock.runtime.security.access_control import STANDARD_AUTHORIZER
from penstock.wire.messages.create_acls import AclCreation, CreateAclsRequest
from penstock.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from support.node_thread import NodeThread
from support.share_member import until
from support.wire_client import WireClient, batch_of

SETTINGS = {"authorizer.class.name": STANDARD_AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}
LITERAL, ALLOW = 3, 3


def only_for_others(client: WireClient, kind: ResourceType, name: str, operation: Operation) -> None:
    """Another user gets a right, and so no user has it by default any more."""
    entry = AclCreation(kind, name, LITERAL, "User:other", "*", operation, ALLOW)
    (answer,) = client.call(CreateAclsRequest([entry]), 3).results
    assert answer.error_code == 0, answer.error_message


def test_only_brokers_write_to_a_topic_that_takes_dead_letters(tmp_path: Path) -> None:
    with NodeThread(tmp_path, SETTINGS) as node, WireClient(node.address) as client:
        enabled = [CreatableTopicConfig("errors.deadletterqueue.group.enable", "true")]
        topics = [CreatableTopic("dlq.jobs", 1, 1, (), enabled), CreatableTopic("orders", 1, 1)]
        assert [one.error_code for one in client.call(CreateTopicsRequest(topics), 7).topics] == [0, 0]
        for name in ("dlq.jobs", "orders"):
            until(lambda name=name: client.produce(name, batch_of([b"x"])).error_code == 0)
            only_for_others(client, ResourceType.TOPIC, name, Operation.WRITE)
        denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        until(lambda: client.produce("orders", batch_of([b"x"])).error_code == denied)
        # Every user has the right of brokers here, until another one gets it.
        assert client.produce("dlq.jobs", batch_of([b"x"])).error_code == 0
        only_for_others(client, ResourceType.CLUSTER, "kafka-cluster", Operation.CLUSTER_ACTION)
        until(lambda: client.produce("dlq.jobs", batch_of([b"x"])).error_code == denied)
