"""Messages of the DescribeClients API.

Generated from definitions/describe_clients.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.ids import ZERO_UUID


class DescribeClientsRequest(NamedTuple):
    """Version 0, flexible from 0."""

    instance_ids: Sequence[bytes] | None = ()
    include_series: bool = False

    def response_class(self) -> type[DescribeClientsResponse]:
        return DescribeClientsResponse


class SeriesLabel(NamedTuple):
    name: str = ""
    value: str = ""


class DescribedSeries(NamedTuple):
    name: str = ""
    is_total: bool = False
    value: float = 0.0
    labels: Sequence[SeriesLabel] = ()


class DescribedClient(NamedTuple):
    instance_id: bytes = ZERO_UUID
    client_id: str = ""
    software_name: str = ""
    software_version: str = ""
    host: str = ""
    port: int = 0
    interval_ms: int = 0
    silence_ms: int = 0
    is_terminating: bool = False
    series_count: int = 0
    left_out: int = 0
    requested_metrics: Sequence[str] = ()
    series: Sequence[DescribedSeries] = ()


class DescribeClientsResponse(NamedTuple):
    """Version 0, flexible from 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    clients: Sequence[DescribedClient] = ()
