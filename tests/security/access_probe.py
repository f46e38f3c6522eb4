"""What a probe of rights is: one request, sent as a user whose rights a test chooses, and what its response reveals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from access_answers import digest
from access_rights import SEEN

from penstock.api.table import BROKER_VERSIONS, CONTROLLER_VERSIONS
from support.wire_client import KEYS

VICTIM, VICTIM_BY_ID, CREATED = f"{SEEN}-victim", f"{SEEN}-victim-by-id", f"{SEEN}-created"
FORGOTTEN, ABSENT = f"{SEEN}-forgotten", f"{SEEN}-absent"
OTHER_CLUSTER = "c29tZS1vdGhlci1jbHVzdA"
NOBODY = 4242


@dataclass
class World:
    """What a probe must know of the cluster that it is for."""

    topic_ids: dict[str, bytes] = field(default_factory=dict)
    member_id: str = "probing-member"


@dataclass(frozen=True)
class Probe:
    """One request, or how it is made for a cluster. Without a version it is asked in our newest one."""

    name: str
    request: Any
    version: int | None = None
    told: Callable[[Any], Any] = digest
    at_controller: bool = False

    def make(self, world: World) -> Any:
        """The request as it is sent."""
        return self.request(world) if callable(self.request) else self.request

    def version_of(self, request: Any) -> int:
        """The version that it is sent in."""
        if self.version is not None:
            return self.version
        versions = CONTROLLER_VERSIONS if self.at_controller else BROKER_VERSIONS
        return versions[KEYS[type(request).__name__]][1]
