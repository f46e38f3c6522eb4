"""Requests to fuzz with: valid ones of every API and version, and what becomes of them when bytes are changed.

Frame number n of a seed is always the same bytes, so a failure names a seed and a number and can be sent again alone.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from importlib import import_module
from random import Random
from typing import Any

from penstock.api.table import BROKER_VERSIONS
from penstock.wire import schema
from penstock.wire.apis import APIS, request_class
from penstock.wire.codec import definition_of, encoder
from penstock.wire.compression import Compression
from penstock.wire.frame import RequestHeader, encode_request
from penstock.wire.primitives import Buffer
from penstock.wire.records import Record, build_batch

TOPICS = ("fuzz-0", "fuzz-1", "fuzz-keyed")
REQUESTS_PER_VERSION = 30
# APIs that have a handler are worth more frames than those that are refused.
SERVED_WEIGHT = 4
FRAME_BYTES_MAX = 64 * 1024
DEPTH_MAX = 6

INTEGER_BITS = {"int8": 8, "int16": 16, "uint16": 16, "int32": 32, "uint32": 32, "int64": 64}
TEXTS = (
    *TOPICS,
    "",
    "a",
    "1",
    "0",
    "latest",
    "fuzz.group",
    "Ω" * 40,
    "x" * 250,
    "..",
    "../etc",
    "\0",
    "-1",
    "retention.ms",
    "flush.ms",
)
# A length or count that lies: far more than there is, less than nothing, or a varint that does not end.
LIES = (
    *(struct.pack(">i", size) for size in (-1, -2, 2**31 - 1, -(2**31), 65536)),
    b"\xff\xff\xff\xff\x0f",
    b"\xff" * 10,
    b"\x80" * 12,
    b"\x7f\xff",
    b"\x80\x00",
)

_PREFIX = struct.Struct(">hhi")


class Frames:
    """The frames of one seed. `topic_ids` are ids of topics that exist, which mutated requests then name."""

    def __init__(self, seed: int, topic_ids: Sequence[bytes] = ()) -> None:
        self.seed = seed
        self._topic_ids = (bytes(16), *topic_ids)
        random = Random(seed)
        self.corpus = [
            frame
            for key, api in sorted(APIS.items())
            for version in range(api.first_version, api.last_version + 1)
            for frame in self._requests(random, key, version) * (SERVED_WEIGHT if key in BROKER_VERSIONS else 1)
        ]

    def _requests(self, random: Random, key: int, version: int) -> list[bytes]:
        found = []
        for _ in range(REQUESTS_PER_VERSION):
            body: list[Buffer] = []
            cls = request_class(key)
            message = self._struct(random, cls, definition_of(cls).struct, version, 0)
            encoder(cls, version)(message, body)
            header = RequestHeader(key, version, random.randrange(-(2**31), 2**31), random.choice((None, "", "fuzz")))
            found.append(b"".join(encode_request(header, body))[4:])
        return [frame for frame in found if len(frame) <= FRAME_BYTES_MAX]

    # Valid requests, from their definitions.

    def _struct(self, random: Random, cls: type[Any], struct_: schema.Struct, version: int, depth: int) -> Any:
        values = {}
        for field in struct_.fields:
            if version in field.versions:
                values[field.name] = self._field(random, cls, field, version, depth)
        return cls(**values)

    def _field(self, random: Random, cls: type[Any], field: schema.Field, version: int, depth: int) -> Any:
        if version in field.nullable and random.random() < 0.15:
            return None
        if field.array:
            count = 0 if depth > DEPTH_MAX else random.choice((0, 1, 1, 1, 2, 3))
            return [self._value(random, cls, field, version, depth) for _ in range(count)]
        return self._value(random, cls, field, version, depth)

    def _value(self, random: Random, cls: type[Any], field: schema.Field, version: int, depth: int) -> Any:
        if field.struct is not None:
            inner = getattr(import_module(cls.__module__), field.struct.name)
            return self._struct(random, inner, field.struct, version, depth + 1)
        special = SPECIAL.get((field.name, field.type))
        return special(random) if special is not None else self._plain(random, field.type)

    def _plain(self, random: Random, kind: str) -> Any:
        if kind in INTEGER_BITS:
            return _integer(random, INTEGER_BITS[kind], signed=not kind.startswith("u"))
        if kind == "bool":
            return random.random() < 0.5
        if kind == "float64":
            return random.choice((0.0, 1.5, -1.0, float("inf"), float("nan")))
        if kind == "uuid":
            return random.choice(self._topic_ids) if random.random() < 0.8 else random.randbytes(16)
        if kind == "string":
            return random.choice(TEXTS)
        if kind == "records":
            return batch(random)
        return random.randbytes(random.choice((0, 1, 20, 300)))

    def frame(self, number: int) -> bytes:
        """Frame number `number`: mostly a request with something wrong, sometimes whole, sometimes noise."""
        random = Random(self.seed << 40 | number)
        kind = random.random()
        if kind < 0.03:
            return random.randbytes(random.choice((1, 2, 7, 8, 9, 14, 60, 700)))
        frame = bytearray(random.choice(self.corpus))
        if kind < 0.06:
            key, version = random.choice((-1, 5, 99, 1000, 32767)), random.choice((0, 1, 99, -1, 32767))
            _PREFIX.pack_into(frame, 0, key, version, number & 0x7FFFFFFF)
        elif kind < 0.7:
            for _ in range(random.choice((1, 1, 1, 2, 4, 16))):
                random.choice(MUTATIONS)(random, frame)
        return bytes(frame) or b"\0"


def batch(random: Random) -> bytes:
    """A record batch: usually good, sometimes with a damaged byte or two in one."""
    now = random.choice((1_700_000_000_000, 1_700_000_000_000, 0, -1, 2**62))
    count = random.choice((1, 1, 2, 20))
    records = [
        Record(index, now, random.choice((None, b"k", b"")), random.choice((None, b"", b"value", b"v" * 500)))
        for index in range(count)
    ]
    producer_id, sequence = random.choice(((-1, -1), (7, 0), (7, 5), (2**40, 2**31 - 1)))
    made = build_batch(
        records,
        compression=random.choice(list(Compression)),
        producer_id=producer_id,
        producer_epoch=random.choice((0, 1)) if producer_id >= 0 else -1,
        base_sequence=sequence,
        transactional=random.random() < 0.1,
        control=random.random() < 0.1,
    )
    if random.random() < 0.15:
        return made + made
    return made


def _integer(random: Random, bits: int, *, signed: bool) -> int:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    value = random.choice((0, 0, 1, 1, 2, 3, -1, -2, 100, low, high, random.randint(low, high)))
    return min(high, max(low, value))


def _flip(random: Random, frame: bytearray) -> None:
    position = random.randrange(len(frame))
    frame[position] ^= 1 << random.randrange(8)


def _overwrite(random: Random, frame: bytearray) -> None:
    frame[random.randrange(len(frame))] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))


def _lie(random: Random, frame: bytearray) -> None:
    lie = random.choice(LIES)
    position = random.randrange(len(frame))
    frame[position : position + len(lie)] = lie


def _cut(random: Random, frame: bytearray) -> None:
    del frame[max(1, random.randrange(len(frame))) :]


def _insert(random: Random, frame: bytearray) -> None:
    position = random.randrange(len(frame))
    frame[position:position] = random.randbytes(random.choice((1, 2, 4, 100)))


def _remove(random: Random, frame: bytearray) -> None:
    position = random.randrange(len(frame))
    if len(frame) > 8:
        del frame[position : position + random.choice((1, 2, 4))]


def _repeat(random: Random, frame: bytearray) -> None:
    position = random.randrange(len(frame))
    frame[position:position] = frame[position : position + random.choice((1, 4, 40))] * random.choice((1, 3))


MUTATIONS: Sequence[Callable[[Random, bytearray], None]] = (_flip, _overwrite, _lie, _cut, _insert, _remove, _repeat)

# Fields whose values decide whether a request goes deep, and those that would only make the broker busy.
SPECIAL: dict[tuple[str, str], Callable[[Random], Any]] = {
    (name, kind): (lambda random, values=values: random.choice(values))  # type: ignore[misc]
    for name, kind, values in (
        ("acks", "int16", (-1, -1, 0, 1, 1, 2, -2)),
        ("timeout_ms", "int32", (0, 1, 1000, -1)),
        ("max_wait_ms", "int32", (0, 0, 1, 5, -1)),
        ("max_bytes", "int32", (0, 1, 100_000, -1, 2**31 - 1)),
        ("num_partitions", "int32", (-1, 0, 1, 1, 2, 10_001, 2**31 - 1, -(2**31))),
        ("replication_factor", "int16", (-1, 0, 1, 1, 2, -3)),
        ("count", "int32", (0, 1, 2, 3, -1, 2**31 - 1)),
        ("partition", "int32", (0, 0, 0, 1, -1, 2**31 - 1)),
        ("partition_index", "int32", (0, 0, 0, 1, -1, 2**31 - 1)),
        ("index", "int32", (0, 0, 0, 1, -1, 2**31 - 1)),
        ("fetch_offset", "int64", (0, 0, 1, 5, -1, 2**63 - 1)),
        ("session_epoch", "int32", (-1, -1, 0, 0, 1, 5)),
        ("resource_type", "int8", (2, 2, 2, 8, 16, 0, 127)),
        ("replica_id", "int32", (-1, -1, -1, 0, -2)),
        ("value", "string", ("1", "-1", "compact", "delete", "1048576", "x", "", "9" * 30)),
    )
}
