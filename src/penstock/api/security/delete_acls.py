"""Versions 1-3. KIP-140 access lists, KIP-290 prefixes. Asks for ALTER on the cluster."""

from __future__ import annotations

from penstock.api.access import check_access_lists
from penstock.api.context import RequestContext
from penstock.api.declaration import SharedServices, forwarded_api
from penstock.core.metadata.access_lists import EntryFilter
from penstock.model.access import Operation
from penstock.model.errors import ApiError
from penstock.wire.apis import ApiKey
from penstock.wire.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from penstock.wire.messages.metadata_records import AccessControlEntryRecord


@forwarded_api(
    ApiKey.DELETE_ACLS,
    versions={
        1: "the first version still served: pattern types, so prefixes too (KIP-290)",
        2: "flexible versions (KIP-482)",
        3: "the same fields; users as a resource type (KIP-373)",
    },
)
async def delete_acls(
    services: SharedServices, request: DeleteAclsRequest, context: RequestContext
) -> DeleteAclsResponse:
    answers: list[ApiError | list[AccessControlEntryRecord]]
    try:
        check_access_lists(services.access, context, Operation.ALTER)
        answers = await services.controller.security.delete_entries(
            [EntryFilter(*wanted) for wanted in request.filters]
        )
    except ApiError as error:
        answers = [error] * len(request.filters)
    return DeleteAclsResponse(filter_results=[_result(answer) for answer in answers])


def _result(answer: ApiError | list[AccessControlEntryRecord]) -> DeleteAclsFilterResult:
    if isinstance(answer, ApiError):
        return DeleteAclsFilterResult(answer.code, answer.message)
    return DeleteAclsFilterResult(0, None, [DeleteAclsMatchingAcl(0, None, *entry[1:]) for entry in answer])
