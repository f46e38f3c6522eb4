"""What the APIs of delegation tokens (KIP-48) share: which clients may use them, and the names of principals."""

from __future__ import annotations

from penstock.api.context import RequestContext
from penstock.model.access import ANONYMOUS
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.security.sign_in import DelegationTokens

REQUESTER_SINCE = 3


def check_may_use_tokens(tokens: DelegationTokens, context: RequestContext) -> None:
    """Raises an error if tokens are disabled, or the client is anonymous or signed in with a token itself."""
    client = context.client
    if not tokens.are_on:
        raise ApiError(
            ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED,
            "Delegation token support is not enabled: set delegation.token.secret.key",
        )
    if client.security_protocol == "PLAINTEXT" or client.is_token or client.principal == ANONYMOUS:
        raise ApiError(
            ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
            "Delegation Token requests are not allowed on PLAINTEXT/1-way SSL channels and on delegation token "
            "authenticated channels.",
        )


def requester_parts(principal: str, context: RequestContext) -> tuple[str, str]:
    """The requester of a token, in the versions that have it."""
    return split(principal) if context.api_version >= REQUESTER_SINCE else ("", "")


def split(principal: str) -> tuple[str, str]:
    """Type and name."""
    kind, _, name = principal.partition(":")
    return kind, name
