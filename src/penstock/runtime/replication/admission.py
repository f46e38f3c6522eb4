"""A produce request's batches, as seen by the checks that decide whether they may be appended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from penstock.core.replica.postponed import RequestedPartition
from penstock.core.replica.producer_state import NOT_REQUIRED, Verification
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import Uuid
from penstock.runtime.replication.partition import Partition

# The batches that must not be appended, and why.
Refusals = Mapping[RequestedPartition, ApiError]


class Produced(NamedTuple):
    """One batch, and the partition that it is for."""

    place: RequestedPartition
    partition: Partition
    records: memoryview


class Admission(NamedTuple):
    """The result of the checks before any batch of a request is appended."""

    refusals: Refusals
    # The tokens of batches that start a transaction in their partition; None where none is needed.
    verifications: Mapping[RequestedPartition, Verification] | None
    # Of a request that waits: the topics that were checked, by their names. A topic may be created anew meanwhile.
    topic_ids: Mapping[str, Uuid | None] | None = None

    def check_topic(self, topic: str, partition: Partition) -> None:
        """Raises ApiError if the partition found by a topic's name is not of the topic that was checked."""
        if self.topic_ids is not None and self.topic_ids.get(topic) != partition.topic_id:
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {topic} was created after the checks of this request, whose records are for a former one",
            )

    def verification(self, place: RequestedPartition) -> Verification | None:
        """The token to append a transaction's batch with."""
        return NOT_REQUIRED if self.verifications is None else self.verifications.get(place)


# Everything may be appended, except batches that start a transaction.
ADMITTED = Admission({}, {})
