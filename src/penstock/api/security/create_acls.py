"""Versions 1-3. KIP-140 access lists, KIP-290 prefixes. Asks for ALTER on the cluster."""

from __future__ import annotations

from penstock.api.access import check_access_lists
from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import SharedServices, shared_api
from penstock.api.pieces import decide_in_pieces
from penstock.model.access import Operation
from penstock.model.errors import ApiError
from penstock.wire.apis import ApiKey
from penstock.wire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse


def make_create_acls(services: SharedServices) -> Handler:
    """The handler."""
    decisions = services.controller.security

    async def create_acls(request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
        try:
            check_access_lists(services.access, context, Operation.ALTER)
            answers = await decide_in_pieces(request.creations, id, decisions.create_entries)
        except ApiError as error:
            answers = [error] * len(request.creations)
        return CreateAclsResponse(
            results=[
                AclCreationResult(error.code, error.message) if error is not None else AclCreationResult(0, None)
                for error in answers
            ]
        )

    return create_acls


API = shared_api(ApiKey.CREATE_ACLS, (1, 3), make_create_acls, is_forwarded=True)
