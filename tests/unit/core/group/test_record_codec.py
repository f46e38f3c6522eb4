"""Offset commits whose group is told from the bytes."""

from __future__ import annotations

import pytest

from penstock.core.group.offsets.record_codec import decode_offset_key, encoded_group, encoded_topic
from penstock.wire.frame import encode_coordinator_key
from penstock.wire.messages.group_records import GroupMetadataKey, OffsetCommitKey


@pytest.mark.parametrize("group", ["g", "größe", "g" * 255, "g" * 256, "g" * 1000])
def test_a_group_is_read_from_the_key_however_long_its_name(group: str) -> None:
    message = OffsetCommitKey(group, "orders", 3)
    key = encode_coordinator_key(message)
    assert encoded_group(key) == group.encode()
    assert decode_offset_key(key) == message
    assert encoded_topic(key) == b"orders"


def test_another_kind_of_key_is_about_no_offset() -> None:
    assert encoded_group(encode_coordinator_key(GroupMetadataKey("g"))) == b""
