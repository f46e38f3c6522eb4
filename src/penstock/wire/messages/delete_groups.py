"""Messages of the DeleteGroups API.

Generated from definitions/delete_groups.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class DeleteGroupsRequest(NamedTuple):
    """Versions 0-2, flexible from 2."""

    groups_names: Sequence[str] = ()

    def response_class(self) -> type[DeleteGroupsResponse]:
        return DeleteGroupsResponse


class DeletableGroupResult(NamedTuple):
    group_id: str = ""
    error_code: int = 0


class DeleteGroupsResponse(NamedTuple):
    """Versions 0-2, flexible from 2."""

    throttle_time_ms: int = 0
    results: Sequence[DeletableGroupResult] = ()
