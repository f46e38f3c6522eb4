"""`/api/v1/pipelines`: what pipelines on Spark report about themselves in the topic `_pipelines`."""

from __future__ import annotations

import asyncio
import json
import math
import time
from typing import Any

from starlette.responses import Response

from penstock.gateway.kafka.reader import Readers
from penstock.gateway.kafka.records import ReadRecord
from penstock.gateway.rest.values.json_text import json_bytes
from penstock.gateway.web.application import finite, json_response
from penstock.gateway.web.operations import Call, Operation
from penstock.gateway.web.problem import Problem

TAG = "Pipelines (v1)"
TOPIC = "_pipelines"
RECORDS_A_READ = 1000
# A pipeline reports every two seconds.
SILENT_AFTER_S = 15.0
PIPELINES_MAX = 1000
REPORT_BYTES_MAX = 64 * 1024
RECORDS_AT_ONCE = 20


def pipeline_operations(readers: Readers) -> list[Operation]:
    """Pipelines."""
    board = PipelineBoard(readers)

    async def listing(call: Call) -> Response:
        del call
        return json_response({"pipelines": await board.latest()})

    return [
        Operation(
            "GET",
            "/api/v1/pipelines",
            listing,
            "List pipelines that ran in the last week with their queries: state, rows, speed, lag, dead letters.",
            TAG,
            answers={200: {"type": "object", "required": ["pipelines"]}},
        )
    ]


class PipelineBoard:
    """The latest report of each pipeline; each call reads what was added since the one before."""

    def __init__(self, readers: Readers) -> None:
        self._readers = readers
        self._reports: dict[str, dict[str, Any]] = {}
        self._next_offset = 0
        self._reading = asyncio.Lock()

    async def latest(self) -> list[dict[str, Any]]:
        """Reports by name, those of pipelines that fell silent marked as such."""
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
            # The topic was made anew.
            self._reports.clear()
            self._next_offset = 0
        self._next_offset = max(self._next_offset, beginning)
        while self._next_offset < end:
            records = await self._readers.read(TOPIC, 0, self._next_offset, RECORDS_A_READ)
            if not records:
                # Compaction took what there was.
                break
            for place, record in enumerate(records):
                self._take(record)
                if place % RECORDS_AT_ONCE == 0:
                    await asyncio.sleep(0)
            self._next_offset = records[-1].offset + 1

    def _take(self, record: ReadRecord) -> None:
        """Remember a report; what is none is nobody's pipeline."""
        name = (record.key or b"").decode("utf-8", "replace")
        self._reports.pop(name, None)
        report = report_of(name, record.value or b"")
        if report is not None:
            self._reports[name] = report
        while len(self._reports) > PIPELINES_MAX:
            del self._reports[next(iter(self._reports))]


def report_of(name: str, value: bytes) -> dict[str, Any] | None:
    """What a pipeline says of itself; None for what no pipeline of ours has written."""
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
        # A report that is too deep to be sent is found here, and not when all are.
        json_bytes(shown)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError, Problem):
        return None
    return shown
