"""The rights that a test gives and takes, and on what."""

from __future__ import annotations

from penstock.model.access import Operation, PatternType, Permission, ResourceType

# Rights are given on everything that begins so; no one but the super user has any on the other one.
SEEN, HIDDEN = "probed", "hidden"

RIGHTS: list[tuple[ResourceType, Operation]] = [
    *(
        (kind, operation)
        for kind, operations in (
            (ResourceType.TOPIC, "READ WRITE CREATE DELETE ALTER DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS"),
            (ResourceType.GROUP, "READ DELETE DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS"),
            (
                ResourceType.CLUSTER,
                "CREATE ALTER DESCRIBE CLUSTER_ACTION DESCRIBE_CONFIGS ALTER_CONFIGS IDEMPOTENT_WRITE",
            ),
            (ResourceType.TRANSACTIONAL_ID, "DESCRIBE WRITE"),
            (ResourceType.USER, "CREATE_TOKENS"),
        )
        for operation in map(Operation.__getitem__, operations.split())
    )
]

RESOURCES = {
    ResourceType.TOPIC: (SEEN, PatternType.PREFIXED),
    ResourceType.GROUP: (SEEN, PatternType.PREFIXED),
    ResourceType.CLUSTER: ("kafka-cluster", PatternType.LITERAL),
    ResourceType.TRANSACTIONAL_ID: (SEEN, PatternType.PREFIXED),
    ResourceType.USER: ("User:bob", PatternType.LITERAL),
}

Entry = tuple[ResourceType, Operation, Permission]


def cases() -> dict[str, list[Entry]]:
    """What a user may do: nothing, everything, one thing, all but one, and all with one denied."""
    everything = [(kind, operation, Permission.ALLOW) for kind, operation in RIGHTS]
    found: dict[str, list[Entry]] = {"nothing": [], "everything": everything}
    for kind, operation in RIGHTS:
        right = f"{operation.name} on {kind.name}"
        found[f"only {right}"] = [(kind, operation, Permission.ALLOW)]
        found[f"all but {right}"] = [entry for entry in everything if entry[:2] != (kind, operation)]
        found[f"all, and {right} denied"] = [*everything, (kind, operation, Permission.DENY)]
    return found
