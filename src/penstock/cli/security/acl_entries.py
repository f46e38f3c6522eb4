"""Entries of access lists made from what was requested, filters that mean them, and both as people read them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from penstock.cli.failures import CommandFailure
from penstock.model.access import (
    CLUSTER_NAME,
    OPERATIONS,
    WILDCARD,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from penstock.wire.messages.create_acls import AclCreation
from penstock.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

# What the table of authorized operations (KIP-430) leaves out.
MORE_OPERATIONS: dict[ResourceType, tuple[Operation, ...]] = {
    ResourceType.TRANSACTIONAL_ID: (Operation.DESCRIBE, Operation.WRITE, Operation.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}
PRODUCER_ON_TOPIC = (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE)
PRODUCER_ON_TRANSACTIONAL_ID = (Operation.WRITE, Operation.DESCRIBE)
CONSUMER_ON_TOPIC = (Operation.READ, Operation.DESCRIBE)
CONSUMER_ON_GROUP = (Operation.READ,)


@dataclass(frozen=True, slots=True)
class Resources:
    """What a command names, by kind."""

    topics: Sequence[str] = ()
    groups: Sequence[str] = ()
    transactional_ids: Sequence[str] = ()
    tokens: Sequence[str] = ()
    users: Sequence[str] = ()
    cluster: bool = False
    prefixed: bool = False

    def __iter__(self) -> Iterator[tuple[ResourceType, str]]:
        for kind, names in (
            (ResourceType.TOPIC, self.topics),
            (ResourceType.GROUP, self.groups),
            (ResourceType.TRANSACTIONAL_ID, self.transactional_ids),
            (ResourceType.DELEGATION_TOKEN, self.tokens),
            (ResourceType.USER, self.users),
            (ResourceType.CLUSTER, [CLUSTER_NAME] if self.cluster else []),
        ):
            for name in names:
                yield kind, name

    def pattern(self, kind: ResourceType, name: str) -> PatternType:
        """How a name is meant: there is one cluster, and `*` is every name, so that neither is a prefix."""
        if self.prefixed and kind != ResourceType.CLUSTER and name != WILDCARD:
            return PatternType.PREFIXED
        return PatternType.LITERAL


@dataclass(frozen=True, slots=True)
class Grant:
    """To whom, from where, and whether it is allowed or denied."""

    principals: Sequence[str]
    hosts: Sequence[str] = (WILDCARD,)
    permission: Permission = Permission.ALLOW

    def entries(
        self, resources: Resources, kind: ResourceType, names: Iterable[str], operations: Iterable[Operation]
    ) -> list[AclCreation]:
        """One entry for each name, operation, principal and host."""
        return [
            AclCreation(kind, name, resources.pattern(kind, name), principal, host, operation, self.permission)
            for name in names
            for operation in operations
            for principal in self.principals
            for host in self.hosts
        ]


def parse_operations(texts: Iterable[str]) -> list[Operation]:
    """Operations by name, separated by commas: `READ,WRITE`; Kafka's tools' spelling `DescribeConfigs` is fine too."""
    found: dict[Operation, None] = {}
    known = {operation.name.replace("_", ""): operation for operation in Operation if operation > Operation.ANY}
    for text in texts:
        for word in filter(None, (part.strip() for part in text.split(","))):
            operation = known.get(word.upper().replace("_", "").replace("-", ""))
            if operation is None:
                raise CommandFailure(
                    f"{word!r} is not an operation",
                    "access lists know " + ", ".join(each.name for each in known.values()),
                )
            found[operation] = None
    return list(found)


def parse_principal(text: str) -> tuple[str, str]:
    """The type and the name of a principal; raises CommandFailure for what is not a principal."""
    kind, separator, name = text.partition(":")
    if not kind or not separator or not name:
        raise CommandFailure(
            f"{text!r} is not a principal", "it needs a type and a name", f"write User:{text or 'alice'}"
        )
    return kind, name


def check_principals(principals: Iterable[str]) -> None:
    """Raises CommandFailure for what is not a principal."""
    for principal in principals:
        parse_principal(principal)


def entries_for(grant: Grant, resources: Resources, operations: Sequence[Operation]) -> list[AclCreation]:
    """The entries of these operations on these resources; raises CommandFailure for one that would mean nothing."""
    found = []
    for kind, name in resources:
        allowed = (*OPERATIONS.get(kind, MORE_OPERATIONS.get(kind, ())), Operation.ALL)
        for operation in operations:
            if operation not in allowed:
                raise CommandFailure(
                    f"{operation.name} means nothing on {_kind(kind)}",
                    "there one can " + ", ".join(each.name for each in allowed),
                )
        found += grant.entries(resources, kind, [name], operations)
    return found


def producer_entries(grant: Grant, resources: Resources, *, idempotent: bool) -> list[AclCreation]:
    """What a producer needs, as kafka-acls.sh has it."""
    if not resources.topics:
        raise CommandFailure("a producer writes to topics", "--topic names none", "add --topic NAME")
    found = grant.entries(resources, ResourceType.TOPIC, resources.topics, PRODUCER_ON_TOPIC)
    ids, on_ids = resources.transactional_ids, PRODUCER_ON_TRANSACTIONAL_ID
    found += grant.entries(resources, ResourceType.TRANSACTIONAL_ID, ids, on_ids)
    if idempotent:
        found += grant.entries(resources, ResourceType.CLUSTER, [CLUSTER_NAME], [Operation.IDEMPOTENT_WRITE])
    return found


def consumer_entries(grant: Grant, resources: Resources) -> list[AclCreation]:
    """What a consumer needs, as kafka-acls.sh has it."""
    if not resources.topics or not resources.groups:
        raise CommandFailure(
            "a consumer reads topics as a member of a group",
            "--topic and --group must both be there",
            "add --topic NAME --group NAME; --group '*' for any group",
        )
    found = grant.entries(resources, ResourceType.TOPIC, resources.topics, CONSUMER_ON_TOPIC)
    return found + grant.entries(resources, ResourceType.GROUP, resources.groups, CONSUMER_ON_GROUP)


def filters_for(
    resources: Resources,
    pattern: PatternType | None,
    principals: Sequence[str],
    hosts: Sequence[str],
    operations: Sequence[Operation],
    permission: Permission,
) -> list[DescribeAclsRequest]:
    """Filters for all that fits; `pattern` None goes by the names. What is not given leaves a filter open."""
    named: list[tuple[ResourceType, str | None]] = [*resources]
    anybody: list[str | None] = [None]
    return [
        DescribeAclsRequest(
            kind,
            name,
            (resources.pattern(kind, name) if name is not None else PatternType.ANY) if pattern is None else pattern,
            principal,
            host,
            operation,
            permission,
        )
        for kind, name in (named or [(ResourceType.ANY, None)])
        for principal in (principals or anybody)
        for host in (hosts or anybody)
        for operation in (operations or [Operation.ANY])
    ]


def rows_of(response: DescribeAclsResponse) -> list[AclCreation]:
    """The entries of an answer."""
    return [
        AclCreation(
            resource.resource_type,
            resource.resource_name,
            resource.pattern_type,
            entry.principal,
            entry.host,
            entry.operation,
            entry.permission_type,
        )
        for resource in response.resources
        for entry in resource.acls
    ]


def described(entry: AclCreation) -> dict[str, str]:
    """An entry by Kafka's names."""
    return {
        "principal": entry.principal,
        "permission": _name(Permission, entry.permission_type),
        "operation": _name(Operation, entry.operation),
        "resource_type": _name(ResourceType, entry.resource_type),
        "resource": entry.resource_name,
        "pattern": _name(PatternType, entry.resource_pattern_type),
        "host": entry.host,
    }


def sentence(entry: AclCreation) -> str:
    """An entry as people say it."""
    facts = described(entry)
    verb = "may" if entry.permission_type == Permission.ALLOW else "must not"
    kind = ResourceType(entry.resource_type)
    what = _kind(kind) if kind == ResourceType.CLUSTER else f"{_kind(kind)} {entry.resource_name}"
    if entry.resource_pattern_type == PatternType.PREFIXED:
        what += "…"
    where = "" if entry.host == WILDCARD else f" from {entry.host}"
    return f"{entry.principal} {verb} {facts['operation']} {what}{where}"


def _name(kind: type[Permission | Operation | ResourceType | PatternType], code: int) -> str:
    try:
        return kind(code).name
    except ValueError:
        return str(code)


def _kind(kind: ResourceType) -> str:
    return "the cluster" if kind == ResourceType.CLUSTER else kind.name.lower().replace("_", " ")
