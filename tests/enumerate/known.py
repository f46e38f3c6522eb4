"""Anomalies that are known and not mended yet.

* `loop-stall`: the metadata log makes epochs, votes, truncations and a leader's snapshot durable before it handles the
  next message, and the event loop waits for that. The request handlers of votes and fetches, and the follower, need the
  outcome of a step at once; and while a truncation or a snapshot is half done, no other step may see the log. It takes
  a driver that queues what arrives meanwhile. None of this happens while a quorum keeps its leader.
"""

from __future__ import annotations

KNOWN: dict[tuple[str, str], frozenset[str]] = {
    ("raft-vote", "stall"): frozenset(("loop-stall",)),
    ("raft-reelect", "stall"): frozenset(("loop-stall",)),
    ("raft-install", "stall"): frozenset(("loop-stall",)),
    ("raft-truncate", "stall"): frozenset(("loop-stall",)),
}
