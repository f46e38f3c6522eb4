"""Who may do what: access rules and users, the part of `Admin` that security needs."""

from __future__ import annotations

import secrets
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Concatenate, Literal, ParamSpec, TypeVar, get_args

from penstock.client.application.errors import PenstockError
from penstock.client.closing import Closing
from penstock.client.operations import access
from penstock.client.operations.access import Entry, EntryFilter
from penstock.client.operations.routing import Cluster
from penstock.client.operations.routing import Operation as ClusterOperation
from penstock.core.security.scram import MECHANISMS
from penstock.model.access import CLUSTER_NAME, PatternType, Permission, ResourceType
from penstock.model.access import Operation as OperationCode

P = ParamSpec("P")
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
SALT_BYTES = 16
KINDS: dict[Kind, ResourceType] = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
    "cluster": ResourceType.CLUSTER,
}
KIND_NAMES: dict[int, Kind] = {code: kind for kind, code in KINDS.items()}
# Operations that rules can be about; the codes of others are those of filters and of tokens.
OPERATION_NAMES: dict[int, Operation] = {OperationCode[name.upper()]: name for name in get_args(Operation)}


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

    @abstractmethod
    def _run(
        self,
        what: str,
        operation: Callable[Concatenate[Cluster, P], ClusterOperation[T]],
        /,
        *arguments: P.args,
        **named: P.kwargs,
    ) -> T: ...

    def allow(self, *rules: AccessRule) -> None:
        """Add access rules; those that forbid something (`is_denied`) too.

        >>> with Admin() as admin:
        ...     admin.allow(AccessRule("User:ship", "read", "topic", "orders"))
        """
        self._run("access rules cannot be added", access.add_entries, [_entry(rule) for rule in rules])

    def access_rules(self, principal: str | None = None) -> list[AccessRule]:
        """The access rules that there are, or those of a principal.

        >>> with Admin() as admin:
        ...     admin.allow(AccessRule("User:pack", "write", "topic", "packed.", is_prefix=True))
        ...     admin.access_rules("User:pack")[0].name
        'packed.'
        """
        found = self._run("access rules cannot be read", access.list_entries, EntryFilter(principal=principal))
        return [
            AccessRule(
                each.principal,
                OPERATION_NAMES[each.operation],
                KIND_NAMES[each.resource_type],
                each.resource_name,
                each.pattern_type == PatternType.PREFIXED,
                each.permission == Permission.DENY,
                each.host,
            )
            for each in found
            if each.resource_type in KIND_NAMES and each.operation in OPERATION_NAMES
        ]

    def revoke(self, *rules: AccessRule) -> int:
        """Remove access rules; returns how many there were.

        >>> with Admin() as admin:
        ...     rule = AccessRule("User:left", "all", "cluster")
        ...     admin.allow(rule)
        ...     admin.revoke(rule)
        1
        """
        entries = [_entry(rule) for rule in rules]
        return len(self._run("access rules cannot be removed", access.remove_entries, entries))

    def set_password(self, user: str, password: str, mechanism: str = "SCRAM-SHA-512") -> None:
        """Let a user sign in with a password, who is created if there is none of that name.

        >>> with Admin() as admin:
        ...     admin.set_password("ship", "secret")
        """
        what = f"the password of {user} cannot be set"
        salt = secrets.token_bytes(SALT_BYTES)
        self._run(what, access.set_password, user, _checked(mechanism, what), password, salt)

    def delete_user(self, user: str, mechanism: str = "SCRAM-SHA-512") -> None:
        """Let a user sign in no more.

        >>> with Admin() as admin:
        ...     admin.set_password("gone", "secret")
        ...     admin.delete_user("gone")
        """
        what = f"the user {user} cannot be deleted"
        self._run(what, access.delete_user, user, _checked(mechanism, what))

    def list_users(self) -> dict[str, list[str]]:
        """The users with passwords, and the mechanisms that they sign in with.

        >>> with Admin() as admin:
        ...     admin.set_password("pack", "secret", "SCRAM-SHA-256")
        ...     admin.list_users()["pack"]
        ['SCRAM-SHA-256']
        """
        return self._run("users cannot be listed", access.list_users)


def _entry(rule: AccessRule) -> Entry:
    return Entry(
        KINDS[rule.kind],
        rule.name,
        PatternType.PREFIXED if rule.is_prefix else PatternType.LITERAL,
        rule.principal,
        rule.host,
        OperationCode[rule.operation.upper()],
        Permission.DENY if rule.is_denied else Permission.ALLOW,
    )


def _checked(mechanism: str, what: str) -> str:
    if mechanism not in MECHANISMS:
        raise PenstockError(what, f"there is no mechanism {mechanism}", f"use {' or '.join(MECHANISMS)}")
    return mechanism
