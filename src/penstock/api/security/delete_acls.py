"""Versions 1-3. KIP-140 access lists, KIP-290 prefixes. Asks for ALTER on the cluster."""

from __future__ import annotations

from penstock.api.access import check_access_lists
from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import shared_api
from penstock.core.metadata.access_lists import EntryFilter
from penstock.model.access import Operation
from penstock.model.errors import ApiError
from penstock.runtime.controller.security import SecurityDecisions
from penstock.runtime.security.access_control import AccessControl
from penstock.wire.apis import ApiKey
from penstock.wire.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from penstock.wire.messages.metadata_records import AccessControlEntryRecord

API = shared_api(
    ApiKey.DELETE_ACLS,
    (1, 3),
    lambda services: make_delete_acls(services.controller.security, services.access),
    is_forwarded=True,
)


def make_delete_acls(decisions: SecurityDecisions, access: AccessControl) -> Handler:
    """The handler."""

    async def delete_acls(request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
        answers: list[ApiError | list[AccessControlEntryRecord]]
        try:
            check_access_lists(access, context, Operation.ALTER)
            answers = await decisions.delete_entries([EntryFilter(*wanted) for wanted in request.filters])
        except ApiError as error:
            answers = [error] * len(request.filters)
        return DeleteAclsResponse(filter_results=[_result(answer) for answer in answers])

    return delete_acls


def _result(answer: ApiError | list[AccessControlEntryRecord]) -> DeleteAclsFilterResult:
    if isinstance(answer, ApiError):
        return DeleteAclsFilterResult(answer.code, answer.message)
    return DeleteAclsFilterResult(0, None, [DeleteAclsMatchingAcl(0, None, *entry[1:]) for entry in answer])
