"""Why a node does not start, said to people."""

from __future__ import annotations


class CannotStart(Exception):
    """The node cannot start; the message says why and what to do."""
