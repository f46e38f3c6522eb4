"""The access lists of the cluster, kept up to date as they are committed, and the checks of all handlers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from penstock.core.metadata.image import Image
from penstock.core.security.authorizer import AccessEntry, Authorizer
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
    """The requester: a connection's peer, or the client of a forwarded request."""

    principal: str
    host: str


Denied = Callable[[Asker, Operation, ResourceType, str], None]


class AccessControl:
    """Decides on requests. Without an authorizer (`None`) every client may do everything."""

    def __init__(self, authorizer: Authorizer | None = None) -> None:
        self._authorizer = authorizer
        self._on_denied: list[Denied] = []

    @property
    def is_on(self) -> bool:
        """Whether there are access lists at all."""
        return self._authorizer is not None

    def on_denied(self, listener: Denied) -> None:
        """Have `listener` called with every denial worth reporting."""
        self._on_denied.append(listener)

    def load(self, image: Image) -> None:
        """Start with the entries of an image."""
        if self._authorizer is not None:
            self._authorizer.replace_all((entry.id, entry_of(entry)) for entry in image.security.entries.values())

    def committed(self, records: Sequence[object]) -> None:
        """Apply the metadata log: a revoked right is gone with the next request."""
        if self._authorizer is None:
            return
        for record in records:
            if isinstance(record, AccessControlEntryRecord):
                self._authorizer.add(record.id, entry_of(record))
            elif isinstance(record, RemoveAccessControlEntryRecord):
                self._authorizer.remove(record.id)

    def allows(self, asker: Asker, operation: Operation, kind: ResourceType, name: str, *, quiet: bool = False) -> bool:
        """Whether the requester may do this. `quiet` is for filtering lists: denials are not reported."""
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

    def widest_prefix(self, asker: Asker, operation: Operation, kind: ResourceType, name: str) -> str | None:
        """The beginning of all names on which the requester may do this by the same right as on this one.

        "" for all names, None where no other name counts: the right is for this one only, or that of a super user.
        """
        if self._authorizer is None:
            return ""
        return self._authorizer.widest_prefix(asker.principal, asker.host, operation, kind, name)

    def operations_on_cluster(self, asker: Asker) -> int:
        """The operations on the cluster that the requester may do; none without DESCRIBE."""
        if not self.allows_on_cluster(asker, Operation.DESCRIBE):
            return 0
        return self.operations(asker, ResourceType.CLUSTER, CLUSTER_NAME)

    def allows_some(self, asker: Asker, operation: Operation, kind: ResourceType) -> bool:
        """Whether there is any resource of a kind on which the requester may do this."""
        authorizer = self._authorizer
        return authorizer is None or authorizer.allows_some(asker.principal, asker.host, operation, kind)

    def allowed(self, asker: Asker, operation: Operation, kind: ResourceType, names: Iterable[str]) -> list[str]:
        """The names on which the requester may do this; the others are left out silently."""
        if self._authorizer is None:
            return list(names)
        return [name for name in names if self.allows(asker, operation, kind, name, quiet=True)]

    def operations(self, asker: Asker, kind: ResourceType, name: str) -> int:
        """The operations that the requester may do on a resource, as Kafka's bit field (KIP-430)."""
        if self._authorizer is None:
            return _EVERYTHING[kind]
        return sum(
            1 << operation for operation in OPERATIONS[kind] if self.allows(asker, operation, kind, name, quiet=True)
        )


# Allows everything: for clusters without an authorizer, and for the node's own requests.
OPEN = AccessControl()


def entry_of(record: AccessControlEntryRecord) -> AccessEntry:
    """An entry in the authorizer's form."""
    return AccessEntry(
        ResourceType(record.resource_type),
        record.resource_name,
        PatternType(record.pattern_type),
        record.principal,
        record.host,
        Operation(record.operation),
        Permission(record.permission_type),
    )
