"""Who may do what: access rules and users, the part of `Admin` that security needs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its __init__ has no __all__
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from penstock.client.closing import Closing
from penstock.model.access import CLUSTER_NAME

T = TypeVar("T")
Kind = Literal["topic", "group", "transactional_id", "cluster"]
Operation = Literal[
    "all",
    "read",
    "write",
    "create",
    "delete",
    "alter",
    "describe",
    "cluster_action",
    "describe_configs",
    "alter_configs",
    "idempotent_write",
]
ITERATIONS = 8192
KINDS = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
    # librdkafka's name for the cluster.
    "cluster": ResourceType.BROKER,
}


@dataclass(frozen=True, slots=True)
class AccessRule:
    """What a principal may do, or must not, with what has a name, or a name that begins so (`is_prefix`).

    >>> AccessRule("User:ship", "read", "topic", "orders")
    AccessRule(principal='User:ship', operation='read', kind='topic', name='orders', is_prefix=False, is_denied=False)
    """

    principal: str
    operation: Operation
    kind: Kind
    name: str = CLUSTER_NAME
    is_prefix: bool = False
    is_denied: bool = False
    host: str = "*"

    def __repr__(self) -> str:
        shown = ("principal", "operation", "kind", "name", "is_prefix", "is_denied")
        return f"AccessRule({', '.join(f'{each}={getattr(self, each)!r}' for each in shown)})"


class AccessAdmin(Closing):
    """The rules and users of a cluster. `Admin` has it all."""

    _raw: AdminClient

    @abstractmethod
    def _all(self, what: str, ask: Callable[..., Mapping[Any, Future[T]]], *wanted: Any) -> dict[Any, T]: ...

    @abstractmethod
    def _result(self, what: str, ask: Callable[..., Future[T]], *wanted: Any) -> T: ...

    def allow(self, *rules: AccessRule) -> None:
        """Add access rules; those that forbid something (`is_denied`) too.

        >>> with Admin() as admin:
        ...     admin.allow(AccessRule("User:ship", "read", "topic", "orders"))
        """
        wanted = [_binding(rule) for rule in rules]
        self._all("access rules cannot be added", self._raw.create_acls, wanted)

    def access_rules(self, principal: str | None = None) -> list[AccessRule]:
        """The access rules that there are, or those of a principal.

        >>> with Admin() as admin:
        ...     admin.allow(AccessRule("User:pack", "write", "topic", "packed.", is_prefix=True))
        ...     admin.access_rules("User:pack")[0].name
        'packed.'
        """
        any_rule = AclBindingFilter(
            ResourceType.ANY,
            None,  # type: ignore[arg-type]  # which stands for any
            ResourcePatternType.ANY,
            principal,  # type: ignore[arg-type]
            None,  # type: ignore[arg-type]
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        found = self._result("access rules cannot be read", self._raw.describe_acls, any_rule)
        names = {kind: name for name, kind in KINDS.items()}
        return [
            AccessRule(
                each.principal,
                each.operation.name.lower(),
                names[each.restype],  # type: ignore[arg-type]
                each.name,
                each.resource_pattern_type == ResourcePatternType.PREFIXED,
                each.permission_type == AclPermissionType.DENY,
                each.host,
            )
            for each in found
            if each.restype in names
        ]

    def revoke(self, *rules: AccessRule) -> int:
        """Remove access rules; returns how many there were.

        >>> with Admin() as admin:
        ...     rule = AccessRule("User:left", "all", "cluster")
        ...     admin.allow(rule)
        ...     admin.revoke(rule)
        1
        """
        wanted = [_binding(rule, AclBindingFilter) for rule in rules]
        found = self._all("access rules cannot be removed", self._raw.delete_acls, wanted)
        return sum(len(each) for each in found.values())

    def set_password(self, user: str, password: str, mechanism: str = "SCRAM-SHA-512") -> None:
        """Let a user sign in with a password, who is created if there is none of that name.

        >>> with Admin() as admin:
        ...     admin.set_password("ship", "secret")
        """
        credential = ScramCredentialInfo(_mechanism(mechanism), ITERATIONS)
        wanted: list[Any] = [UserScramCredentialUpsertion(user, credential, password.encode())]
        self._all(f"the password of {user} cannot be set", self._raw.alter_user_scram_credentials, wanted)

    def delete_user(self, user: str, mechanism: str = "SCRAM-SHA-512") -> None:
        """Let a user sign in no more.

        >>> with Admin() as admin:
        ...     admin.set_password("gone", "secret")
        ...     admin.delete_user("gone")
        """
        wanted: list[Any] = [UserScramCredentialDeletion(user, _mechanism(mechanism))]
        self._all(f"the user {user} cannot be deleted", self._raw.alter_user_scram_credentials, wanted)

    def list_users(self) -> dict[str, list[str]]:
        """The users with passwords, and the mechanisms that they sign in with.

        >>> with Admin() as admin:
        ...     admin.set_password("pack", "secret", "SCRAM-SHA-256")
        ...     admin.list_users()["pack"]
        ['SCRAM-SHA-256']
        """
        ask: Any = self._raw.describe_user_scram_credentials
        found: dict[str, Any] = self._result("users cannot be listed", ask)
        return {
            user: [info.mechanism.name.replace("_", "-") for info in each.scram_credential_infos]
            for user, each in found.items()
        }


def _binding(rule: AccessRule, kind: Any = AclBinding) -> Any:
    return kind(
        KINDS[rule.kind],
        rule.name,
        ResourcePatternType.PREFIXED if rule.is_prefix else ResourcePatternType.LITERAL,
        rule.principal,
        rule.host,
        AclOperation[rule.operation.upper()],
        AclPermissionType.DENY if rule.is_denied else AclPermissionType.ALLOW,
    )


def _mechanism(name: str) -> Any:
    return ScramMechanism[name.replace("-", "_")]
