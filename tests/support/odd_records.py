"""Records that Kafka takes and its clients cannot read."""

from __future__ import annotations

import time

from penstock.wire.records import Record, build_batch
from support.wire_client import WireClient

# As many as it takes for the interpreter to take short cuts with a method that it calls.
ODD_RECORDS = 20


class NoText(str):
    """The name of a header that no text can be made of."""

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        del encoding, errors
        return b"\xff\xfe"


def produce_odd_headers(bootstrap_servers: str, topic: str, count: int = ODD_RECORDS) -> None:
    """Write records `{}` to partition 0 with a header whose name is not UTF-8."""
    record = Record(0, int(time.time() * 1000), b"{}", b"{}", ((NoText("name"), b"1"),))
    with WireClient(bootstrap_servers) as client:
        for _ in range(count):
            assert client.produce(topic, build_batch([record])).error_code == 0
