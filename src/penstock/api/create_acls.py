"""Versions 1-3. KIP-140 access lists. They are off here, and every rule is refused as by a Kafka without them.

Not yet: an authorizer.
"""

from __future__ import annotations

from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import shared_api
from penstock.api.operations import NO_AUTHORIZER
from penstock.model.errors import ErrorCode
from penstock.wire.apis import ApiKey
from penstock.wire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse

API = shared_api(ApiKey.CREATE_ACLS, (1, 3), lambda _: make_create_acls())


def make_create_acls() -> Handler:
    """The handler."""

    def create_acls(request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
        refused = AclCreationResult(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
        return CreateAclsResponse(results=[refused] * len(request.creations))

    return create_acls
