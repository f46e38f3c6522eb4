"""Metrics that clients pushed to this broker, and how that goes."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.core.metrics.sheet import Metric, Sheet, counter, gauge, label_block
from penstock.core.telemetry.clients import TelemetryClient
from penstock.model.ids import format_uuid
from penstock.node.metrics.collector import CLIENTS
from penstock.runtime.telemetry import Telemetry

CLIENT_COUNT = gauge("penstock_telemetry_clients", "Clients that push metrics to this broker.")
SERIES = gauge("penstock_telemetry_series", "Series that they pushed, and that `detail=clients` shows.")
PUSHES = counter("penstock_telemetry_pushes_total", "Pushes of clients, by the error they got or NONE.", ("result",))
LEFT_OUT = counter(
    "penstock_telemetry_left_out_total",
    "Series that clients pushed and that are not shown: too many, not a number, or a histogram.",
)

LABELS = ("client_id", "client_instance_id", "client_software_name", "client_software_version", "client_source_address")
HELP = "Pushed by clients (KIP-714)."


class ClientCollector:
    """Collects what clients pushed; a family has the kind that it had first."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry

    def __call__(self, sheet: Sheet) -> Iterator[None]:
        known = self._telemetry.known()
        clients = self._telemetry.clients
        sheet.add(CLIENT_COUNT, len(clients))
        sheet.add(SERIES, clients.series_count)
        sheet.add(LEFT_OUT, clients.left_out)
        for result, count in sorted(self._telemetry.outcomes.items()):
            sheet.add(PUSHES, count, result)
        if CLIENTS in sheet.details:
            families: dict[str, Metric] = {}
            for client in known:
                _add(sheet, client, families)
                yield


def _add(sheet: Sheet, client: TelemetryClient, families: dict[str, Metric]) -> None:
    described = client.description
    own = dict(zip(LABELS, (described[0], format_uuid(client.instance_id), *described[1:4]), strict=True))
    for one in client.series:
        metric = Metric(one.name, "counter" if one.is_total else "gauge", HELP, (), CLIENTS)
        if families.setdefault(one.name, metric) == metric:
            labels = {**dict(one.labels), **own}
            sheet.put(metric, label_block(tuple(labels), labels.values()), one.value)
