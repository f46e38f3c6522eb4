"""Versions 0-1. KIP-43 mechanisms, KIP-152 errors. Served by `sign_in_session` before it gets here."""

from __future__ import annotations

from penstock.api.context import RequestContext
from penstock.api.declaration import SharedServices, shared_api
from penstock.model.errors import ErrorCode
from penstock.wire.apis import ApiKey
from penstock.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


@shared_api(
    ApiKey.SASL_HANDSHAKE,
    versions={
        0: "the first version: the mechanism (KIP-43); bare SASL tokens follow, outside of requests",
        1: "the same fields; SASL tokens follow in SaslAuthenticate requests (KIP-152)",
    },
)
def sasl_handshake(_: SharedServices, __: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
    """For listeners without sign-in."""
    return SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE, [])
