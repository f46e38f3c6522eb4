"""How punctual delayed records of a share group are: `python -m bench.delays`.

Records are due at random times over a range, and come in no order. One member takes and accepts them as they become
due. Measured are how many came early (there must be none), how late the others were when the member had them, and what
the broker's process holds in memory, before and with all records waiting.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import sys
import time
from pathlib import Path
from random import Random

from tests.support.share_member import ShareMember, begin, leader_of, until
from tests.support.wire_client import WireClient

from bench.queue_figures import DELAYS_RAW, delays_section, is_realtime
from penstock.core.share.acknowledgements import AckType
from penstock.core.share.delays import AT, due_ms_of
from penstock.testing import Cluster
from penstock.wire.records import Record, build_batch

TOPIC, GROUP = "delayed", "bench"
SETTINGS = {"share.coordinator.state.topic.num.partitions": "1"}


def memory_mb(pid: int) -> float:
    """What a process has in memory."""
    status = Path(f"/proc/{pid}/status").read_text("ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")) / 1024


def produce(client: WireClient, count: int, batch: int, first_due_ms: int, range_ms: int) -> None:
    """Append the records."""
    random = Random(1)
    for first in range(0, count, batch):
        now_ms = int(time.time() * 1000)
        records = [
            Record(index, now_ms, None, b"x" * 100, ((AT, b"%d" % (first_due_ms + random.randrange(range_ms))),))
            for index in range(min(batch, count - first))
        ]
        answer = client.produce(TOPIC, build_batch(records))
        if answer.error_code:
            sys.exit(f"a batch was refused: {answer.error_message}")


def consume(member: ShareMember, count: int) -> list[int]:
    """Take and accept everything; how late each record was, in milliseconds."""
    late_ms: list[int] = []
    while len(late_ms) < count:
        taken = member.take(500, 1_000)
        now_ms = int(time.time() * 1000)
        late_ms += (now_ms - (due_ms_of(one.record) or now_ms) for one in taken)
        if taken and member.say(AckType.ACCEPT, [one.record.offset for one in taken]):
            sys.exit("what the member said does not count")
    return late_ms


def main() -> None:
    """Run it, keep the figures, and say how it went."""
    parser = argparse.ArgumentParser(prog="python -m bench.delays", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=int, default=1_200, help="the range of their due times")
    parser.add_argument("--batch", type=int, default=50, help="records of a batch")
    parser.add_argument("--lead", type=int, default=0, help="seconds until the first is due; 0 for long enough")
    parser.add_argument("--index", type=int, default=100_000, help="penstock.share.delay.index.max.records")
    parser.add_argument("--output", type=Path, default=DELAYS_RAW, help="where the figures are kept")
    options = parser.parse_args()
    load_before = os.getloadavg()[0]
    lead_s = options.lead or 30 + options.records // 10_000
    settings = {**SETTINGS, "penstock.share.delay.index.max.records": str(options.index)}
    with Cluster(settings) as cluster, WireClient(cluster.bootstrap_servers) as client:
        cluster.create_topic(TOPIC)
        until(lambda: leader_of(client, TOPIC)[0] >= 0)
        topic_id = leader_of(client, TOPIC)[1]
        begin(client, GROUP, topic_id)
        pid = cluster.pid or 0
        before_mb = memory_mb(pid)
        began = time.monotonic()
        first_due_ms = int(time.time() * 1000) + lead_s * 1000
        produce(client, options.records, options.batch, first_due_ms, options.seconds * 1000)
        produced_s = time.monotonic() - began
        produced_mb = memory_mb(pid)
        member = ShareMember(client, GROUP, "member", topic_id)
        while int(time.time() * 1000) < first_due_ms - 1_000:
            member.take(1, 500)
        waiting_mb = memory_mb(pid)
        late_ms = sorted(consume(member, options.records))
        part_99, part_999 = (late_ms[len(late_ms) * part // 1000] for part in (990, 999))
        raw = {
            "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
            "load_before": load_before,
            "load_after": os.getloadavg()[0],
            "is_realtime": is_realtime(),
            "records": options.records,
            "seconds": options.seconds,
            "produced_s": produced_s,
            "early": sum(one < 0 for one in late_ms),
            "late_ms": {
                "median": statistics.median(late_ms),
                "p99": part_99,
                "p999": part_999,
                "max": late_ms[-1],
            },
            "memory_mb": {
                "before": before_mb,
                "produced": produced_mb,
                "waiting": waiting_mb,
                "end": memory_mb(pid),
            },
        }
    options.output.write_text(json.dumps(raw, indent=1) + "\n")
    print(delays_section(raw))


if __name__ == "__main__":
    main()
