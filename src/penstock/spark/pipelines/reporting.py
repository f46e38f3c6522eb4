"""Reports a running pipeline's status to a topic of its cluster, so that consoles anywhere can show it."""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Any

from penstock.client.cluster import ClusterClient
from penstock.client.settings import ConnectionSettings, librdkafka_properties
from penstock.model.errors import ApiError
from penstock.spark.pipelines.progress import PipelineStatus

TOPIC = "_pipelines"
# Keeps the latest status of each pipeline, for a week after its last report.
SETTINGS = {
    "cleanup.policy": "compact,delete",
    "retention.ms": str(7 * 86_400_000),
    "segment.ms": str(3_600_000),
    "max.compaction.lag.ms": str(3_600_000),
    "min.cleanable.dirty.ratio": "0.1",
}
REPORT_SECONDS = 2.0
FINAL_REPORT_SECONDS = 3.0
PRODUCER = {"message.timeout.ms": "10000", "queue.buffering.max.messages": "100", "log_level": 0}

logger = logging.getLogger("penstock.pipelines")


@contextmanager
def reported(settings: ConnectionSettings, status: PipelineStatus) -> Iterator[Callable[[], None]]:
    """Yields a function that reports the pipeline's status; it may be called at any rate.

    It neither blocks nor fails: a cluster that rejects reports does not stop the pipeline.
    """
    reporter = _Reporter(settings, status)
    try:
        yield reporter.report
    except BaseException as error:
        reporter.report_last("failed" if isinstance(error, Exception) else "stopped", str(error))
        raise
    reporter.report_last("ended", "")


class _Reporter:
    def __init__(self, settings: ConnectionSettings, status: PipelineStatus) -> None:
        self._settings = settings
        self._status = status
        self._producer: Any = None
        self._reported_at = 0.0
        # Brokers may be down for a while: the pipeline does not wait for the topic.
        threading.Thread(target=self._prepare, name="pipeline reports", daemon=True).start()

    def _prepare(self) -> None:
        from confluent_kafka import KafkaException, Producer

        try:
            with ClusterClient(self._settings) as client:
                client.ensure_topic(TOPIC, 1, configs=SETTINGS)
            self._producer = Producer({**librdkafka_properties(self._settings), **PRODUCER})
        except (ApiError, KafkaException, OSError) as error:
            logger.warning("this pipeline will not appear in consoles: cannot use the topic %s (%s)", TOPIC, error)

    def report(self) -> None:
        if time.monotonic() - self._reported_at >= REPORT_SECONDS:
            self._reported_at = time.monotonic()
            self._send("running", "")

    def report_last(self, state: str, error: str) -> None:
        self._send(state, error)
        if self._producer is not None:
            self._producer.flush(FINAL_REPORT_SECONDS)

    def _send(self, state: str, error: str) -> None:
        if self._producer is None:
            return
        report = {**asdict(self._status), "host": socket.gethostname(), "state": state, "error": error}
        report["updated"] = time.time()
        # The queue is full, because brokers are down; a later report will do.
        with suppress(BufferError):
            self._producer.produce(TOPIC, key=self._status.name, value=json.dumps(report), partition=0)
        self._producer.poll(0)
