"""Messages of the DescribeTenants API.

Generated from definitions/describe_tenants.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class DescribeTenantsRequest(NamedTuple):
    """Version 0, flexible from 0."""

    names: Sequence[str] | None = ()
    only_local: bool = False

    def response_class(self) -> type[DescribeTenantsResponse]:
        return DescribeTenantsResponse


class TenantLimit(NamedTuple):
    key: str = ""
    value: float = 0.0


class DescribedTenant(NamedTuple):
    name: str = ""
    topics: int = 0
    partitions: int = 0
    led_partitions: int = 0
    storage_bytes: int = 0
    produce_rate: float = 0.0
    consume_rate: float = 0.0
    refused_batches: int = 0
    limits: Sequence[TenantLimit] = ()


class DescribeTenantsResponse(NamedTuple):
    """Version 0, flexible from 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    tenants: Sequence[DescribedTenant] = ()
    principal: str = ""
