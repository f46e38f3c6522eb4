"""All scenarios, by name."""

from __future__ import annotations

from enumerate.cases import Enumeration
from enumerate.quorum import QUORUM_SCENARIOS, QuorumEnumeration
from enumerate.scenarios import SCENARIOS

NAMES = [*SCENARIOS, *QUORUM_SCENARIOS]


def enumeration_of(name: str) -> Enumeration:
    """Everything that can go wrong in a scenario."""
    return QuorumEnumeration(name) if name in QUORUM_SCENARIOS else Enumeration(name)
