"""Delegation tokens (KIP-48): created, renewed, expired early, and removed after they have expired.

The log does not hold a token's secret: that is an HMAC of the token's id under the cluster's key, which every broker
computes for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from penstock.core.metadata.image import Image
from penstock.core.metadata.result import Result
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.messages.metadata_records import DelegationTokenRecord, RemoveDelegationTokenRecord

TOKENS_MAX = 100_000
# Creating a token requires no right, so one user must not be able to fill the metadata of the cluster.
TOKENS_PER_OWNER_MAX = 1_000
RENEWERS_MAX = 100
RENEWERS_BYTES_MAX = 8 * 1024


class TokenRules(NamedTuple):
    """How long tokens live, and how they are found by their secrets."""

    lifetime_ms_max: int
    renewal_ms: int
    # The id that belongs to a secret, of these ids; None if there is none.
    find: Callable[[Collection[str], bytes], str | None]


def create_token(
    image: Image,
    rules: TokenRules,
    *,
    token_id: str,
    owner: str,
    requester: str,
    renewers: Sequence[str],
    lifetime_ms: int,
    now_ms: int,
) -> Result[DelegationTokenRecord]:
    """A new token; a lifetime below zero is the longest one."""
    if len(image.security.tokens) >= TOKENS_MAX:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION, f"there are {TOKENS_MAX} delegation tokens: expire some of them first"
        )
    if image.security.tokens_by_owner[owner] >= TOKENS_PER_OWNER_MAX:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"{owner} has {TOKENS_PER_OWNER_MAX} delegation tokens: expire some of them first",
        )
    if len(renewers) > RENEWERS_MAX:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"a token may have at most {RENEWERS_MAX} renewers")
    if sum(len(renewer.encode()) for renewer in renewers) > RENEWERS_BYTES_MAX:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"the names of a token's renewers may have at most {RENEWERS_BYTES_MAX} bytes"
        )
    longest = rules.lifetime_ms_max if lifetime_ms <= 0 else min(lifetime_ms, rules.lifetime_ms_max)
    max_timestamp = now_ms + longest
    expiry = min(max_timestamp, now_ms + rules.renewal_ms)
    record = DelegationTokenRecord(owner, requester, list(renewers), now_ms, max_timestamp, expiry, token_id)
    return Result([record], record)


def renew_token(
    image: Image, rules: TokenRules, hmac: bytes, principal: str, period_ms: int, now_ms: int
) -> Result[int]:
    """Extend a token within its maximum lifetime; returns its new expiry."""
    token = _usable(image, rules, hmac, principal, now_ms)
    wanted = now_ms + (rules.renewal_ms if period_ms < 0 else period_ms)
    expiry = min(token.max_timestamp, wanted)
    return Result([token._replace(expiration_timestamp=expiry)], expiry)


def expire_token(
    image: Image, rules: TokenRules, hmac: bytes, principal: str, period_ms: int, now_ms: int
) -> Result[int]:
    """Expire a token sooner, or, with a negative period, at once; returns its new expiry."""
    token = find_token(image, rules, hmac)
    _check_may_change(token, principal)
    if period_ms < 0:
        return Result([RemoveDelegationTokenRecord(token.token_id)], now_ms)
    token = _usable(image, rules, hmac, principal, now_ms)
    expiry = min(token.max_timestamp, now_ms + period_ms)
    return Result([token._replace(expiration_timestamp=expiry)], expiry)


def expired_tokens(image: Image, now_ms: int) -> list[RemoveDelegationTokenRecord]:
    """The records that remove expired tokens."""
    return [
        RemoveDelegationTokenRecord(token.token_id)
        for token in image.security.tokens.values()
        if min(token.expiration_timestamp, token.max_timestamp) < now_ms
    ]


def find_token(image: Image, rules: TokenRules, hmac: bytes) -> DelegationTokenRecord:
    """The token that a secret belongs to; raises DELEGATION_TOKEN_NOT_FOUND."""
    tokens = image.security.tokens
    token_id = rules.find(tokens.keys(), hmac)
    if token_id is None:
        raise ApiError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, "there is no such delegation token")
    return tokens[token_id]


def _usable(image: Image, rules: TokenRules, hmac: bytes, principal: str, now_ms: int) -> DelegationTokenRecord:
    token = find_token(image, rules, hmac)
    _check_may_change(token, principal)
    if token.max_timestamp < now_ms or token.expiration_timestamp < now_ms:
        raise ApiError(ErrorCode.DELEGATION_TOKEN_EXPIRED, "the delegation token has expired: create another one")
    return token


def _check_may_change(token: DelegationTokenRecord, principal: str) -> None:
    if principal not in (token.owner, token.requester, *token.renewers):
        raise ApiError(
            ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH,
            "only the owner, the requester and the renewers may change a token",
        )
