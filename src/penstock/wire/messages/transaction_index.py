"""Messages of the file family.

Generated from definitions/transaction_index.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from typing import NamedTuple


class AbortedTxn(NamedTuple):
    """Version 0."""

    version: int = 0
    producer_id: int = 0
    first_offset: int = 0
    last_offset: int = 0
    last_stable_offset: int = 0
