"""Version 0. KIP-554 users and passwords for SCRAM. Asks for DESCRIBE on the cluster."""

from __future__ import annotations

from collections import Counter

from penstock.api.access import check_cluster
from penstock.api.context import RequestContext
from penstock.api.declaration import SharedServices, shared_api
from penstock.model.access import Operation
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.apis import ApiKey
from penstock.wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


@shared_api(
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    versions={
        0: "the first version (KIP-554)",
    },
)
def describe_user_scram_credentials(
    services: SharedServices, request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> DescribeUserScramCredentialsResponse:
    try:
        check_cluster(services.access, context, Operation.DESCRIBE)
    except ApiError as error:
        refused = [
            DescribeUserScramCredentialsResult(user.name, error.code, error.message) for user in request.users or ()
        ]
        return DescribeUserScramCredentialsResponse(0, error.code, error.message, refused)
    known: dict[str, list[CredentialInfo]] = {}
    for (name, mechanism), credential in services.image.security.credentials.items():
        known.setdefault(name, []).append(CredentialInfo(mechanism, credential.iterations))
    wanted = Counter([user.name for user in request.users] if request.users else known.keys())
    results = [_result(name, count, known) for name, count in wanted.items()]
    return DescribeUserScramCredentialsResponse(0, 0, None, results)


def _result(name: str, count: int, known: dict[str, list[CredentialInfo]]) -> DescribeUserScramCredentialsResult:
    if count > 1:
        reason = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        return DescribeUserScramCredentialsResult(name, ErrorCode.DUPLICATE_RESOURCE, reason)
    if name not in known:
        reason = f"Attempt to describe a user credential that does not exist: {name}"
        return DescribeUserScramCredentialsResult(name, ErrorCode.RESOURCE_NOT_FOUND, reason)
    return DescribeUserScramCredentialsResult(name, 0, None, known[name])
