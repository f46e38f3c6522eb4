"""Send a broker the most expensive requests there are, of every API and version, and print what they cost.

    python -m tests.hostile.generate [--all-versions] [--api NAME]… [--everything] [--kept TIMES]

They come from a user without any rights and from one who owns topics, groups and transactional ids. The columns are how
long the event loop worked at a stretch, in processor time, so that other programs on the machine do not count; how long
a neighbour waited for a request that takes nothing, the p99 of that compared with the p99 before, the memory that was
kept, the work of the event loop, and that of all threads; at the end are memory, disk and descriptors that are still in
use. Without `--everything` there are only requests above 20 ms or 1 MB.

With `--kept` the requests of each API are sent so many times, each time with other names, and the rows are what that
has left: memory, disk and descriptors that grow with every round are a way to fill a broker.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from abused_broker import EVE, MB, OWN, OWNER, TOPIC, AbusedBroker, Cost
from requests_of_abuse import Abuse, abuses

from penstock.api.dispatch import RequestLimits
from penstock.api.table import BROKER_VERSIONS
from penstock.wire.apis import APIS, ApiKey
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.wire.records import Record, build_batch

# Requests that would wait for more, or end the connection's sign-in.
LEFT_OUT = frozenset((ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE))
LIMITS = RequestLimits()
REPLY_S = 5.0
# A wait that is worth showing.
SHOWN_S = 0.02


def all_abuses(prefix: str, apis: Sequence[str] = (), *, all_versions: bool = False) -> Iterator[Abuse]:
    """Every request of these APIs, or of all, in the latest version of each or in all of them."""
    # Metadata comes last: it creates thousands of topics, whose upkeep would be in the figures of the others.
    for key, (first, last) in sorted(BROKER_VERSIONS.items(), key=lambda row: (row[0] == ApiKey.METADATA, row)):
        if key in LEFT_OUT or (apis and APIS[key].name not in apis):
            continue
        for version in range(max(first, APIS[key].first_version) if all_versions else last, last + 1):
            yield from abuses(key, version, prefix, LIMITS.entries_of(key), LIMITS.bytes_max, repeated=TOPIC)


def slow_batch(size_bytes: int) -> Abuse:
    """Records for a topic that has them compressed anew, as hard as can be."""
    text = b"".join(b"%d;" % (number * number) for number in range(size_bytes // 8))
    batch = build_batch([Record(0, 0, None, text[:size_bytes])])
    data = [TopicProduceData(TOPIC, partition_data=[PartitionProduceData(0, batch)])]
    return Abuse(
        "Produce", 9, f"{size_bytes} bytes compressed by zstd at level 22", ProduceRequest(None, 1, 60_000, data)
    )


class Kept(NamedTuple):
    """What the requests of one API have left, in bytes and in number."""

    disk: int
    memory: int
    descriptors: int
    user: str
    api: str


def kept_by(broker: AbusedBroker, apis: Sequence[str], times: int) -> Iterator[Kept]:
    """What is left of every API's requests, sent again and again with other names."""
    names = list(dict.fromkeys(APIS[key].name for key in BROKER_VERSIONS if key not in LEFT_OUT))
    for user, prefix in ((EVE, "x-"), (OWNER, OWN)):
        for name in apis or names:
            disk, memory, files = broker.disk_bytes(), broker.memory_bytes(), broker.descriptors()
            for turn in range(times):
                for abuse in all_abuses(f"{prefix}{turn}-", [name]):
                    broker.cost_of(user, abuse.request, abuse.version, REPLY_S, has_neighbour=False)
            disk, memory = broker.disk_bytes() - disk, broker.memory_bytes() - memory
            yield Kept(disk, memory, broker.descriptors() - files, user, name)


def print_kept(broker: AbusedBroker, apis: Sequence[str], times: int) -> None:
    """Print what is left, most of it first."""
    lines = [f"kept after {times} rounds:  disk     memory  descriptors  user, API"]
    for row in sorted(kept_by(broker, apis, times), reverse=True):
        size = f"{row.disk / MB:22.2f} MB {row.memory / MB:7.1f} MB"
        lines.append(f"{size} {row.descriptors:12d}  {row.user} {row.api}")
    sys.stdout.write("\n".join(lines) + "\n")


def main() -> None:
    """Print the costs."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--all-versions", action="store_true")
    options.add_argument("--api", action="append", default=[])
    options.add_argument("--everything", action="store_true")
    options.add_argument("--kept", type=int, default=0, metavar="TIMES")
    chosen = options.parse_args()
    if chosen.kept:
        with AbusedBroker() as broker:
            broker.create_internal_topics()
            print_kept(broker, chosen.api, chosen.kept)
        return
    costs: list[tuple[Cost, str, Abuse]] = []
    with TemporaryDirectory() as folder, AbusedBroker(Path(folder, "steps")) as broker:
        broker.create_internal_topics()
        before = broker.memory_bytes(), broker.disk_bytes(), broker.descriptors()
        for user, prefix in ((EVE, "x-"), (OWNER, OWN)):
            for abuse in all_abuses(prefix, chosen.api, all_versions=chosen.all_versions):
                costs += [
                    (broker.cost_of(user, abuse.request, abuse.version, REPLY_S), user, abuse._replace(request=None))
                ]
        if not chosen.api:
            slow = slow_batch(8 * MB)
            costs += [(broker.cost_of(OWNER, slow.request, slow.version, 120), OWNER, slow._replace(request=None))]
        after = broker.memory_bytes(), broker.disk_bytes(), broker.descriptors()
        log = broker.logs()
    costs.sort(key=lambda row: row[0].step_s, reverse=True)
    lines = ["     step    waited  ratio      kept      loop       all      took  user, API, version, request"]
    for cost, user, abuse in costs:
        if not chosen.everything and cost.step_s <= SHOWN_S and cost.kept_bytes <= MB:
            continue
        times = " ".join(f"{1000 * value:6.0f} ms" for value in (*cost[:2], cost.took_s))
        ended = "" if cost.answer is not None else "  (no answer)"
        waited = f"{1000 * cost.step_s:6.0f} ms {1000 * cost.neighbour_s:6.0f} ms {cost.ratio:6.1f}"
        kept = f"{cost.kept_bytes / MB:6.1f} MB"
        lines.append(f"{waited} {kept} {times}  {user} {abuse.api} {abuse.version}: {abuse.shape}{ended}")
    waits = sorted(row[0].neighbour_s for row in costs)
    steps = sorted(row[0].step_s for row in costs)
    memory, disk, files = (late - early for late, early in zip(after, before, strict=True))
    lines += [
        f"{len(costs)} requests; a neighbour's longest wait: median {1000 * waits[len(waits) // 2]:.0f} ms, "
        f"p99 {1000 * waits[len(waits) * 99 // 100]:.0f} ms, {sum(wait > 0.05 for wait in waits)} above 50 ms",
        f"the longest step: median {1000 * steps[len(steps) // 2]:.0f} ms, "
        f"p99 {1000 * steps[len(steps) * 99 // 100]:.0f} ms, {sum(step > 0.05 for step in steps)} above 50 ms",
        f"kept: {memory / MB:.1f} MB of memory, {disk / MB:.1f} MB of disk, {files} descriptors",
        f"logged: {log.count(chr(10))} lines, {len(log) / MB:.1f} MB, {log.count('Traceback')} tracebacks",
    ]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
