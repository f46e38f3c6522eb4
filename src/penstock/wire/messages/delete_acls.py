"""Messages of the DeleteAcls API.

Generated from definitions/delete_acls.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class DeleteAclsFilter(NamedTuple):
    resource_type_filter: int = 0
    resource_name_filter: str | None = ""
    pattern_type_filter: int = 3
    principal_filter: str | None = ""
    host_filter: str | None = ""
    operation: int = 0
    permission_type: int = 0


class DeleteAclsRequest(NamedTuple):
    """Versions 1-3, flexible from 2."""

    filters: Sequence[DeleteAclsFilter] = ()

    def response_class(self) -> type[DeleteAclsResponse]:
        return DeleteAclsResponse


class DeleteAclsMatchingAcl(NamedTuple):
    error_code: int = 0
    error_message: str | None = ""
    resource_type: int = 0
    resource_name: str = ""
    pattern_type: int = 3
    principal: str = ""
    host: str = ""
    operation: int = 0
    permission_type: int = 0


class DeleteAclsFilterResult(NamedTuple):
    error_code: int = 0
    error_message: str | None = ""
    matching_acls: Sequence[DeleteAclsMatchingAcl] = ()


class DeleteAclsResponse(NamedTuple):
    """Versions 1-3, flexible from 2."""

    throttle_time_ms: int = 0
    filter_results: Sequence[DeleteAclsFilterResult] = ()
