"""What every reader and writer of Kafka's bytes shares: the error, buffers, and variable-length integers.

Kafka writes lengths of flexible messages as unsigned base-128 integers; the kernel reads the zigzag ones of records.
Readers return the value and the position after it; they never read past the end of the buffer they are given.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.model.errors import ProtocolError

Buffer = bytes | bytearray | memoryview
# Record batches on their way out: one buffer, or several that go onto the wire one after the other.
RecordBuffers = Buffer | Sequence[Buffer]

VARINT_BYTES_MAX = 5
# As in Kafka, whatever the form of a string's length.
STRING_BYTES_MAX = 32_767


class MalformedMessage(ProtocolError):
    """Bytes that are not the message they should be."""


class TooManyEntries(MalformedMessage):
    """A request or response with more elements of arrays and tagged fields than the reader accepts."""

    def __init__(self, label: str) -> None:
        super().__init__(f"{label}: it has too many elements")


class UnsupportedVersion(ProtocolError):
    """A version that this message does not have."""


def read_unsigned_varint(data: Buffer, position: int) -> tuple[int, int]:
    """An unsigned 32-bit varint at `position`, and the position behind it."""
    try:
        byte = data[position]
        if byte < 128:
            return byte, position + 1
        return finish_unsigned_varint(data, position + 1, byte)
    except IndexError:
        raise MalformedMessage("the bytes end inside a varint") from None


def finish_unsigned_varint(data: Buffer, position: int, first: int) -> tuple[int, int]:
    """The rest of an unsigned varint whose first byte, one with the high bit set, lies just before `position`.

    Raises IndexError where the bytes end: the callers turn that into their own MalformedMessage.
    """
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 128:
            if value > 0xFFFFFFFF:
                raise MalformedMessage("a varint does not fit into 32 bits")
            return value, position
    raise MalformedMessage(f"a varint is longer than {VARINT_BYTES_MAX} bytes")


def unsigned_varint(value: int) -> bytes:
    """The bytes of an unsigned varint. `value` is not negative."""
    if value < 0:
        raise ValueError(f"an unsigned varint cannot hold {value}")
    if value < 128:
        return value.to_bytes(1, "big")
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
