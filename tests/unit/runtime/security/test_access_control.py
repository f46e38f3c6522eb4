"""The checks of handlers: what is allowed with and without access lists, and which denials are reported."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from penstock.core.metadata.image import Image
from penstock.core.security.authorizer import Authorizer
from penstock.model.access import OPERATIONS, Operation, PatternType, Permission, ResourceType
from penstock.runtime.security.access_control import OPEN, AccessControl
from penstock.wire.messages.metadata_records import AccessControlEntryRecord, RemoveAccessControlEntryRecord

ANN: Any = SimpleNamespace(principal="User:ann", host="10.0.0.1")
TOPIC, CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER


def entry(number: int, operation: Operation, kind: ResourceType = TOPIC, name: str = "orders") -> Any:
    return AccessControlEntryRecord(
        bytes([number]) * 16, kind, name, PatternType.LITERAL, "User:ann", "*", operation, Permission.ALLOW
    )


def ruled(*entries: Any) -> tuple[AccessControl, list[tuple[Any, ...]]]:
    access = AccessControl(Authorizer())
    denied: list[tuple[Any, ...]] = []
    access.on_denied(lambda *row: denied.append(row))
    access.committed(entries)
    return access, denied


def bits(*operations: Operation) -> int:
    return sum(1 << operation for operation in operations)


def test_without_an_authorizer_everything_is_allowed() -> None:
    assert not OPEN.is_on
    assert OPEN.allows(ANN, Operation.WRITE, TOPIC, "orders")
    assert OPEN.allows_on_cluster(ANN, Operation.ALTER)
    assert OPEN.allows_some(ANN, Operation.WRITE, TOPIC)
    assert OPEN.allowed(ANN, Operation.READ, TOPIC, iter(("a", "b"))) == ["a", "b"]
    for kind in (TOPIC, CLUSTER):
        assert OPEN.operations(ANN, kind, "x") == bits(*OPERATIONS[kind])
    assert OPEN.operations_on_cluster(ANN) == bits(*OPERATIONS[CLUSTER])
    OPEN.committed([entry(1, Operation.READ)])
    OPEN.load(Image())


def test_rights_follow_the_entries_as_they_are_committed() -> None:
    access, _ = ruled(entry(1, Operation.READ))
    assert access.is_on
    assert access.allows(ANN, Operation.READ, TOPIC, "orders")
    assert not access.allows(ANN, Operation.WRITE, TOPIC, "orders")
    access.committed([object(), RemoveAccessControlEntryRecord(b"\1" * 16), entry(2, Operation.WRITE)])
    assert not access.allows(ANN, Operation.READ, TOPIC, "orders")
    assert access.allows(ANN, Operation.WRITE, TOPIC, "orders")


def test_an_image_replaces_what_was_known() -> None:
    access, _ = ruled(entry(1, Operation.READ))
    image = Image()
    image.replay(entry(2, Operation.WRITE))
    access.load(image)
    assert not access.allows(ANN, Operation.READ, TOPIC, "orders")
    assert access.allows(ANN, Operation.WRITE, TOPIC, "orders")


def test_denials_are_reported_unless_a_list_is_filtered() -> None:
    access, denied = ruled(entry(1, Operation.READ))
    assert access.allowed(ANN, Operation.READ, TOPIC, ["orders", "others"]) == ["orders"]
    assert not access.allows(ANN, Operation.READ, TOPIC, "others", quiet=True)
    assert not access.allows_on_cluster(ANN, Operation.ALTER, quiet=True)
    assert access.operations(ANN, TOPIC, "others") == 0
    assert denied == []
    access.allows(ANN, Operation.READ, TOPIC, "orders")
    assert denied == []
    access.allows(ANN, Operation.READ, TOPIC, "others")
    access.allows_on_cluster(ANN, Operation.ALTER)
    assert denied == [
        (ANN, Operation.READ, TOPIC, "others"),
        (ANN, Operation.ALTER, CLUSTER, "kafka-cluster"),
    ]


def test_the_operations_on_a_resource_are_a_bit_field() -> None:
    access, _ = ruled(entry(1, Operation.READ), entry(2, Operation.ALTER))
    # READ and ALTER include DESCRIBE.
    assert access.operations(ANN, TOPIC, "orders") == bits(Operation.READ, Operation.ALTER, Operation.DESCRIBE)


def test_the_operations_on_the_cluster_need_the_right_to_describe_it() -> None:
    access, denied = ruled(entry(1, Operation.CREATE, CLUSTER, "kafka-cluster"))
    assert access.operations_on_cluster(ANN) == 0
    assert denied == [(ANN, Operation.DESCRIBE, CLUSTER, "kafka-cluster")]
    access.committed([entry(2, Operation.DESCRIBE, CLUSTER, "kafka-cluster")])
    assert access.operations_on_cluster(ANN) == bits(Operation.CREATE, Operation.DESCRIBE)


def test_some_resource_of_a_kind_is_enough_where_that_is_requested() -> None:
    access, _ = ruled(entry(1, Operation.WRITE))
    assert access.allows_some(ANN, Operation.WRITE, TOPIC)
    assert not access.allows_some(ANN, Operation.READ, TOPIC)
    assert not access.allows_some(ANN, Operation.WRITE, ResourceType.GROUP)
