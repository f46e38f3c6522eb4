"""Versions 1-3. KIP-140 access lists, KIP-290 prefixes. Asks for DESCRIBE on the cluster."""

from __future__ import annotations

from penstock.api.access import check_access_lists
from penstock.api.context import RequestContext
from penstock.api.declaration import SharedServices, shared_api
from penstock.core.metadata.access_lists import EntryFilter, matching_entries
from penstock.model.access import Operation
from penstock.model.errors import ApiError
from penstock.wire.apis import ApiKey
from penstock.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)


@shared_api(
    ApiKey.DESCRIBE_ACLS,
    versions={
        1: "the first version still served: pattern types, so prefixes too (KIP-290)",
        2: "flexible versions (KIP-482)",
        3: "the same fields; users as a resource type (KIP-373)",
    },
)
def describe_acls(
    services: SharedServices, request: DescribeAclsRequest, context: RequestContext
) -> DescribeAclsResponse:
    try:
        check_access_lists(services.access, context, Operation.DESCRIBE)
        found = matching_entries(services.image, EntryFilter(*request))
    except ApiError as error:
        return DescribeAclsResponse(error_code=error.code, error_message=error.message)
    resources: dict[tuple[int, str, int], list[AclDescription]] = {}
    for entry in found:
        key = (entry.resource_type, entry.resource_name, entry.pattern_type)
        resources.setdefault(key, []).append(
            AclDescription(entry.principal, entry.host, entry.operation, entry.permission_type)
        )
    rows = [DescribeAclsResource(*key, acls) for key, acls in resources.items()]
    return DescribeAclsResponse(error_message=None, resources=rows)
