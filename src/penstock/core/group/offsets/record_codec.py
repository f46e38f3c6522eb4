"""Offset commits as stored in the log: their group can be read from the bytes without decoding the rest.

A coordinator that takes over has to read every group's offsets, most of which are not requested soon. So they are kept
as bytes, and decoded when their group is first used.
"""

from __future__ import annotations

from penstock.wire.codec import decoder
from penstock.wire.messages.group_records import OffsetCommitKey, OffsetCommitValue

_KEY_TYPE = b"\x00\x01"
_GROUP_START = 4
_VALUE_START = 2
# The value versions that can be read, as the two bytes they start with.
_VALUE_VERSIONS = frozenset(version.to_bytes(2, "big") for version in range(5))


def encoded_group(key: bytes) -> bytes:
    """The encoded name of the group that a key is about; empty if it is another kind of key."""
    if key[:2] != _KEY_TYPE:
        return b""
    return key[_GROUP_START : _GROUP_START + (key[2] << 8 | key[3])]


def is_readable(value: bytes) -> bool:
    """Whether a value has a version that `decode_offset` knows."""
    return value[:2] in _VALUE_VERSIONS


def encoded_topic(key: bytes) -> bytes:
    """The encoded name of the topic that an offset's key is about."""
    start = _GROUP_START + (key[2] << 8 | key[3])
    return key[start + 2 : start + 2 + int.from_bytes(key[start : start + 2], "big")]


def decode_offset_key(key: bytes) -> OffsetCommitKey:
    """The key; raises MalformedMessage."""
    message: OffsetCommitKey
    message, _ = decoder(OffsetCommitKey, 0)(key, len(_KEY_TYPE))
    return message


def decode_offset(key: bytes, value: bytes) -> tuple[OffsetCommitKey, OffsetCommitValue]:
    """Both messages; raises MalformedMessage."""
    message = decode_offset_key(key)
    committed, _ = decoder(OffsetCommitValue, value[0] << 8 | value[1])(value, _VALUE_START)
    return message, committed
