"""Sends an evening's records to the brokers in half a minute, and records what they acknowledge."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from datetime import datetime
from functools import partial
from itertools import groupby
from typing import Any

from examples.demo.ledger import Ledger, RecordPosition
from examples.demo.shop import Arrival

TICK_SECONDS = 0.25
# There may be no leader for a while: a record is retried for this long.
DELIVERY_TIMEOUT_MS = 60_000
FLUSH_SECONDS = 75.0
PRODUCER_SETTINGS: dict[str, Any] = {
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": 5,
    "compression.type": "zstd",
    "delivery.timeout.ms": DELIVERY_TIMEOUT_MS,
    "log_level": 0,
}


class GeneratorFailed(RuntimeError):
    """A record could not be delivered."""


class Generator:
    """Replays arrivals faster than real time. `sent`, `clock` and `done` may be read from any thread.

    All arrivals of one tick are acknowledged before the next tick is sent: whatever happens to the brokers, no
    partition falls behind the others, so records are only as late as the shop made them.
    """

    def __init__(self, bootstrap: str, topic: str, arrivals: Iterable[Arrival], ledger: Ledger, speed: float) -> None:
        from confluent_kafka import Producer

        self._producer = Producer({**PRODUCER_SETTINGS, "bootstrap.servers": bootstrap})
        self._topic = topic
        self._arrivals = arrivals
        self._ledger = ledger
        self._speed = speed
        self._error: Exception | None = None
        self._cancelled = threading.Event()
        self._thread = threading.Thread(target=self._play, name="generator", daemon=True)
        self.sent = 0
        self.longest_wait_seconds = 0.0
        self.clock: datetime | None = None
        self.done = False

    def start(self) -> None:
        """Start sending."""
        self._thread.start()

    def stop(self) -> None:
        """Stop sending, and wait for the thread."""
        self._cancelled.set()
        if self._thread.is_alive():
            self._thread.join()

    def check(self) -> None:
        """Raise the thread's error, if there was one."""
        if self._error is not None:
            raise GeneratorFailed(str(self._error)) from self._error

    def _play(self) -> None:
        try:
            ticks = groupby(self._arrivals, key=self._tick)
            started = time.monotonic()
            for number, (_, arrivals) in enumerate(ticks):
                self._cancelled.wait(max(0.0, started + number * TICK_SECONDS - time.monotonic()))
                if self._cancelled.is_set():
                    return
                self._send(arrivals)
            self.done = True
        except Exception as error:  # noqa: BLE001 - `check` raises it in the calling thread
            self._error = error

    def _tick(self, arrival: Arrival) -> int:
        return int(arrival.arrives.timestamp() / (TICK_SECONDS * self._speed))

    def _send(self, arrivals: Iterable[Arrival]) -> None:
        started = time.monotonic()
        for arrival in arrivals:
            self._producer.produce(
                self._topic,
                key=arrival.order.customer.encode(),
                value=arrival.value,
                timestamp=_epoch_ms(arrival.arrives),
                on_delivery=partial(self._delivered, arrival),
            )
            self.clock = arrival.arrives
        if self._producer.flush(FLUSH_SECONDS):
            raise GeneratorFailed(f"no acknowledgement within {FLUSH_SECONDS:.0f} s")
        self.check()
        self.longest_wait_seconds = max(self.longest_wait_seconds, time.monotonic() - started)

    def _delivered(self, arrival: Arrival, error: Any, message: Any) -> None:
        if error is not None:
            self._error = GeneratorFailed(f"a record was rejected: {error}")
            return
        self._ledger.note(arrival, RecordPosition(message.partition(), message.offset()))
        self.sent += 1


def _epoch_ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
