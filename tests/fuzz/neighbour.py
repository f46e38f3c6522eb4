"""An honest client next to the fuzzing: produces, consumes what it produced, and measures how long it waits.

Runs as `python -m tests.fuzz.neighbour ADDRESS TOPIC` until its standard input closes, then writes one JSON line.
"""

from __future__ import annotations

import json
import select
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.wire_client import WireClient, batch_of, records_in

PAUSE_SECONDS = 0.01


def main(address: str, topic: str) -> None:
    """Write records 0, 1, 2, … and read each back; any surprise ends this with an exception."""
    waits: list[float] = []
    with WireClient(address, "neighbour") as client:
        number = 0
        while not select.select([sys.stdin], [], [], PAUSE_SECONDS)[0]:
            began = time.monotonic()
            value = b"record %d" % number
            # Every tenth is synced to disk before it is acknowledged.
            produced = client.produce(topic, batch_of([value]), acks=-1 if number % 10 == 0 else 1)
            assert produced.error_code == 0, produced
            assert produced.base_offset == number, f"record {number} went to offset {produced.base_offset}"
            fetched = client.fetch(topic, number)
            assert fetched.error_code == 0, fetched
            found = [(record.offset, record.value) for record in records_in(fetched.records)]
            assert found == [(number, value)], found
            waits.append(time.monotonic() - began)
            number += 1
    waits.sort()
    facts = {"rounds": number, "median_ms": 1000 * waits[number // 2], "max_ms": 1000 * waits[-1]}
    facts["p99_ms"] = 1000 * waits[number * 99 // 100]
    sys.stdout.write(json.dumps(facts) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
