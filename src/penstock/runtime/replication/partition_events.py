"""Events of a broker's partitions, and their listeners."""

from __future__ import annotations

from collections.abc import Callable

from penstock.model.ids import Uuid
from penstock.runtime.logs.directories import LogDirectory
from penstock.runtime.replication.partition import Partition
from penstock.storage.files import CorruptLogError

Listener = Callable[[Partition], object]
DirectoryListener = Callable[[LogDirectory], object]
DamageListener = Callable[[Partition, CorruptLogError], object]
UnopenedListener = Callable[[Uuid, int], object]


class PartitionEvents:
    """The listeners; they are called in the order of registration."""

    def __init__(self) -> None:
        self._on_change: list[Listener] = []
        self._on_removed: list[Listener] = []
        self._on_leader: list[Listener] = []
        self._on_resigned: list[Listener] = []
        self._on_follower: list[Listener] = []
        self._on_joinable: list[Listener] = []
        self._on_moved: list[Listener] = []
        self._on_unopened: list[UnopenedListener] = []
        self._on_damage: list[DamageListener] = []
        self._on_directory_failed: list[DirectoryListener] = []

    def on_change(self, listener: Listener) -> None:
        """Have `listener` called when a partition was opened or its settings changed."""
        self._on_change.append(listener)

    def on_removed(self, listener: Listener) -> None:
        """Have `listener` called when a partition was removed."""
        self._on_removed.append(listener)

    def on_leader(self, listener: Listener) -> None:
        """Have `listener` called when this broker starts a leader epoch of a partition."""
        self._on_leader.append(listener)

    def on_resigned(self, listener: Listener) -> None:
        """Have `listener` called when this broker no longer leads a partition, or no longer has it."""
        self._on_resigned.append(listener)

    def on_follower(self, listener: Listener) -> None:
        """Have `listener` called when a partition has another leader, or none, to follow."""
        self._on_follower.append(listener)

    def on_joinable(self, listener: Listener) -> None:
        """Have `listener` called when the in-sync replicas may have to be proposed again.

        A follower may now be accepted, or the controller must learn that the leader commits without some.
        """
        self._on_joinable.append(listener)

    def on_moved(self, listener: Listener) -> None:
        """Have `listener` called when a replica is served from another data directory."""
        self._on_moved.append(listener)

    def on_unopened(self, listener: UnopenedListener) -> None:
        """Have `listener` called, now and then, with the topic id and number of a partition that cannot be opened."""
        self._on_unopened.append(listener)

    def on_damage(self, listener: DamageListener) -> None:
        """Have `listener` called when a replica that is open seems to be damaged; reads may meet that many times."""
        self._on_damage.append(listener)

    def on_directory_failed(self, listener: DirectoryListener) -> None:
        """Have `listener` called when a data directory went offline."""
        self._on_directory_failed.append(listener)
