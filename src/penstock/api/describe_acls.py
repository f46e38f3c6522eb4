"""Versions 1-3. KIP-140 access lists. They are off here, and the answer says so as that of a Kafka without them.

Not yet: an authorizer.
"""

from __future__ import annotations

from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import shared_api
from penstock.api.operations import NO_AUTHORIZER
from penstock.model.errors import ErrorCode
from penstock.wire.apis import ApiKey
from penstock.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

API = shared_api(ApiKey.DESCRIBE_ACLS, (1, 3), lambda _: make_describe_acls())


def make_describe_acls() -> Handler:
    """The handler."""

    def describe_acls(request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
        return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)

    return describe_acls
