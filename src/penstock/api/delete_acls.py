"""Versions 1-3. KIP-140 access lists. They are off here, and every filter is refused as by a Kafka without them.

Not yet: an authorizer.
"""

from __future__ import annotations

from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import shared_api
from penstock.api.operations import NO_AUTHORIZER
from penstock.model.errors import ErrorCode
from penstock.wire.apis import ApiKey
from penstock.wire.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse

API = shared_api(ApiKey.DELETE_ACLS, (1, 3), lambda _: make_delete_acls())


def make_delete_acls() -> Handler:
    """The handler."""

    def delete_acls(request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
        refused = DeleteAclsFilterResult(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
        return DeleteAclsResponse(filter_results=[refused] * len(request.filters))

    return delete_acls
