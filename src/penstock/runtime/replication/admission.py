"""A produce request's batches, as seen by the checks that decide whether they may be appended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from penstock.core.replica.postponed import Place
from penstock.core.replica.producer_state import NOT_REQUIRED, Verification
from penstock.model.errors import ApiError
from penstock.runtime.replication.partition import Partition

# The batches that must not be appended, and why.
Refusals = Mapping[Place, ApiError]


class Produced(NamedTuple):
    """One batch, and the partition that it is for."""

    place: Place
    partition: Partition
    records: memoryview


class Admission(NamedTuple):
    """The result of the checks before any batch of a request is appended."""

    refusals: Refusals
    # The tokens of batches that start a transaction in their partition; None where none is needed.
    verifications: Mapping[Place, Verification] | None

    def verification(self, place: Place) -> Verification | None:
        """The token to append a transaction's batch with."""
        return NOT_REQUIRED if self.verifications is None else self.verifications.get(place)


# Everything may be appended, except batches that start a transaction.
ADMITTED = Admission({}, {})
