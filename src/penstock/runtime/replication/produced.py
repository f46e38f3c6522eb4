"""A produce request's batches as those see them who decide whether they may be appended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from penstock.core.replica.producer_state import NOT_REQUIRED, Verification
from penstock.model.errors import ApiError
from penstock.runtime.replication.partition import Partition

# A partition as a request names it: topic, topic id, index.
Place = tuple[str, bytes, int]
# What must not be appended, and why.
Refusals = Mapping[Place, ApiError]


class Produced(NamedTuple):
    """One batch, and the partition that it is for."""

    place: Place
    partition: Partition
    records: memoryview


class Admission(NamedTuple):
    """What is known of a request's batches before any of them is appended."""

    refusals: Refusals
    # The tokens of those that begin a transaction in their partition; None where none is asked for.
    verifications: Mapping[Place, Verification] | None

    def verification(self, place: Place) -> Verification | None:
        """What to append a transaction's batch with."""
        return NOT_REQUIRED if self.verifications is None else self.verifications.get(place)


# Nothing stands in the way; no batch may begin a transaction.
ADMITTED = Admission({}, {})
