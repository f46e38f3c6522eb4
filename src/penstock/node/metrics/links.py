"""Cluster links: what came over them, and how far the mirrors that are led here are behind."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.core.metrics.sheet import Sheet, counter, gauge
from penstock.node.metrics.collector import PARTITIONS
from penstock.runtime.link.links import Links

BYTES = counter("penstock_link_mirrored_bytes_total", "Bytes of batches that were mirrored.", ("link",))
RECORDS = counter("penstock_link_mirrored_records_total", "Records that were mirrored.", ("link",))
LAG_MAX = gauge(
    "penstock_link_lag_max", "The largest number of offsets of the source that a mirror led here lacks.", ("link",)
)
LAG = gauge(
    "penstock_link_partition_lag",
    "Offsets of the source that a mirror led here lacks.",
    ("link", "topic", "partition"),
    PARTITIONS,
)
MIRRORS = gauge("penstock_link_mirror_partitions", "Mirror partitions that are led here, by state.", ("link", "state"))
HAS_PROBLEM = gauge("penstock_link_has_problem", "1 if this broker cannot run the link, else 0.", ("link",))


class LinkCollector:
    """Collects what the links of this broker do."""

    def __init__(self, links: Links) -> None:
        self._links = links

    def __call__(self, sheet: Sheet) -> Iterator[None]:
        for link in self._links.describe(None):
            runner = self._links.runners.get(link.link_id)
            if runner is None:
                continue
            sheet.add(BYTES, runner.counters.bytes, link.name)
            sheet.add(RECORDS, runner.counters.records, link.name)
            sheet.add(HAS_PROBLEM, int(bool(runner.problem)), link.name)
            states: dict[str, int] = {}
            lag_max = 0
            for mirror in link.mirrors:
                for row in mirror.partitions:
                    states[row.state] = states.get(row.state, 0) + 1
                    lag_max = max(lag_max, row.lag)
                    if row.lag >= 0 and PARTITIONS in sheet.details:
                        sheet.add(LAG, row.lag, link.name, mirror.topic, row.partition)
                yield
            sheet.add(LAG_MAX, lag_max, link.name)
            for state, count in states.items():
                sheet.add(MIRRORS, count, link.name, state)
            yield
