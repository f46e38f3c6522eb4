"""The requests that make, change and remove a tenant, whose parts are Kafka's own and known to Kafka's tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.core.security.scram import MECHANISMS, salted_password
from penstock.model.access import USER_PREFIX, WILDCARD, Operation, PatternType, Permission, ResourceType
from penstock.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    EntityData,
    OpData,
)
from penstock.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from penstock.wire.messages.create_acls import AclCreation, CreateAclsRequest
from penstock.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest

OWNED = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
ITERATIONS = 8192
SALT_BYTES = 24


def prefix_of(name: str) -> str:
    """What every name of a tenant begins with."""
    return f"{name}."


def grant(name: str) -> CreateAclsRequest:
    """Everything on the topics, groups and transactional ids of a tenant."""
    return CreateAclsRequest(
        [
            AclCreation(
                kind,
                prefix_of(name),
                PatternType.PREFIXED,
                USER_PREFIX + name,
                WILDCARD,
                Operation.ALL,
                Permission.ALLOW,
            )
            for kind in OWNED
        ]
    )


def revoke(name: str) -> DeleteAclsRequest:
    """Every entry of the tenant's user, including those that administrators added."""
    everything = DeleteAclsFilter(
        ResourceType.ANY, None, PatternType.ANY, USER_PREFIX + name, None, Operation.ANY, Permission.ANY
    )
    return DeleteAclsRequest([everything])


def sign_in_with(name: str, password: str, salts: Sequence[bytes]) -> AlterUserScramCredentialsRequest:
    """The password, by every mechanism of SCRAM; a random salt for each."""
    return AlterUserScramCredentialsRequest(
        [],
        [
            ScramCredentialUpsertion(
                name, mechanism.code, ITERATIONS, salt, salted_password(mechanism, password, salt, ITERATIONS)
            )
            for mechanism, salt in zip(MECHANISMS.values(), salts, strict=True)
        ],
    )


def forget_password(name: str, mechanisms: Sequence[int]) -> AlterUserScramCredentialsRequest:
    """Remove the credentials of these mechanisms."""
    return AlterUserScramCredentialsRequest([ScramCredentialDeletion(name, code) for code in mechanisms], [])


def limit(name: str, values: Mapping[str, float | None]) -> AlterClientQuotasRequest:
    """Set limits and rates of a tenant; None removes one."""
    changes = [OpData(key, value or 0.0, value is None) for key, value in values.items()]
    return AlterClientQuotasRequest([AlterClientQuotasRequestEntryData([EntityData("user", name)], changes)])
