"""Version 0. KIP-590: a client's request that its broker forwards to the active controller."""

from __future__ import annotations

import asyncio
import ipaddress
from struct import Struct
from struct import error as StructError

from penstock.api.context import Client, RequestContext
from penstock.api.declaration import ControllerServices, controller_api
from penstock.api.table import FORWARDED_KEYS
from penstock.model.access import Operation
from penstock.model.errors import ErrorCode, ProtocolError
from penstock.wire.apis import ApiKey
from penstock.wire.frame import decode_versioned
from penstock.wire.messages.default_principal import DefaultPrincipalData
from penstock.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse

SIZE_BYTES = 4

_KEY = Struct(">h")


@controller_api(
    ApiKey.ENVELOPE,
    versions={
        0: "the first version (KIP-590)",
    },
    cluster_right=Operation.CLUSTER_ACTION,
)
async def envelope(services: ControllerServices, request: EnvelopeRequest, context: RequestContext) -> EnvelopeResponse:
    if not services.raft.is_leader:
        return EnvelopeResponse(None, ErrorCode.NOT_CONTROLLER)
    frame = bytearray(request.request_data)
    try:
        client = _client(request, context)
    except ProtocolError:
        return EnvelopeResponse(None, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE)
    try:
        (api_key,) = _KEY.unpack_from(frame)
        if api_key not in FORWARDED_KEYS:
            return EnvelopeResponse(None, ErrorCode.INVALID_REQUEST)
        reply = services.answer(frame, client)
        if isinstance(reply, asyncio.Future):
            reply = await reply
        if not services.raft.is_leader:
            # It answered that it is no longer active; the broker calls the next one.
            return EnvelopeResponse(None, ErrorCode.NOT_CONTROLLER)
    except (ProtocolError, StructError):
        return EnvelopeResponse(None, ErrorCode.UNSUPPORTED_VERSION)
    return EnvelopeResponse(b"".join(reply or ())[SIZE_BYTES:])


def _client(request: EnvelopeRequest, context: RequestContext) -> Client:
    """The client as its broker knows it, which access lists apply to; ProtocolError if it is not given."""
    principal: DefaultPrincipalData = decode_versioned(DefaultPrincipalData, request.request_principal or b"")
    return Client(
        (_host(request), 0),
        context.client.listener_name,
        principal=f"{principal.type}:{principal.name}",
        is_token=principal.token_authenticated,
        # That of the client's own connection; on plain text it has no name, which is as good as telling.
        security_protocol="",
        is_forwarded=True,
    )


def _host(request: EnvelopeRequest) -> str:
    try:
        return str(ipaddress.ip_address(request.client_host_address))
    except ValueError:
        return "unknown"
