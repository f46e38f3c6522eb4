"""Anomalies that are known and not mended yet."""

from __future__ import annotations

KNOWN: dict[tuple[str, str], frozenset[str]] = {
    ("create", "eio"): frozenset(
        (
            "dropped-pages",
            "refused",
            "swallowed",
            "swallowed-read",
        )
    ),
    ("create", "enospc"): frozenset(("dropped-pages",)),
    ("create", "full"): frozenset(
        (
            "dropped-pages",
            "refused",
        )
    ),
    ("create", "short"): frozenset(("refused",)),
    ("create", "stall"): frozenset(("loop-stall",)),
    ("roll", "eio"): frozenset(("dropped-pages",)),
    ("roll", "enospc"): frozenset(("dropped-pages",)),
    ("roll", "full"): frozenset(("dropped-pages",)),
    ("follow", "eio"): frozenset(("dropped-pages",)),
    ("follow", "enospc"): frozenset(("dropped-pages",)),
    ("follow", "full"): frozenset(("dropped-pages",)),
    ("truncate", "kill"): frozenset(("hole",)),
    ("truncate", "power"): frozenset(("hole",)),
    ("truncate", "eio"): frozenset(
        (
            "dropped-pages",
            "producers",
            "swallowed",
            "swallowed-read",
        )
    ),
    ("truncate", "broken"): frozenset(("hole",)),
    ("truncate", "enospc"): frozenset(("dropped-pages",)),
    ("truncate", "full"): frozenset(("dropped-pages",)),
    ("truncate", "stall"): frozenset(("loop-stall",)),
    ("truncate-transactions", "power"): frozenset(("hole",)),
    ("truncate-transactions", "eio"): frozenset(
        (
            "dropped-pages",
            "producers",
            "swallowed",
            "swallowed-read",
        )
    ),
    ("truncate-transactions", "broken"): frozenset(("hole",)),
    ("truncate-transactions", "enospc"): frozenset(("dropped-pages",)),
    ("truncate-transactions", "full"): frozenset(("dropped-pages",)),
    ("truncate-transactions", "emfile"): frozenset(("producers",)),
    ("truncate-transactions", "stall"): frozenset(("loop-stall",)),
    ("delete-records", "eio"): frozenset(
        (
            "dropped-pages",
            "epochs",
        )
    ),
    ("delete-records", "enospc"): frozenset(
        (
            "dropped-pages",
            "epochs",
        )
    ),
    ("delete-records", "full"): frozenset(
        (
            "dropped-pages",
            "epochs",
        )
    ),
    ("delete-records", "emfile"): frozenset(("epochs",)),
    ("delete-records", "short"): frozenset(("epochs",)),
    ("delete-records", "stall"): frozenset(("loop-stall",)),
    ("delete-records-of-two", "eio"): frozenset(("swallowed",)),
    ("delete-records-of-two", "broken"): frozenset(("lost-but-trusted",)),
    ("delete-records-of-two", "stall"): frozenset(("loop-stall",)),
    ("follow-deletion", "kill"): frozenset(("deleted-returned",)),
    ("follow-deletion", "power"): frozenset(("deleted-returned",)),
    ("follow-deletion", "eio"): frozenset(
        (
            "deleted-returned",
            "swallowed",
        )
    ),
    ("follow-deletion", "broken"): frozenset(("deleted-returned",)),
    ("follow-deletion", "enospc"): frozenset(("deleted-returned",)),
    ("follow-deletion", "full"): frozenset(("deleted-returned",)),
    ("follow-deletion", "short"): frozenset(("deleted-returned",)),
    ("delete-topic", "eio"): frozenset(
        (
            "dropped-pages",
            "refused",
            "resurrected",
            "swallowed",
            "swallowed-read",
        )
    ),
    ("delete-topic", "broken"): frozenset(("recovery-point",)),
    ("delete-topic", "enospc"): frozenset(
        (
            "dropped-pages",
            "recovery-point",
            "resurrected",
        )
    ),
    ("delete-topic", "full"): frozenset(
        (
            "dropped-pages",
            "refused",
        )
    ),
    ("delete-topic", "emfile"): frozenset(("recovery-point",)),
    ("delete-topic", "short"): frozenset(
        (
            "recovery-point",
            "refused",
        )
    ),
    ("delete-topic", "stall"): frozenset(("loop-stall",)),
    ("damaged", "kill"): frozenset(("lost",)),
    ("damaged", "power"): frozenset(("lost",)),
    ("damaged", "eio"): frozenset(
        (
            "lost",
            "swallowed",
            "swallowed-read",
        )
    ),
    ("damaged", "broken"): frozenset(("lost",)),
    ("damaged", "enospc"): frozenset(("lost",)),
    ("damaged", "full"): frozenset(("lost",)),
    ("damaged", "emfile"): frozenset(("lost",)),
    ("damaged", "short"): frozenset(("lost",)),
    ("damaged", "stall"): frozenset(("loop-stall",)),
    ("append", "eio"): frozenset(("dropped-pages",)),
    ("append", "enospc"): frozenset(("dropped-pages",)),
    ("append", "full"): frozenset(("dropped-pages",)),
    ("transactions", "eio"): frozenset(("dropped-pages",)),
    ("transactions", "enospc"): frozenset(("dropped-pages",)),
    ("transactions", "full"): frozenset(("dropped-pages",)),
    ("truncate-tail", "eio"): frozenset(
        (
            "dropped-pages",
            "swallowed-read",
        )
    ),
    ("truncate-tail", "enospc"): frozenset(("dropped-pages",)),
    ("truncate-tail", "full"): frozenset(("dropped-pages",)),
    ("truncate-tail", "stall"): frozenset(("loop-stall",)),
    ("truncate-twice", "kill"): frozenset(("hole",)),
    ("truncate-twice", "power"): frozenset(("hole",)),
    ("truncate-twice", "eio"): frozenset(
        (
            "dropped-pages",
            "producers",
            "swallowed",
            "swallowed-read",
        )
    ),
    ("truncate-twice", "broken"): frozenset(("hole",)),
    ("truncate-twice", "enospc"): frozenset(("dropped-pages",)),
    ("truncate-twice", "full"): frozenset(("dropped-pages",)),
    ("truncate-twice", "emfile"): frozenset(("producers",)),
    ("truncate-twice", "stall"): frozenset(("loop-stall",)),
    ("begin-anew", "kill"): frozenset(("producers",)),
    ("begin-anew", "power"): frozenset(("producers",)),
    ("begin-anew", "eio"): frozenset(
        (
            "deleted-returned",
            "dropped-pages",
            "hole",
            "refused",
        )
    ),
    ("begin-anew", "broken"): frozenset(("deleted-returned",)),
    ("begin-anew", "enospc"): frozenset(
        (
            "deleted-returned",
            "dropped-pages",
            "hole",
            "refused",
        )
    ),
    ("begin-anew", "full"): frozenset(
        (
            "deleted-returned",
            "different",
            "dropped-pages",
            "exception",
            "hole",
        )
    ),
    ("begin-anew", "emfile"): frozenset(("deleted-returned",)),
    ("begin-anew", "short"): frozenset(("deleted-returned",)),
    ("begin-anew", "stall"): frozenset(("loop-stall",)),
    ("delete-all-records", "eio"): frozenset(
        (
            "deleted-returned",
            "dropped-pages",
            "swallowed",
        )
    ),
    ("delete-all-records", "broken"): frozenset(("deleted-returned",)),
    ("delete-all-records", "enospc"): frozenset(
        (
            "deleted-returned",
            "dropped-pages",
        )
    ),
    ("delete-all-records", "full"): frozenset(
        (
            "deleted-returned",
            "dropped-pages",
        )
    ),
    ("delete-all-records", "stall"): frozenset(("loop-stall",)),
    ("retention", "eio"): frozenset(
        (
            "dropped-pages",
            "swallowed",
        )
    ),
    ("retention", "enospc"): frozenset(("dropped-pages",)),
    ("retention", "full"): frozenset(
        (
            "dropped-pages",
            "refused",
        )
    ),
    ("retention", "stall"): frozenset(("loop-stall",)),
    ("follow-deletion-tiered", "kill"): frozenset(
        (
            "deleted-returned",
            "hole",
        )
    ),
    ("follow-deletion-tiered", "power"): frozenset(
        (
            "deleted-returned",
            "hole",
        )
    ),
    ("follow-deletion-tiered", "eio"): frozenset(
        (
            "deleted-returned",
            "hole",
            "swallowed",
        )
    ),
    ("follow-deletion-tiered", "broken"): frozenset(("deleted-returned",)),
    ("follow-deletion-tiered", "enospc"): frozenset(
        (
            "deleted-returned",
            "hole",
        )
    ),
    ("follow-deletion-tiered", "full"): frozenset(
        (
            "deleted-returned",
            "hole",
        )
    ),
    ("follow-deletion-tiered", "short"): frozenset(
        (
            "deleted-returned",
            "hole",
        )
    ),
    ("raft-vote", "stall"): frozenset(("loop-stall",)),
    ("raft-reelect", "stall"): frozenset(("loop-stall",)),
    ("raft-install", "stall"): frozenset(("loop-stall",)),
    ("raft-append", "eio"): frozenset(("dropped-pages",)),
    ("raft-append", "enospc"): frozenset(("dropped-pages",)),
    ("raft-append", "full"): frozenset(("dropped-pages",)),
    ("raft-start", "eio"): frozenset(("dropped-pages",)),
    ("raft-start", "enospc"): frozenset(
        (
            "dropped-pages",
            "stuck",
        )
    ),
    ("raft-start", "full"): frozenset(("dropped-pages",)),
    ("raft-start", "short"): frozenset(("stuck",)),
    ("raft-start", "stall"): frozenset(("loop-stall",)),
    ("checkpoint", "broken"): frozenset(("lost-but-trusted",)),
    ("checkpoint", "stall"): frozenset(("loop-stall",)),
    ("tier-start", "kill"): frozenset(("producers",)),
    ("tier-start", "power"): frozenset(("producers",)),
    ("tier-start", "eio"): frozenset(
        (
            "dropped-pages",
            "hole",
            "producers",
            "refused",
            "swallowed",
        )
    ),
    ("tier-start", "broken"): frozenset(("producers",)),
    ("tier-start", "enospc"): frozenset(
        (
            "dropped-pages",
            "hole",
            "producers",
            "refused",
        )
    ),
    ("tier-start", "full"): frozenset(
        (
            "different",
            "dropped-pages",
            "exception",
            "hole",
            "producers",
        )
    ),
    ("tier-start", "emfile"): frozenset(("producers",)),
    ("tier-start", "short"): frozenset(("producers",)),
    ("tier-start", "stall"): frozenset(("loop-stall",)),
    ("truncate-cleaned", "kill"): frozenset(("cleaner-checkpoint",)),
    ("truncate-cleaned", "power"): frozenset(("cleaner-checkpoint",)),
    ("truncate-cleaned", "eio"): frozenset(
        (
            "cleaner-checkpoint",
            "swallowed",
            "swallowed-read",
        )
    ),
    ("truncate-cleaned", "broken"): frozenset(("cleaner-checkpoint",)),
    ("truncate-cleaned", "enospc"): frozenset(("cleaner-checkpoint",)),
    ("truncate-cleaned", "full"): frozenset(("cleaner-checkpoint",)),
    ("truncate-cleaned", "emfile"): frozenset(("cleaner-checkpoint",)),
    ("truncate-cleaned", "short"): frozenset(("cleaner-checkpoint",)),
    ("truncate-cleaned", "stall"): frozenset(
        (
            "cleaner-checkpoint",
            "loop-stall",
        )
    ),
    ("tier-trim", "eio"): frozenset(
        (
            "dropped-pages",
            "swallowed",
        )
    ),
    ("tier-trim", "enospc"): frozenset(("dropped-pages",)),
    ("tier-trim", "full"): frozenset(
        (
            "dropped-pages",
            "refused",
        )
    ),
    ("stop", "eio"): frozenset(
        (
            "dropped-pages",
            "swallowed",
        )
    ),
    ("stop", "broken"): frozenset(("swallowed",)),
    ("stop", "enospc"): frozenset(("dropped-pages",)),
    ("stop", "full"): frozenset(("dropped-pages",)),
    ("stop", "stall"): frozenset(("loop-stall",)),
    ("start-after-power-cut", "eio"): frozenset(
        (
            "dropped-pages",
            "swallowed",
            "swallowed-read",
        )
    ),
    ("start-after-power-cut", "enospc"): frozenset(("dropped-pages",)),
    ("start-after-power-cut", "full"): frozenset(("dropped-pages",)),
    ("start-after-power-cut", "stall"): frozenset(("loop-stall",)),
    ("start-truncating-early", "power"): frozenset(("hole",)),
    ("start-truncating-early", "eio"): frozenset(
        (
            "dropped-pages",
            "hole",
            "swallowed",
            "swallowed-read",
        )
    ),
    ("start-truncating-early", "broken"): frozenset(("hole",)),
    ("start-truncating-early", "enospc"): frozenset(
        (
            "dropped-pages",
            "hole",
        )
    ),
    ("start-truncating-early", "full"): frozenset(
        (
            "dropped-pages",
            "hole",
        )
    ),
    ("start-truncating-early", "emfile"): frozenset(("hole",)),
    ("start-truncating-early", "stall"): frozenset(("loop-stall",)),
    ("start-truncating-late", "eio"): frozenset(
        (
            "dropped-pages",
            "swallowed",
            "swallowed-read",
        )
    ),
    ("start-truncating-late", "enospc"): frozenset(("dropped-pages",)),
    ("start-truncating-late", "full"): frozenset(("dropped-pages",)),
    ("start-truncating-late", "stall"): frozenset(("loop-stall",)),
    ("start-compacting", "eio"): frozenset(
        (
            "dropped-pages",
            "swallowed",
            "swallowed-read",
        )
    ),
    ("start-compacting", "enospc"): frozenset(("dropped-pages",)),
    ("start-compacting", "full"): frozenset(("dropped-pages",)),
    ("start-compacting", "stall"): frozenset(("loop-stall",)),
    ("start-clean", "eio"): frozenset(
        (
            "dropped-pages",
            "swallowed",
            "swallowed-read",
        )
    ),
    ("start-clean", "enospc"): frozenset(("dropped-pages",)),
    ("start-clean", "full"): frozenset(("dropped-pages",)),
    ("start-clean", "stall"): frozenset(("loop-stall",)),
    ("start-killed", "eio"): frozenset(
        (
            "dropped-pages",
            "swallowed",
            "swallowed-read",
        )
    ),
    ("start-killed", "enospc"): frozenset(("dropped-pages",)),
    ("start-killed", "full"): frozenset(("dropped-pages",)),
    ("start-killed", "stall"): frozenset(("loop-stall",)),
    ("raft-snapshot", "eio"): frozenset(("dropped-pages",)),
    ("raft-snapshot", "enospc"): frozenset(("dropped-pages",)),
    ("raft-snapshot", "full"): frozenset(
        (
            "dropped-pages",
            "refused",
        )
    ),
    ("move", "power"): frozenset(("hole",)),
    ("move", "eio"): frozenset(
        (
            "dropped-pages",
            "swallowed",
            "swallowed-read",
        )
    ),
    ("move", "broken"): frozenset(
        (
            "lost",
            "producers",
            "recovery-point",
        )
    ),
    ("move", "enospc"): frozenset(("dropped-pages",)),
    ("move", "full"): frozenset(("dropped-pages",)),
    ("move", "stall"): frozenset(("loop-stall",)),
    ("raft-truncate", "stall"): frozenset(("loop-stall",)),
    ("compact", "eio"): frozenset(
        (
            "dropped-pages",
            "swallowed",
            "swallowed-read",
        )
    ),
    ("compact", "broken"): frozenset(("lost-but-trusted",)),
    ("compact", "enospc"): frozenset(
        (
            "dropped-pages",
            "refused",
        )
    ),
    ("compact", "full"): frozenset(
        (
            "dropped-pages",
            "refused",
        )
    ),
    ("compact-transactions", "eio"): frozenset(
        (
            "dropped-pages",
            "swallowed",
            "swallowed-read",
        )
    ),
    ("compact-transactions", "broken"): frozenset(("lost-but-trusted",)),
    ("compact-transactions", "enospc"): frozenset(
        (
            "dropped-pages",
            "refused",
        )
    ),
    ("compact-transactions", "full"): frozenset(
        (
            "dropped-pages",
            "refused",
        )
    ),
    ("compact-transactions", "stall"): frozenset(("loop-stall",)),
    ("start-moved", "eio"): frozenset(
        (
            "dropped-pages",
            "swallowed",
            "swallowed-read",
        )
    ),
    ("start-moved", "broken"): frozenset(("lost-but-trusted",)),
    ("start-moved", "enospc"): frozenset(("dropped-pages",)),
    ("start-moved", "full"): frozenset(("dropped-pages",)),
    ("start-moved", "stall"): frozenset(("loop-stall",)),
}
