"""Brokers without a bound, by name: what an abuse would do to them proves that the checks of bounds can fail.

`PENSTOCK_MUTATION` names the one that a broker applies to itself when it is started with this folder in PYTHONPATH.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

UNLIMITED = 2**31 - 1


def accept_requests_within(bytes_max: int, entries_max: int) -> None:
    """Decode requests up to these limits."""
    from penstock.api import dispatch

    right = dispatch.Dispatcher.__init__

    def init(dispatcher: Any, *arguments: Any, **named: Any) -> None:
        right(dispatcher, *arguments, **{**named, "limits": dispatch.RequestLimits(bytes_max, entries_max)})

    dispatch.Dispatcher.__init__ = init  # type: ignore[method-assign]


def accept_texts_of_any_length() -> None:
    """Decode texts of any length, and commit any record to the metadata log, as many tokens of an owner as come."""
    from penstock.api import dispatch
    from penstock.core.metadata import delegation_tokens
    from penstock.runtime.raft import metadata_log
    from penstock.wire import decoding

    decoding.STRING_BYTES_MAX = UNLIMITED  # type: ignore[attr-defined]
    delegation_tokens.RENEWERS_BYTES_MAX = UNLIMITED
    metadata_log.RECORD_BYTES_MAX = UNLIMITED
    accept_requests_within(UNLIMITED, dispatch.DEFAULT_LIMITS.entries_max)


def accept_any_number_of_elements() -> None:
    """Decode requests of any size, and with any number of elements, in one go."""
    from penstock.api import dispatch

    dispatch.ROWS_READ_MAX = UNLIMITED
    accept_requests_within(UNLIMITED, UNLIMITED)


def remember_every_denial() -> None:
    """Keep the answer to every question about a right."""
    from penstock.core.security import authorizer

    authorizer.DENIALS_BYTES_MAX = authorizer.ANSWERS_BYTES_MAX = UNLIMITED


def compress_on_the_loop() -> None:
    """Prepare batches of any size on the event loop."""
    from penstock.runtime.replication import partition

    for limit in ("INLINE_BYTES_MAX", "INLINE_RECORDS_MAX", "INLINE_COMPRESSED_BYTES_MAX"):
        assert hasattr(partition, limit), limit
        setattr(partition, limit, UNLIMITED)


MUTATIONS: dict[str, Callable[[], None]] = {
    mutate.__name__: mutate
    for mutate in (
        accept_texts_of_any_length,
        accept_any_number_of_elements,
        remember_every_denial,
        compress_on_the_loop,
    )
}
