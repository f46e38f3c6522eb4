"""The counters of a subscription, and the text that Prometheus and autoscalers read."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from penstock.core.metrics.histogram import Histogram
from penstock.core.metrics.sheet import Metric, Sheet

LABELS = ("app", "subscription")
AGE = Metric(
    "penstock_app_record_age_seconds", "histogram", "Age of the newest record of each chunk when it is done.", LABELS
)
LAG = Metric("penstock_app_lag_records", "gauge", "Records that the group has not committed.", LABELS)
LAG_SECONDS = Metric(
    "penstock_app_lag_seconds", "gauge", "Age of the last record that was done, while there is lag.", LABELS
)
WORKERS = Metric("penstock_app_workers", "gauge", "Worker processes that run here.", ("app",))
WORKERS_WANTED = Metric("penstock_app_workers_wanted", "gauge", "Worker processes that there should be here.", ("app",))
WORKER_RESTARTS = Metric(
    "penstock_app_worker_restarts_total", "counter", "Workers that died and were replaced.", ("app",)
)

# The counters that are summed over workers: attribute, metric, help text.
SUMMED = {
    attribute: Metric(name, "counter" if name.endswith("_total") else "gauge", meaning, LABELS)
    for attribute, name, meaning in (
        ("processed", "penstock_app_records_processed_total", "Records that a handler finished."),
        ("failed", "penstock_app_attempts_failed_total", "Attempts at records that raised an exception."),
        ("dead", "penstock_app_dead_letters_total", "Records that were dead-lettered."),
        ("sent", "penstock_app_records_sent_total", "Records that handlers sent."),
        ("commits", "penstock_app_commits_total", "Commits of offsets, or transactions."),
        ("restarts", "penstock_app_restarts_total", "Restarts of a subscription after a failure."),
        ("busy_s", "penstock_app_busy_seconds_total", "Time that handlers took, summed over concurrent calls."),
        ("waiting", "penstock_app_records_waiting", "Records in memory that are not done."),
        ("delayed", "penstock_app_records_delayed", "Records in memory that wait for a try, or behind one."),
    )
}


class SubscriptionCounters:
    """The counters of one subscription in one worker."""

    def __init__(self, app: str, subscription: str) -> None:
        self.labels = (app, subscription)
        self.processed = 0
        self.failed = 0
        self.dead = 0
        self.sent = 0
        self.commits = 0
        self.restarts = 0
        self.busy_s = 0.0
        self.waiting = 0
        self.delayed = 0
        self.lag_records: int | None = None
        self.lag_s = 0.0
        self.age = Histogram()

    def observe_age(self, timestamp_ms: int) -> None:
        """A record of this time is done now."""
        self.lag_s = max(0.0, time.time() - timestamp_ms / 1000)
        self.age.observe(self.lag_s)

    def as_dict(self) -> dict[str, object]:
        """The counters for another process, which gives them to `add`."""
        found = {name: getattr(self, name) for name in SUMMED}
        return {**found, "lag_s": self.lag_s, "age_counts": self.age.counts, "age_sum": self.age.sum}

    def add(self, counted: Mapping[str, Any]) -> None:
        """Add what another process counted."""
        if not counted:
            return
        for name in SUMMED:
            setattr(self, name, getattr(self, name) + counted[name])
        self.lag_s = max(self.lag_s, counted["lag_s"])
        other = Histogram(self.age.bounds)
        other.counts, other.sum = list(counted["age_counts"]), counted["age_sum"]
        self.age = self.age + other

    def fill(self, sheet: Sheet) -> None:
        """Add these counters to a scrape."""
        for attribute, metric in SUMMED.items():
            sheet.add(metric, getattr(self, attribute), *self.labels)
        if self.lag_records is not None:
            sheet.add(LAG, self.lag_records, *self.labels)
            sheet.add(LAG_SECONDS, self.lag_s if self.lag_records else 0.0, *self.labels)
        sheet.histogram(AGE, self.age, *self.labels)


class Workers(NamedTuple):
    """The worker processes of an application here."""

    app: str
    running: int
    wanted: int
    restarts: int


def render(subscriptions: Iterable[SubscriptionCounters], workers: Workers) -> bytes:
    """A scrape of some subscriptions, and of the workers that run them."""
    sheet = Sheet()
    sheet.add(WORKERS, workers.running, workers.app)
    sheet.add(WORKERS_WANTED, workers.wanted, workers.app)
    sheet.add(WORKER_RESTARTS, workers.restarts, workers.app)
    for counters in subscriptions:
        counters.fill(sheet)
    return b"".join(sheet.render())
