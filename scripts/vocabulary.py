"""Finds the dozen words that this codebase does not use, in names, comments, texts and documentation.

Readers who come from Kafka, Redpanda or etcd know the field's terms, and search for them: a broker reports, a client
requests, no client may connect.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
TERMS = {
    "nobody": "no client, no broker, none",
    "whoever": "any caller, a client that",
    "somebody": "a client, a process",
    "says": "contains, reports, returns",
    "hears": "learns, receives",
    "is told": "learns, is notified",
    "rooms": "packages",
    "slips": "mutations, faults",
    "puts aside": "dead-letters",
    "puts off": "delays",
    "lets in": "admits",
    "goes on": "continues",
}
# A name in capitals or with underscores counts, too.
UNWANTED = re.compile(rf"(?<![a-z])({'|'.join(TERMS)})(?![a-z])", re.IGNORECASE)


def found_in(path: Path) -> list[str]:
    """The lines of a file with such a word, and what to write instead."""
    lines = path.read_text("utf-8").splitlines()
    return [
        f"{path.relative_to(REPOSITORY)}:{number}: {match[1]} (write: {TERMS[match[1].lower()]})"
        for number, line in enumerate(lines, 1)
        for match in UNWANTED.finditer(line)
    ]


def main() -> int:
    """Print what is found; 1 if there is anything."""
    paths = [*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md"), *(REPOSITORY / "src").rglob("*.py")]
    found = [line for path in sorted(paths) for line in found_in(path)]
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
