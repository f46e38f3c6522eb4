"""Messages of the AlterClientQuotas API.

Generated from definitions/alter_client_quotas.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class EntityData(NamedTuple):
    entity_type: str = ""
    entity_name: str | None = ""


class OpData(NamedTuple):
    key: str = ""
    value: float = 0.0
    remove: bool = False


class AlterClientQuotasRequestEntryData(NamedTuple):
    entity: Sequence[EntityData] = ()
    ops: Sequence[OpData] = ()


class AlterClientQuotasRequest(NamedTuple):
    """Versions 0-1, flexible from 1."""

    entries: Sequence[AlterClientQuotasRequestEntryData] = ()
    validate_only: bool = False

    def response_class(self) -> type[AlterClientQuotasResponse]:
        return AlterClientQuotasResponse


class AlterClientQuotasResponseEntryData(NamedTuple):
    error_code: int = 0
    error_message: str | None = ""
    entity: Sequence[EntityData] = ()


class AlterClientQuotasResponse(NamedTuple):
    """Versions 0-1, flexible from 1."""

    throttle_time_ms: int = 0
    entries: Sequence[AlterClientQuotasResponseEntryData] = ()
