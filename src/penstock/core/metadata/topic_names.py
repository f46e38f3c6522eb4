"""Which topic names are valid, and which collide."""

from __future__ import annotations

import re

from penstock.model.errors import ApiError, ErrorCode

NAME_LENGTH_MAX = 249
# Who did what, written by the brokers.
AUDIT_TOPIC = "_audit"
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state", AUDIT_TOPIC})
METADATA_TOPIC = "__cluster_metadata"
# Topics that Penstock itself creates, and that no rule about topics applies to.
OWN_TOPICS = INTERNAL_TOPICS | {"__remote_log_metadata", "_schemas", "_idempotency_keys", "_pipelines"}

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """Raises INVALID_TOPIC_EXCEPTION, with the reason, for an invalid topic name."""
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
    """A name as metrics show it, with '_' for '.'; None for a name with neither, which cannot collide."""
    return name.replace(".", "_") if "." in name or "_" in name else None
