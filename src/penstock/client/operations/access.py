"""Access lists, and users with passwords."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.client.operations.routing import NOT_MADE, Cluster, Operation, ToAny, check, retried
from penstock.core.security.scram import MECHANISMS, MECHANISMS_BY_CODE, salted_password
from penstock.model.access import Operation as AccessOperation
from penstock.model.access import PatternType, Permission, ResourceType
from penstock.model.errors import ErrorCode
from penstock.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from penstock.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from penstock.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from penstock.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from penstock.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)

ITERATIONS = 8192


class Entry(NamedTuple):
    """An entry of an access list, in the order that requests have."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int


class EntryFilter(NamedTuple):
    """Matches entries; fields that are ANY or None match all."""

    resource_type: int = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: int = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: int = AccessOperation.ANY
    permission: int = Permission.ANY


@retried
def add_entries(_: Cluster, entries: Sequence[Entry]) -> Operation[None]:
    """Add entries; those that are there already stay."""
    response: CreateAclsResponse = yield ToAny(CreateAclsRequest([AclCreation(*entry) for entry in entries]))
    for entry, result in zip(entries, response.results, strict=True):
        check(result.error_code, entry.resource_name, result.error_message, NOT_MADE)


@retried
def list_entries(_: Cluster, wanted: EntryFilter) -> Operation[list[Entry]]:
    """The matching entries."""
    response: DescribeAclsResponse = yield ToAny(DescribeAclsRequest(*wanted))
    check(response.error_code, "", response.error_message)
    return [
        Entry(*resource[:3], each.principal, each.host, each.operation, each.permission_type)
        for resource in response.resources
        for each in resource.acls
    ]


@retried
def remove_entries(_: Cluster, filters: Sequence[Entry | EntryFilter]) -> Operation[list[Entry]]:
    """Remove the entries that match any of these; returns those that there were."""
    response: DeleteAclsResponse = yield ToAny(DeleteAclsRequest([DeleteAclsFilter(*each) for each in filters]))
    removed: list[Entry] = []
    for wanted, result in zip(filters, response.filter_results, strict=True):
        check(result.error_code, wanted.resource_name or "", result.error_message, NOT_MADE)
        for each in result.matching_acls:
            check(each.error_code, each.resource_name, each.error_message, NOT_MADE)
            removed.append(Entry(*each[2:]))
    return removed


def set_password(cluster: Cluster, user: str, mechanism: str, password: str, salt: bytes) -> Operation[None]:
    """Set a user's password by one of SCRAM's mechanisms; the salt is random bytes."""
    known = MECHANISMS[mechanism]
    salted = salted_password(known, password, salt, ITERATIONS)
    return _alter_users(cluster, [], [ScramCredentialUpsertion(user, known.code, ITERATIONS, salt, salted)])


def delete_user(cluster: Cluster, user: str, mechanism: str) -> Operation[None]:
    """Remove a user's password by one of SCRAM's mechanisms."""
    return _alter_users(cluster, [ScramCredentialDeletion(user, MECHANISMS[mechanism].code)], [])


@retried
def list_users(_: Cluster) -> Operation[dict[str, list[str]]]:
    """The users with passwords, and the mechanisms of each."""
    response: DescribeUserScramCredentialsResponse = yield ToAny(DescribeUserScramCredentialsRequest(None))
    check(response.error_code, "", response.error_message)
    return {
        result.user: [
            MECHANISMS_BY_CODE[info.mechanism].name
            for info in result.credential_infos
            if info.mechanism in MECHANISMS_BY_CODE
        ]
        for result in response.results
        if result.error_code != ErrorCode.RESOURCE_NOT_FOUND
    }


@retried
def _alter_users(
    _: Cluster, deletions: Sequence[ScramCredentialDeletion], upsertions: Sequence[ScramCredentialUpsertion]
) -> Operation[None]:
    request = AlterUserScramCredentialsRequest(deletions, upsertions)
    response: AlterUserScramCredentialsResponse = yield ToAny(request)
    for result in response.results:
        check(result.error_code, result.user, result.error_message, NOT_MADE)
