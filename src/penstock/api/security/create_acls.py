"""Versions 1-3. KIP-140 access lists, KIP-290 prefixes. Asks for ALTER on the cluster."""

from __future__ import annotations

from penstock.api.access import check_access_lists
from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import shared_api
from penstock.model.access import Operation
from penstock.model.errors import ApiError
from penstock.runtime.controller.security import SecurityDecisions
from penstock.runtime.security.access_control import AccessControl
from penstock.wire.apis import ApiKey
from penstock.wire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse

API = shared_api(
    ApiKey.CREATE_ACLS,
    (1, 3),
    lambda services: make_create_acls(services.controller.security, services.access),
    is_forwarded=True,
)


def make_create_acls(decisions: SecurityDecisions, access: AccessControl) -> Handler:
    """The handler."""

    async def create_acls(request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
        try:
            check_access_lists(access, context, Operation.ALTER)
            answers = await decisions.create_entries(request.creations)
        except ApiError as error:
            answers = [error] * len(request.creations)
        return CreateAclsResponse(
            results=[
                AclCreationResult(error.code, error.message) if error is not None else AclCreationResult(0, None)
                for error in answers
            ]
        )

    return create_acls
