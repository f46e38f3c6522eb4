"""What a running pipeline tells its cluster, so that consoles anywhere can show it: its latest status in a topic."""

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
# The newest status of each pipeline, for a week after its last.
SETTINGS = {
    "cleanup.policy": "compact,delete",
    "retention.ms": str(7 * 86_400_000),
    "segment.ms": str(3_600_000),
    "max.compaction.lag.ms": str(3_600_000),
    "min.cleanable.dirty.ratio": "0.1",
}
REPORT_SECONDS = 2.0
LAST_WORD_SECONDS = 3.0
PRODUCER = {"message.timeout.ms": "10000", "queue.buffering.max.messages": "100", "log_level": 0}

logger = logging.getLogger("penstock.pipelines")


@contextmanager
def reported(settings: ConnectionSettings, status: PipelineStatus) -> Iterator[Callable[[], None]]:
    """For the length of a block, a function that tells how the pipeline does; call it as often as you like.

    Nothing waits for it and nothing fails with it: a cluster that takes no reports still has its pipeline.
    """
    reporter = _Reporter(settings, status)
    try:
        yield reporter.tell
    except BaseException as error:
        reporter.tell_last("failed" if isinstance(error, Exception) else "stopped", str(error))
        raise
    reporter.tell_last("ended", "")


class _Reporter:
    def __init__(self, settings: ConnectionSettings, status: PipelineStatus) -> None:
        self._settings = settings
        self._status = status
        self._producer: Any = None
        self._told = 0.0
        # Brokers may be away for a while: the pipeline does not wait for the topic.
        threading.Thread(target=self._prepare, name="pipeline reports", daemon=True).start()

    def _prepare(self) -> None:
        from confluent_kafka import KafkaException, Producer

        try:
            with ClusterClient(self._settings) as client:
                client.ensure_topic(TOPIC, 1, configs=SETTINGS)
            self._producer = Producer({**librdkafka_properties(self._settings), **PRODUCER})
        except (ApiError, KafkaException, OSError) as error:
            logger.warning("consoles will not see this pipeline: %s cannot be used (%s)", TOPIC, error)

    def tell(self) -> None:
        if time.monotonic() - self._told >= REPORT_SECONDS:
            self._told = time.monotonic()
            self._send("running", "")

    def tell_last(self, state: str, error: str) -> None:
        self._send(state, error)
        if self._producer is not None:
            self._producer.flush(LAST_WORD_SECONDS)

    def _send(self, state: str, error: str) -> None:
        if self._producer is None:
            return
        report = {**asdict(self._status), "host": socket.gethostname(), "state": state, "error": error}
        report["updated"] = time.time()
        # A full queue: the brokers are away, and the next report is as good.
        with suppress(BufferError):
            self._producer.produce(TOPIC, key=self._status.name, value=json.dumps(report), partition=0)
        self._producer.poll(0)
