"""What goes around a message: size, header, and the prefixes of records in Kafka's own logs.

On a connection every message has four bytes of size before it, then a header, then the body. The header's layout
depends on the API and its version, which is why a request's header is read in two steps: the numbers first, which
are the same in all layouts, then the rest.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from penstock.wire.apis import APIS, CoordinatorRecord, coordinator_record, metadata_record
from penstock.wire.codec import bounded_decoder, decode, decoder, definition_of, encode, encoder
from penstock.wire.messages import headers
from penstock.wire.primitives import Buffer, MalformedMessage, read_unsigned_varint, unsigned_varint

METADATA_FRAME_VERSION = 1
# Up to this size, copying into one buffer costs less than handing several to the socket.
JOINED_BYTES_MAX = 16 * 1024
# No client sends any so far.
HEADER_TAGGED_FIELDS_MAX = 100

_NUMBERS = struct.Struct(">hhi")
_SIZE = struct.Struct(">i")
_SIZE_AND_ID = struct.Struct(">ii")
_SIZE_ID_AND_TAGS = struct.Struct(">iiB")
_VERSION = struct.Struct(">h")


class RequestHeader(NamedTuple):
    """The API, its version, and the client of a request."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def decode_request_header(frame: Buffer) -> tuple[RequestHeader, int]:
    """The header at the start of a frame (its size already taken off), and where the body starts.

    An API or version that this package does not know still yields a header, so that it can be answered: only what
    every layout shares is read then, the client id is None, and the position means nothing.
    """
    try:
        api_key, api_version, correlation_id = _NUMBERS.unpack_from(frame)
    except struct.error:
        raise MalformedMessage("the request ends inside its header") from None
    api = APIS.get(api_key)
    if api is None or not api.first_version <= api_version <= api.last_version:
        return RequestHeader(api_key, api_version, correlation_id, None), _NUMBERS.size
    flexible = api_version >= api.flexible_from
    client_id, position = _read_client_id(frame)
    if not flexible:
        return RequestHeader(api_key, api_version, correlation_id, client_id), position
    if position < len(frame) and frame[position] == 0:
        # No tagged fields, as ever so far.
        return RequestHeader(api_key, api_version, correlation_id, client_id), position + 1
    header, position = bounded_decoder(headers.RequestHeader, 2)(frame, 0, HEADER_TAGGED_FIELDS_MAX)
    return RequestHeader(*header), position


def _read_client_id(frame: Buffer) -> tuple[str | None, int]:
    """The client id, which has the same form in all layouts, and the position behind it."""
    try:
        (length,) = _VERSION.unpack_from(frame, _NUMBERS.size)
    except struct.error:
        raise MalformedMessage("the request ends inside its header") from None
    start = _NUMBERS.size + 2
    end = start + length
    if length < 0:
        if length == -1:
            return None, start
        raise MalformedMessage(f"the client id has a length of {length}")
    if end > len(frame):
        raise MalformedMessage("client_id is longer than the request")
    try:
        return str(frame[start:end], "utf-8"), end
    except UnicodeDecodeError:
        raise MalformedMessage("the client id is not UTF-8") from None


def encode_request(header: RequestHeader, body: list[Buffer]) -> list[Buffer]:
    """The buffers of a whole request: size, header, body."""
    version = APIS[header.api_key].request_header_version(header.api_version)
    buffers: list[Buffer] = []
    encoder(headers.RequestHeader, version)(headers.RequestHeader(*header), buffers)
    return [_SIZE.pack(sum(map(len, buffers)) + sum(map(len, body))), *buffers, *body]


def encode_response(correlation_id: int, header_version: int, body: list[Buffer]) -> list[Buffer]:
    """The buffers of a whole response: size and header, then the body's. A small response is one buffer."""
    size = sum(map(len, body))
    if header_version == 0:
        header = _SIZE_AND_ID.pack(size + 4, correlation_id)
    else:
        header = _SIZE_ID_AND_TAGS.pack(size + 5, correlation_id, 0)
    if size <= JOINED_BYTES_MAX:
        return [b"".join((header, *body))]
    return [header, *body]


def decode_response_header(frame: Buffer, header_version: int) -> tuple[int, int]:
    """The correlation id at the start of a frame (its size already taken off), and where the body starts."""
    header, position = decoder(headers.ResponseHeader, header_version)(frame, 0)
    return header.correlation_id, position


def encode_metadata_record(record: object, version: int) -> bytes:
    """A record of the metadata log as it stands in a batch: frame version, type, version, body."""
    definition = definition_of(type(record))
    record_type = definition.type
    if definition.kind != "record" or record_type is None:
        raise ValueError(f"{type(record).__name__} is not a record of the metadata log")
    prefix = unsigned_varint(METADATA_FRAME_VERSION) + unsigned_varint(record_type) + unsigned_varint(version)
    return prefix + encode(record, version)


def decode_metadata_record(data: Buffer) -> object:
    """The record of the metadata log that `data` holds."""
    frame_version, position = read_unsigned_varint(data, 0)
    if frame_version != METADATA_FRAME_VERSION:
        raise MalformedMessage(f"a metadata record has frame version {frame_version}, not {METADATA_FRAME_VERSION}")
    record_type, position = read_unsigned_varint(data, position)
    version, position = read_unsigned_varint(data, position)
    return _decode_rest(metadata_record(record_type), version, data, position)


def encode_versioned(message: object, version: int) -> bytes:
    """A message with its version in two bytes before it, as groups, transactions and principals are stored."""
    return _VERSION.pack(version) + encode(message, version)


def decode_versioned(cls: type[Any], data: Buffer) -> Any:
    """The message behind a two-byte version. A version newer than all we know is refused with UnsupportedVersion."""
    return _decode_rest(cls, _read_version(data), data, _VERSION.size)


def encode_coordinator_key(key: object) -> bytes:
    """A key in a coordinator's log: its type in two bytes, then the body."""
    definition = definition_of(type(key))
    record_type = definition.type
    if definition.kind != "key" or record_type is None:
        raise ValueError(f"{type(key).__name__} is not the key of a coordinator's record")
    return _VERSION.pack(record_type) + encode(key, 0)


def decode_coordinator_key(coordinator: str, data: Buffer) -> tuple[object, CoordinatorRecord]:
    """The key that `data` holds, and the classes of its kind of record; read the value with `decode_versioned`."""
    classes = coordinator_record(coordinator, _read_version(data))
    return _decode_rest(classes.key, 0, data, _VERSION.size), classes


def _read_version(data: Buffer) -> int:
    if len(data) < _VERSION.size:
        raise MalformedMessage("the bytes end inside a version")
    version: int = _VERSION.unpack_from(data)[0]
    return version


def _decode_rest(cls: type[Any], version: int, data: Buffer, position: int) -> object:
    return decode(cls, version, memoryview(data)[position:])
