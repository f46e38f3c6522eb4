"""The access lists of the cluster, followed as they are committed, and the question that every handler asks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from penstock.core.metadata.image import Image
from penstock.core.security.authorizer import Authorizer, Entry
from penstock.model.access import (
    CLUSTER_NAME,
    OPERATIONS,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from penstock.wire.messages.metadata_records import AccessControlEntryRecord, RemoveAccessControlEntryRecord

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

# All operations on a kind of resource, as a bit field.
_EVERYTHING = {kind: sum(1 << operation for operation in operations) for kind, operations in OPERATIONS.items()}

logger = logging.getLogger("penstock.security")


class Asker(Protocol):
    """Who wants something: a connection's peer, or the client behind a forwarded request."""

    principal: str
    host: str


Denied = Callable[[Asker, Operation, ResourceType, str], None]


class AccessControl:
    """Decides for whoever asks. Without an authorizer (`None`) everybody may do everything."""

    def __init__(self, authorizer: Authorizer | None = None) -> None:
        self._authorizer = authorizer
        self._on_denied: list[Denied] = []

    @property
    def is_on(self) -> bool:
        """Whether there are access lists at all."""
        return self._authorizer is not None

    def on_denied(self, listener: Denied) -> None:
        """Have `listener` called with every denial that somebody should hear of."""
        self._on_denied.append(listener)

    def load(self, image: Image) -> None:
        """Begin with what an image has."""
        if self._authorizer is not None:
            self._authorizer.replace_all((entry.id, entry_of(entry)) for entry in image.security.entries.values())

    def committed(self, records: Sequence[Any]) -> None:
        """Follow the metadata log: a right that is revoked is gone with the next request."""
        if self._authorizer is None:
            return
        for record in records:
            if isinstance(record, AccessControlEntryRecord):
                self._authorizer.add(record.id, entry_of(record))
            elif isinstance(record, RemoveAccessControlEntryRecord):
                self._authorizer.remove(record.id)

    def allows(self, asker: Asker, operation: Operation, kind: ResourceType, name: str, *, quiet: bool = False) -> bool:
        """Whether somebody may do something. `quiet` is for filtering lists: nobody asked for just this."""
        authorizer = self._authorizer
        if authorizer is None or authorizer.allows(asker.principal, asker.host, operation, kind, name):
            return True
        if not quiet:
            for listener in self._on_denied:
                listener(asker, operation, kind, name)
        return False

    def allows_on_cluster(self, asker: Asker, operation: Operation, *, quiet: bool = False) -> bool:
        """The same for the cluster as a whole."""
        return self.allows(asker, operation, ResourceType.CLUSTER, CLUSTER_NAME, quiet=quiet)

    def operations_on_cluster(self, asker: Asker) -> int:
        """What somebody may do with the cluster; nothing, unless that includes to describe it."""
        if not self.allows_on_cluster(asker, Operation.DESCRIBE):
            return 0
        return self.operations(asker, ResourceType.CLUSTER, CLUSTER_NAME)

    def allows_some(self, asker: Asker, operation: Operation, kind: ResourceType) -> bool:
        """Whether there is any resource of a kind with which somebody may do something."""
        authorizer = self._authorizer
        return authorizer is None or authorizer.allows_some(asker.principal, asker.host, operation, kind)

    def allowed(self, asker: Asker, operation: Operation, kind: ResourceType, names: Iterable[str]) -> list[str]:
        """Those of the names on which somebody may do something; the others are left out without a word."""
        if self._authorizer is None:
            return list(names)
        return [name for name in names if self.allows(asker, operation, kind, name, quiet=True)]

    def operations(self, asker: Asker, kind: ResourceType, name: str) -> int:
        """What somebody may do with a resource, as Kafka's bit field (KIP-430)."""
        if self._authorizer is None:
            return _EVERYTHING[kind]
        return sum(
            1 << operation for operation in OPERATIONS[kind] if self.allows(asker, operation, kind, name, quiet=True)
        )


# Where nobody decides, or where the node itself is the one who asks.
OPEN = AccessControl()


def entry_of(record: AccessControlEntryRecord) -> Entry:
    """An entry as the authorizer has it."""
    return Entry(
        ResourceType(record.resource_type),
        record.resource_name,
        PatternType(record.pattern_type),
        record.principal,
        record.host,
        Operation(record.operation),
        Permission(record.permission_type),
    )
