"""Versions 1-3. KIP-140 access lists, KIP-290 prefixes. Asks for ALTER on the cluster."""

from __future__ import annotations

from penstock.api.access import check_access_lists
from penstock.api.context import RequestContext
from penstock.api.declaration import SharedServices, forwarded_api
from penstock.api.pieces import decide_in_pieces
from penstock.model.access import Operation
from penstock.model.errors import ApiError
from penstock.wire.apis import ApiKey
from penstock.wire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse


@forwarded_api(
    ApiKey.CREATE_ACLS,
    versions={
        1: "the first version still served: pattern types, so prefixes too (KIP-290)",
        2: "flexible versions (KIP-482)",
        3: "the same fields; users as a resource type (KIP-373)",
    },
)
async def create_acls(
    services: SharedServices, request: CreateAclsRequest, context: RequestContext
) -> CreateAclsResponse:
    try:
        check_access_lists(services.access, context, Operation.ALTER)
        answers = await decide_in_pieces(request.creations, id, services.controller.security.create_entries)
    except ApiError as error:
        answers = [error] * len(request.creations)
    return CreateAclsResponse(
        results=[
            AclCreationResult(error.code, error.message) if error is not None else AclCreationResult(0, None)
            for error in answers
        ]
    )
