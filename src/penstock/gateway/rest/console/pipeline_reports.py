"""The state that Spark pipelines report in the topic `_pipelines`."""

from __future__ import annotations

import asyncio
import json
import math
import time
from typing import Any

from penstock.gateway.kafka.reader import Readers
from penstock.gateway.kafka.records import ReadRecord
from penstock.gateway.rest.values.json_text import json_bytes
from penstock.gateway.web.application import finite
from penstock.gateway.web.problem import Problem

TOPIC = "_pipelines"
RECORDS_A_READ = 1000
# A pipeline reports every two seconds.
SILENT_AFTER_S = 15.0
PIPELINES_MAX = 1000
REPORT_BYTES_MAX = 64 * 1024
RECORDS_AT_ONCE = 20


class PipelineReports:
    """The latest report of each pipeline; each call reads what was added since the last one."""

    def __init__(self, readers: Readers) -> None:
        self._readers = readers
        self._reports: dict[str, dict[str, Any]] = {}
        self._next_offset = 0
        self._reading = asyncio.Lock()

    async def latest(self) -> list[dict[str, object]]:
        """Reports by name; pipelines that stopped reporting are marked as silent."""
        async with self._reading:
            await self._catch_up()
        now = time.time()
        rows = []
        for name in sorted(self._reports):
            report = self._reports[name]
            silent = report["state"] == "running" and now - report["updated"] > SILENT_AFTER_S
            rows.append({**report, "state": "silent"} if silent else report)
        return rows

    async def _catch_up(self) -> None:
        try:
            beginning, end = await self._readers.watermarks(TOPIC, 0)
        except Problem as problem:
            if problem.status != 404:
                raise
            beginning, end = 0, 0
        if end < self._next_offset:
            # The topic was recreated.
            self._reports.clear()
            self._next_offset = 0
        self._next_offset = max(self._next_offset, beginning)
        while self._next_offset < end:
            records = await self._readers.read(TOPIC, 0, self._next_offset, RECORDS_A_READ)
            if not records:
                # Compaction removed the next record.
                break
            for index, record in enumerate(records):
                self._take(record)
                if index % RECORDS_AT_ONCE == 0:
                    await asyncio.sleep(0)
            self._next_offset = records[-1].offset + 1

    def _take(self, record: ReadRecord) -> None:
        """Store a report; records that are not reports are ignored."""
        name = (record.key or b"").decode("utf-8", "replace")
        self._reports.pop(name, None)
        report = report_of(name, record.value or b"")
        if report is not None:
            self._reports[name] = report
        while len(self._reports) > PIPELINES_MAX:
            del self._reports[next(iter(self._reports))]


def report_of(name: str, value: bytes) -> dict[str, Any] | None:
    """A pipeline's report; None if the record is not one."""
    if len(value) > REPORT_BYTES_MAX:
        return None
    try:
        report = finite(json.loads(value))
        if not isinstance(report, dict) or not isinstance(report["queries"], list):
            return None
        updated = float(report["updated"])
        if not math.isfinite(updated) or any(not isinstance(query, dict) for query in report["queries"]):
            return None
        shown = {**report, "name": name, "state": str(report["state"]), "updated": updated}
        # A report that is nested too deeply to be encoded is rejected here, so that the other reports can be sent.
        json_bytes(shown)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError, Problem):
        return None
    return shown
