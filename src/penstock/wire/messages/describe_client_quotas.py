"""Messages of the DescribeClientQuotas API.

Generated from definitions/describe_client_quotas.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class ComponentData(NamedTuple):
    entity_type: str = ""
    match_type: int = 0
    match: str | None = ""


class DescribeClientQuotasRequest(NamedTuple):
    """Versions 0-1, flexible from 1."""

    components: Sequence[ComponentData] = ()
    strict: bool = False

    def response_class(self) -> type[DescribeClientQuotasResponse]:
        return DescribeClientQuotasResponse


class EntityData(NamedTuple):
    entity_type: str = ""
    entity_name: str | None = ""


class ValueData(NamedTuple):
    key: str = ""
    value: float = 0.0


class EntryData(NamedTuple):
    entity: Sequence[EntityData] = ()
    values: Sequence[ValueData] = ()


class DescribeClientQuotasResponse(NamedTuple):
    """Versions 0-1, flexible from 1."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    entries: Sequence[EntryData] | None = ()
