"""Why a node cannot start."""

from __future__ import annotations


class CannotStart(Exception):
    """The node cannot start; the message contains the reason and what to do."""
