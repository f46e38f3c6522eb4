"""Messages of the DescribeAcls API.

Generated from definitions/describe_acls.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class DescribeAclsRequest(NamedTuple):
    """Versions 1-3, flexible from 2."""

    resource_type_filter: int = 0
    resource_name_filter: str | None = ""
    pattern_type_filter: int = 3
    principal_filter: str | None = ""
    host_filter: str | None = ""
    operation: int = 0
    permission_type: int = 0

    def response_class(self) -> type[DescribeAclsResponse]:
        return DescribeAclsResponse


class AclDescription(NamedTuple):
    principal: str = ""
    host: str = ""
    operation: int = 0
    permission_type: int = 0


class DescribeAclsResource(NamedTuple):
    resource_type: int = 0
    resource_name: str = ""
    pattern_type: int = 3
    acls: Sequence[AclDescription] = ()


class DescribeAclsResponse(NamedTuple):
    """Versions 1-3, flexible from 2."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    resources: Sequence[DescribeAclsResource] = ()
