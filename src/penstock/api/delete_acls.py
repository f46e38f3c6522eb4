"""Versions 1-3. KIP-140 access lists. They are off here, and every filter is refused as by a Kafka without them.

Not yet: an authorizer.
"""

from __future__ import annotations

from penstock.api.context import Handler, RequestContext
from penstock.api.operations import NO_AUTHORIZER
from penstock.model.errors import ErrorCode
from penstock.wire.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse


def make_delete_acls() -> Handler:
    """The handler."""

    def delete_acls(request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
        refused = DeleteAclsFilterResult(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
        return DeleteAclsResponse(filter_results=[refused] * len(request.filters))

    return delete_acls
