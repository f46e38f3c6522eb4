"""Versions 0-1. KIP-43 mechanisms, KIP-152 errors. Served by `sign_in_session` before it gets here."""

from __future__ import annotations

from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import shared_api
from penstock.model.errors import ErrorCode
from penstock.wire.apis import ApiKey
from penstock.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def make_sasl_handshake() -> Handler:
    """The handler, for listeners without sign-in."""

    def sasl_handshake(request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
        return SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE, [])

    return sasl_handshake


API = shared_api(ApiKey.SASL_HANDSHAKE, (0, 1), lambda _: make_sasl_handshake())
