"""Metrics of what a broker enforces and records: the audit trail, and producers that wait for slow groups."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.core.metrics.sheet import Sheet, counter, gauge
from penstock.runtime.coordinator.backpressure import BackPressure
from penstock.runtime.security.audit import AuditTrail

AUDIT_EVENTS = counter("penstock_audit_events_total", "Events of the audit trail that were written.")
AUDIT_DROPPED = counter(
    "penstock_audit_dropped_total", "Events of the audit trail that there was no room for; should stay 0."
)
AUDIT_WAITING = gauge("penstock_audit_waiting", "Events of the audit trail that are not written yet.")
BACKPRESSURE_SECONDS = counter(
    "penstock_backpressure_throttle_seconds_total",
    "Throttle time that produces were given because groups lag (penstock.backpressure.groups).",
)


class RulesCollector:
    """Collects what a broker has enforced."""

    def __init__(self, audit: AuditTrail, backpressure: BackPressure) -> None:
        self._audit = audit
        self._backpressure = backpressure

    def __call__(self, sheet: Sheet) -> Iterator[None]:
        sheet.add(AUDIT_EVENTS, self._audit.written)
        sheet.add(AUDIT_DROPPED, self._audit.dropped)
        sheet.add(AUDIT_WAITING, self._audit.waiting)
        sheet.add(BACKPRESSURE_SECONDS, self._backpressure.throttled_ms / 1000)
        yield
