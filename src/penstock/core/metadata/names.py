"""Which topic names are allowed, and which are too much alike."""

from __future__ import annotations

import re
from collections.abc import Iterable

from penstock.model.errors import ApiError, ErrorCode

NAME_LENGTH_MAX = 249
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
METADATA_TOPIC = "__cluster_metadata"

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """Raises INVALID_TOPIC_EXCEPTION, with the reason, for a name that no topic may have."""
    reason = ""
    if not name:
        reason = "a topic needs a name"
    elif name in (".", ".."):
        reason = f"{name!r} is the name of a directory, not of a topic"
    elif len(name) > NAME_LENGTH_MAX:
        reason = f"the name has {len(name)} characters; {NAME_LENGTH_MAX} are allowed"
    elif not _LEGAL.fullmatch(name):
        reason = f"{name!r} has characters other than letters, digits, '.', '_' and '-'"
    if reason:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)


def colliding(name: str, existing: Iterable[str]) -> str | None:
    """A topic whose name differs only in '.' against '_': metrics could not tell the two apart."""
    if "." not in name and "_" not in name:
        return None
    folded = name.replace(".", "_")
    for other in existing:
        if other != name and other.replace(".", "_") == folded:
            return other
    return None
