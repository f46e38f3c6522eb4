"""Subject names and their contexts: `:.context:name` is `name` in `.context`."""

from __future__ import annotations

from typing import NamedTuple

from penstock.gateway.registry import errors

DEFAULT_CONTEXT = "."
GLOBAL_CONTEXT = ".__GLOBAL"
SUBJECT_LENGTH_MAX = 1000


class SubjectName(NamedTuple):
    """A subject: its context, and its name within it."""

    context: str
    name: str

    @property
    def qualified(self) -> str:
        """The name as it is stored and shown; without its context if that is the default."""
        return self.name if self.context == DEFAULT_CONTEXT else f":{self.context}:{self.name}"


def parse_subject(text: str) -> SubjectName:
    """Parse a subject name; raises Problem if it is invalid."""
    if len(text) > SUBJECT_LENGTH_MAX or any(ord(sign) < 32 or ord(sign) == 127 for sign in text):
        raise errors.invalid_subject(text)
    if not text.startswith(":."):
        return SubjectName(DEFAULT_CONTEXT, text)
    context, _, name = text[1:].partition(":")
    return SubjectName(context, name)


def checked_subject(text: str) -> str:
    """A subject name in its canonical form."""
    subject = parse_subject(text).qualified
    if parse_subject(text).name in ("__GLOBAL", "__EMPTY"):
        raise errors.invalid_subject(text)
    return subject


def context_of(subject: str) -> str:
    """The context of a qualified subject."""
    return parse_subject(subject).context


def in_context(context: str, subject: str) -> str:
    """A subject that a schema of `context` refers to: in the same context unless it names one."""
    return subject if subject.startswith(":.") else SubjectName(context, subject).qualified
