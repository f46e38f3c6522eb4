"""What was found damaged on this broker's disks, and how much was looked at."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.core.metrics.sheet import Sheet, counter, gauge
from penstock.runtime.logs.scrubber import Scrubber
from penstock.runtime.replication.damaged_replicas import DamagedReplicas

DAMAGED = gauge("penstock_damaged_replicas", "Replicas here that are damaged and were not replicated anew yet.")
BEGUN_ANEW = counter(
    "penstock_damaged_replicas_replaced_total", "Damaged replicas that were set aside to be replicated anew."
)
SCRUBBED = counter("penstock_scrub_bytes_total", "Bytes of closed segments that were checked in the background.")
SCRUB_FOUND = counter("penstock_scrub_damage_total", "Damaged segments that were found in the background.")


class DamageCollector:
    """Collects the metrics of damaged replicas and of the search for damage."""

    def __init__(self, damaged: DamagedReplicas, scrubber: Scrubber) -> None:
        self._damaged = damaged
        self._scrubber = scrubber

    def __call__(self, sheet: Sheet) -> Iterator[None]:
        sheet.add(DAMAGED, len(self._damaged))
        sheet.add(BEGUN_ANEW, self._damaged.begun_anew)
        sheet.add(SCRUBBED, self._scrubber.bytes_checked)
        sheet.add(SCRUB_FOUND, self._scrubber.damage_found)
        yield
