"""Messages of the ListGroups API.

Generated from definitions/list_groups.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class ListGroupsRequest(NamedTuple):
    """Versions 0-5, flexible from 3."""

    states_filter: Sequence[str] = ()
    types_filter: Sequence[str] = ()

    def response_class(self) -> type[ListGroupsResponse]:
        return ListGroupsResponse


class ListedGroup(NamedTuple):
    group_id: str = ""
    protocol_type: str = ""
    group_state: str = ""
    group_type: str = ""


class ListGroupsResponse(NamedTuple):
    """Versions 0-5, flexible from 3."""

    throttle_time_ms: int = 0
    error_code: int = 0
    groups: Sequence[ListedGroup] = ()
