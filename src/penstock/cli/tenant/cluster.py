"""Tenants as a cluster has them: read, made, changed and removed step by step."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.cli.failures import CommandFailure
from penstock.cli.wire_client import WireClient, check_error
from penstock.core.security import scram, tenant_setup
from penstock.model.errors import ErrorCode
from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from penstock.wire.messages.describe_tenants import DescribeTenantsRequest
from penstock.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName

if TYPE_CHECKING:
    from penstock.wire.messages.describe_tenants import DescribedTenant

DELETE_TIMEOUT_MS = 30_000
TOPICS_PER_REQUEST = 500
EXACT = 0


def find_tenants(client: WireClient, names: list[str] | None = None) -> list[DescribedTenant]:
    """All tenants, or those of these names that exist."""
    response = client.ask(DescribeTenantsRequest(names))
    check_error(response.error_code, response.error_message, "tenants cannot be listed")
    return list(response.tenants)


def find_tenant(client: WireClient, name: str) -> DescribedTenant:
    """One tenant; raises CommandFailure if there is none of this name."""
    found = find_tenants(client, [name])
    if not found:
        raise CommandFailure(
            f"there is no tenant {name}",
            "no user of this name has a limit of topics, partitions or storage",
            "`penstock tenant list` shows those that there are",
        )
    return found[0]


def mechanisms_of(client: WireClient, name: str) -> list[int]:
    """The SCRAM mechanisms that a user has a password for; empty if there is no such user."""
    response = client.ask(DescribeUserScramCredentialsRequest([UserName(name)]))
    check_error(response.error_code, response.error_message, "users cannot be listed")
    return [
        info.mechanism
        for result in response.results
        for info in result.credential_infos
        if info.mechanism in scram.MECHANISMS_BY_CODE
    ]


def topics_of(client: WireClient, name: str) -> list[str]:
    """The topics of a tenant, in order."""
    return sorted(topic for topic in client.topics() if topic.startswith(tenant_setup.prefix_of(name)))


def create(client: WireClient, name: str, password: str, values: Mapping[str, float | None]) -> None:
    """Make a tenant. Its limits come before its password, so that it is never without them."""
    given = {key: value for key, value in values.items() if value is not None}
    set_limits(client, name, given, f"tenant {name} cannot be created")
    try:
        for result in client.ask(tenant_setup.grant(name)).results:
            check_error(result.error_code, result.error_message, f"tenant {name} cannot be given rights")
        salts = [secrets.token_bytes(tenant_setup.SALT_BYTES) for _ in scram.MECHANISMS]
        for answer in client.ask(tenant_setup.sign_in_with(name, password, salts)).results:
            check_error(answer.error_code, answer.error_message, f"tenant {name} cannot be given a password")
    except CommandFailure:
        # What was made before must not pass for a tenant.
        set_limits(client, name, dict.fromkeys(given), f"tenant {name} is incomplete")
        raise


def set_limits(client: WireClient, name: str, values: Mapping[str, float | None], what: str) -> None:
    """Set limits and rates; None removes one."""
    for entry in client.ask(tenant_setup.limit(name, values)).entries:
        check_error(entry.error_code, entry.error_message, what)


def delete_topics(client: WireClient, topics: list[str]) -> None:
    """Delete topics, many at a time."""
    for first in range(0, len(topics), TOPICS_PER_REQUEST):
        some = topics[first : first + TOPICS_PER_REQUEST]
        states = [DeleteTopicState(topic) for topic in some]
        response = client.ask(DeleteTopicsRequest(states, some, DELETE_TIMEOUT_MS))
        for row in response.responses:
            check_error(row.error_code, row.error_message, f"topic {row.name} cannot be deleted")


def forbid(client: WireClient, name: str) -> int:
    """Take a tenant's rights and password; returns how many entries of access lists it had."""
    response = client.ask(tenant_setup.revoke(name))
    (result,) = response.filter_results
    if result.error_code != ErrorCode.SECURITY_DISABLED:
        check_error(result.error_code, result.error_message, f"the rights of {name} cannot be taken away")
    mechanisms = mechanisms_of(client, name)
    if mechanisms:
        for answer in client.ask(tenant_setup.forget_password(name, mechanisms)).results:
            check_error(answer.error_code, answer.error_message, f"user {name} cannot be deleted")
    return len(result.matching_acls)


def forget_limits(client: WireClient, name: str) -> None:
    """Remove every quota of a tenant's user."""
    response = client.ask(DescribeClientQuotasRequest([ComponentData("user", EXACT, name)], strict=True))
    check_error(response.error_code, response.error_message, "quotas cannot be listed")
    keys = [value.key for entry in response.entries or () for value in entry.values]
    if keys:
        set_limits(client, name, dict.fromkeys(keys), f"the limits of {name} cannot be removed")
