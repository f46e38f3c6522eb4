"""What the registry's operations use, whichever port they are served on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from penstock.gateway.registry.rights import SubjectRights
from penstock.gateway.registry.service import Registry


class RegistryServices(Protocol):
    """The registry, and one caller's rights in it."""

    @property
    def registry(self) -> Registry:
        """The registry, which all callers share."""
        ...

    @property
    def rights(self) -> SubjectRights:
        """The caller's rights on subjects."""
        ...

    @property
    def cluster_id(self) -> str:
        """The id of the cluster that stores the schemas."""
        ...


@dataclass(frozen=True, slots=True)
class CallerRegistry:
    """The services of one caller on the registry's port."""

    registry: Registry
    rights: SubjectRights
    cluster_id: str
