"""The rights on a subject.

A subject `<topic>-key` or `<topic>-value` belongs to that topic, in whichever context it is, and what a caller may do
with it follows from what the access lists allow the caller to do with the topic. Other subjects, such as those named
after records, belong to no topic: all callers may read them, and callers that may alter the cluster may change them,
and global settings as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum
from typing import Protocol

from penstock.gateway.registry.subjects import parse_subject
from penstock.model.access import Operation

SUFFIXES = ("-key", "-value")
TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class Right(Enum):
    """A right on a subject; its value is the operation on the topic that grants it."""

    READ = Operation.DESCRIBE
    REGISTER = Operation.WRITE
    DELETE = Operation.DELETE
    CONFIGURE = Operation.ALTER_CONFIGS


class SubjectRights(Protocol):
    """A caller's rights."""

    async def check(self, subject: str, right: Right) -> None:
        """403 if the caller lacks the right; an empty subject stands for global settings."""

    async def readable(self, subjects: Iterable[str]) -> set[str]:
        """Those of the subjects that the caller may read."""
        ...


class AllRights:
    """The rights without sign-in."""

    async def check(self, subject: str, right: Right) -> None:
        """Allow everything."""

    async def readable(self, subjects: Iterable[str]) -> set[str]:
        """All of the subjects."""
        return set(subjects)


ALL_RIGHTS = AllRights()


def is_topic_name(text: str) -> bool:
    """Whether a topic can have this name."""
    return TOPIC_NAME.fullmatch(text) is not None


def topic_of(subject: str) -> str | None:
    """The topic that a subject belongs to; None if it belongs to none."""
    name = parse_subject(subject).name
    for suffix in SUFFIXES:
        if name.endswith(suffix) and len(name) > len(suffix):
            return name.removesuffix(suffix)
    return None
