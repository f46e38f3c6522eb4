"""Anomalies that are known and not mended yet.

Of partitions' logs:

* `swallowed`, `swallowed-read`: the boot marker cannot be read or written. It is removed then, so that the next start
  trusts less; the directory is not taken offline until something else fails there.
* `refused` under `full`: a new replica has no directory until there is room again and the next attempt creates it; a
  damaged one is not renamed until then.
* `loop-stall`: the event loop waits for a sync when a log is closed at a shutdown, when the clean-shutdown marker
  is written or removed, and when a directory is formatted.
* `epochs`: a tiered log forgets epochs before its new start is durable. After a crash the deleted records are back,
  without their epochs: those of what is in object storage alone cannot be read from batches here.
* `producers` in `move` and `replace-damaged`: killed while the first segment of a log that is filled from another one
  is written, and once more afterwards.

Of the metadata log:

* `dropped-pages`, and `refused` in `raft-snapshot`: after a failed sync and a restart without a power cut, a start
  trusts pages of the last segment that are not on disk. The node stopped at the failed sync.
* `loop-stall`: votes, truncations and snapshots of the leader are durable before the next message is handled.
* `stuck` in `raft-start`: a single voter resigns on a full disk, and the scenario waits for less than its timeout.
"""

from __future__ import annotations

KNOWN: dict[tuple[str, str], frozenset[str]] = {
    ("start-after-power-cut", "eio"): frozenset(("swallowed", "swallowed-read")),
    ("stop", "stall"): frozenset(("loop-stall",)),
    ("start-moved", "eio"): frozenset(("swallowed", "swallowed-read")),
    ("damaged", "eio"): frozenset(("swallowed", "swallowed-read")),
    ("delete-topic", "full"): frozenset(("refused",)),
    ("move", "kill"): frozenset(("producers",)),
    ("replace-damaged", "kill"): frozenset(("producers",)),
    ("replace-damaged", "full"): frozenset(("refused",)),
    ("start-truncating-late", "eio"): frozenset(("swallowed", "swallowed-read")),
    ("start-truncating-early", "eio"): frozenset(("swallowed", "swallowed-read")),
    ("create", "eio"): frozenset(("swallowed", "swallowed-read")),
    ("create", "full"): frozenset(("refused",)),
    ("create", "stall"): frozenset(("loop-stall",)),
    ("start-killed", "eio"): frozenset(("swallowed", "swallowed-read")),
    ("start-compacting", "eio"): frozenset(("swallowed", "swallowed-read")),
    ("start-clean", "eio"): frozenset(("swallowed", "swallowed-read")),
    ("start-clean", "stall"): frozenset(("loop-stall",)),
    ("follow-deletion-tiered", "full"): frozenset(("epochs",)),
    ("follow-deletion-tiered", "stall"): frozenset(("epochs",)),
    ("raft-vote", "stall"): frozenset(("loop-stall",)),
    ("raft-reelect", "stall"): frozenset(("loop-stall",)),
    ("raft-install", "stall"): frozenset(("loop-stall",)),
    ("raft-append", "eio"): frozenset(("dropped-pages",)),
    ("raft-append", "enospc"): frozenset(("dropped-pages",)),
    ("raft-append", "full"): frozenset(("dropped-pages",)),
    ("raft-start", "eio"): frozenset(("dropped-pages",)),
    ("raft-start", "enospc"): frozenset(("dropped-pages", "stuck")),
    ("raft-start", "full"): frozenset(("dropped-pages",)),
    ("raft-start", "short"): frozenset(("stuck",)),
    ("raft-start", "stall"): frozenset(("loop-stall",)),
    ("raft-snapshot", "eio"): frozenset(("dropped-pages",)),
    ("raft-snapshot", "enospc"): frozenset(("dropped-pages",)),
    ("raft-snapshot", "full"): frozenset(("dropped-pages", "refused")),
    ("raft-truncate", "stall"): frozenset(("loop-stall",)),
}
