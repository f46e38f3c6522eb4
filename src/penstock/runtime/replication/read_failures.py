"""What follows from a read that failed."""

from __future__ import annotations

from penstock.model.errors import ApiError
from penstock.runtime.replication.partition import Partition
from penstock.storage.files import StorageError


def note_read_failure(partition: Partition, error: ApiError) -> None:
    """If it was the disk's fault, its directory goes offline, so that other brokers lead what is in it."""
    if isinstance(error, StorageError) and error.is_disk_failure:
        partition.on_failure(error)
