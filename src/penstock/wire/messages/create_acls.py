"""Messages of the CreateAcls API.

Generated from definitions/create_acls.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class AclCreation(NamedTuple):
    resource_type: int = 0
    resource_name: str = ""
    resource_pattern_type: int = 3
    principal: str = ""
    host: str = ""
    operation: int = 0
    permission_type: int = 0


class CreateAclsRequest(NamedTuple):
    """Versions 1-3, flexible from 2."""

    creations: Sequence[AclCreation] = ()

    def response_class(self) -> type[CreateAclsResponse]:
        return CreateAclsResponse


class AclCreationResult(NamedTuple):
    error_code: int = 0
    error_message: str | None = ""


class CreateAclsResponse(NamedTuple):
    """Versions 1-3, flexible from 2."""

    throttle_time_ms: int = 0
    results: Sequence[AclCreationResult] = ()
