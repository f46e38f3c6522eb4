"""What is counted of share groups on this broker."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.core.share.acknowledgements import AckType


@dataclass(slots=True)
class ShareCounters:
    """Plain numbers since the start."""

    acknowledged: dict[AckType, int] = field(default_factory=lambda: dict.fromkeys(AckType, 0))
    loads: int = 0
    load_ms: int = 0
    letters: int = 0
    letter_requests: int = 0
    letter_failures: int = 0
    # Delayed records that became due.
    admitted: int = 0
