"""Which topic names are allowed, and which are too much alike."""

from __future__ import annotations

import re

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


def folded(name: str) -> str | None:
    """What metrics make of a name: '.' is '_' there. None for a name that has neither and is like no other."""
    return name.replace(".", "_") if "." in name or "_" in name else None
