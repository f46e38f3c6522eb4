"""The messages that classic consumers embed: their version, and what is not one."""

from __future__ import annotations

import pytest

from penstock.core.group.consumer.protocol import read_assignment, read_subscription, read_version
from penstock.wire.frame import encode_versioned
from penstock.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from penstock.wire.primitives import MalformedMessage


@pytest.mark.parametrize(
    ("message", "version"), [(b"\0\0", 0), (b"\0\2rest", 2), (b"\0\3", 3), (b"\0\4", 3), (b"\x7f\xff", 3)]
)
def test_a_later_version_is_read_as_the_last_that_is_known(message: bytes, version: int) -> None:
    assert read_version(message) == version


@pytest.mark.parametrize("message", [b"", b"\0", b"\xff\xff", b"\x80\0rest"])
def test_a_message_without_a_version_is_malformed(message: bytes) -> None:
    for read in (read_version, read_subscription, read_assignment):
        with pytest.raises(MalformedMessage):
            read(message)


@pytest.mark.parametrize("version", range(4))
def test_what_a_later_version_adds_is_ignored(version: int) -> None:
    subscription = ConsumerProtocolSubscription(["orders"])
    assignment = ConsumerProtocolAssignment([TopicPartition("orders", [0, 2])])
    assert list(read_subscription(encode_versioned(subscription, version) + b"later").topics) == ["orders"]
    read = read_assignment(encode_versioned(assignment, version) + b"later")
    assert [(one.topic, list(one.partitions)) for one in read.assigned_partitions] == [("orders", [0, 2])]
