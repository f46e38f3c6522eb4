"""`/api/v1/audit`: the audit trail, from the topic `_audit` that the brokers write."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from starlette.responses import Response

from penstock.gateway.kafka.records import ReadRecord
from penstock.gateway.rest.services import RestServices
from penstock.gateway.web.application import json_response
from penstock.gateway.web.operations import Call, Routes, json_object
from penstock.gateway.web.parameters import number, query
from penstock.gateway.web.problem import Problem

TAG = "Audit (v1)"
TOPIC = "_audit"
TYPES = ["change", "denied", "sign_in_refused", "dropped"]
LIMIT_MAX = 500
SCAN_MAX = 20_000
RECORDS_A_READ = 1000
EVENT_BYTES_MAX = 256 * 1024
TEXTS = (
    "time",
    "type",
    "principal",
    "host",
    "client_id",
    "listener",
    "api",
    "operation",
    "resource_type",
    "resource",
    "outcome",
    "message",
)
NUMBERS = ("version", "broker", "count")


routes: Routes[RestServices] = Routes(TAG)


@routes.on(
    "GET /api/v1/audit",
    "List audit events, newest first: changes, denials and refused sign-ins that brokers wrote to _audit.",
    query("type", "Only events of this type.", enum=TYPES),
    query("principal", "Only what this principal did.", maxLength=1000),
    query("api", "Only requests of this API.", maxLength=100),
    query("resource", "Only what was done to the resource of this name.", maxLength=1000),
    query("outcome", "Only this outcome: OK, or the name of an error.", maxLength=100),
    query("search", "Only events that have this text somewhere.", maxLength=1000),
    number("limit", "How many events at most.", 1, maximum=LIMIT_MAX, default=100),
    number("scan", "How many events to scan at most.", 1, maximum=SCAN_MAX, default=5000),
    answers={200: json_object(["events", "scanned", "is_kept"])},
)
async def listing(services: RestServices, call: Call) -> Response:
    try:
        beginning, end = await services.readers.watermarks(TOPIC, 0)
    except Problem as problem:
        if problem.status != 404:
            raise
        return json_response({"events": [], "scanned": 0, "is_kept": False})
    wanted = {name: call[name] for name in ("type", "principal", "api", "resource", "outcome") if call[name]}
    search, limit = (call["search"] or "").lower(), call["limit"]
    found: list[dict[str, object]] = []
    scanned = 0
    while end > beginning and scanned < call["scan"] and len(found) < limit:
        first = max(beginning, end - RECORDS_A_READ)
        records = await services.readers.read(TOPIC, 0, first, end - first)
        scanned += end - first
        found += newest_first(records, wanted, search)
        end = first
    return json_response({"events": found[:limit], "scanned": scanned, "is_kept": True})


def newest_first(records: list[ReadRecord], wanted: Mapping[str, str], search: str) -> Iterator[dict[str, object]]:
    """The requested events among these records; records that are not events are left out."""
    for record in reversed(records):
        value = record.value or b""
        if len(value) > EVENT_BYTES_MAX or (search and search not in value.decode("utf-8", "replace").lower()):
            continue
        event = event_of(value)
        if event is not None and all(event.get(name) == text for name, text in wanted.items()):
            yield {**event, "offset": record.offset}


def event_of(value: bytes) -> dict[str, object] | None:
    """An event, checked field by field: in a cluster without ACLs any client can write to the topic."""
    try:
        document = json.loads(value)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or document.get("type") not in TYPES:
        return None
    event: dict[str, object] = {name: text for name in TEXTS if isinstance(text := document.get(name), str)}
    event |= {name: found for name in NUMBERS if type(found := document.get(name)) is int}
    details = document.get("details")
    if isinstance(details, dict):
        event["details"] = {name: text for name, text in details.items() if isinstance(text, str)}
    return event
