"""What is measured: one table for quick runs, one for full ones."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

PARTITIONS = 4
JAVA_CLIENT_BATCH_BYTES = 16_384


class Kind(Enum):
    """What a load generator does, and with that what the figures mean."""

    PRODUCE = "produce"
    CONSUME = "consume"
    LATENCY = "latency"
    END_TO_END = "end to end"
    REQUESTS = "requests"


@dataclass(frozen=True, slots=True)
class Workload:
    """One measurement. `count` bounds throughput runs; `seconds` bounds those at a rate or over connections."""

    kind: Kind
    size_bytes: int = 100
    acks: str = "1"
    count: int = 0
    rate: int = 0
    connections: int = 0
    seconds: int = 0
    warm_up_seconds: int = 0
    batch_bytes: int = 0
    synced: bool = False

    @property
    def key(self) -> str:
        """A name that is the same in quick and full runs."""
        parts = [self.kind.value.replace(" ", "_"), f"{self.size_bytes}B"]
        if self.kind is not Kind.CONSUME:
            parts.append(f"acks_{self.acks}")
        parts += [f"rate_{self.rate}"] if self.rate else []
        parts += [f"connections_{self.connections}"] if self.connections else []
        parts += [f"batch_{self.batch_bytes}"] if self.batch_bytes else []
        parts += ["synced"] if self.synced else []
        return "/".join(parts)

    @property
    def title(self) -> str:
        """The same for readers."""
        size = "1 KB" if self.size_bytes == 1000 else f"{self.size_bytes} B"
        parts = [] if self.kind is Kind.CONSUME else [f"acks={self.acks}"]
        parts += [f"{self.rate:,} records/s"] if self.rate else []
        parts += [f"{self.connections:,} connection{'s' if self.connections > 1 else ''}"] if self.connections else []
        parts += [f"{self.batch_bytes // 1024} KB batches"] if self.batch_bytes else []
        parts += ["synced"] if self.synced else []
        return ", ".join([size, *parts])


def workloads(quick: bool) -> list[Workload]:
    """The measurements in the order they run; each consume reads what the produce before it left."""
    small, large = (2_000_000, 300_000) if quick else (10_000_000, 1_000_000)
    table = [
        Workload(Kind.PRODUCE, 100, "1", count=small),
        Workload(Kind.CONSUME, 100, count=small),
        Workload(Kind.PRODUCE, 100, "all", count=small),
        Workload(Kind.PRODUCE, 100, "all", count=small, synced=True),
        Workload(Kind.PRODUCE, 100, "1", count=small // 2, batch_bytes=JAVA_CLIENT_BATCH_BYTES),
        Workload(Kind.PRODUCE, 1000, "1", count=large),
        Workload(Kind.CONSUME, 1000, count=large),
        Workload(Kind.PRODUCE, 1000, "all", count=large),
    ]
    seconds, warm_up = (4, 2) if quick else (10, 3)
    rates = [("all", 1_000), ("all", 20_000)] if quick else [("1", 1_000), ("1", 20_000)]
    if not quick:
        rates += [("all", rate) for rate in (1_000, 5_000, 20_000)]
    table += [
        Workload(Kind.LATENCY, 100, acks, rate=rate, seconds=seconds, warm_up_seconds=warm_up) for acks, rate in rates
    ]
    if not quick:
        table.append(
            Workload(Kind.LATENCY, 100, "all", rate=1_000, seconds=seconds, warm_up_seconds=warm_up, synced=True)
        )
    table += [
        Workload(Kind.END_TO_END, 100, "all", rate=rate, seconds=seconds, warm_up_seconds=warm_up)
        for rate in ((1_000,) if quick else (1_000, 20_000))
    ]
    table += [
        Workload(
            Kind.REQUESTS,
            100,
            "1",
            connections=connections,
            seconds=2 if quick else 6,
            warm_up_seconds=1 if quick else 2,
        )
        for connections in (1, 100, 1_000)
    ]
    return table
