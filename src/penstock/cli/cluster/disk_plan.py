"""Where the replicas of a disk go when it is emptied: the largest first, where its broker has the most room."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.client.disks import DiskView
from penstock.model.ids import TopicPartition

# What a disk keeps free, so that it is not the next one to be emptied.
FULL_PERCENT = 85


class NoRoom(Exception):
    """A replica does not fit on any other disk of its broker."""

    def __init__(self, name: TopicPartition, size_bytes: int) -> None:
        super().__init__(str(name))
        self.name = name
        self.size_bytes = size_bytes


def plan_drain(source: DiskView, disks: Iterable[DiskView]) -> dict[TopicPartition, str]:
    """The target of each replica of `source` that is not on its way yet. Raises NoRoom."""
    others = [disk for disk in disks if disk.path != source.path]
    usable = [disk for disk in others if disk.is_online and not disk.is_cordoned]
    room = {disk.path: _room(disk, source.replicas) for disk in usable}
    moving = {name for disk in others for name in disk.arriving}
    plan: dict[TopicPartition, str] = {}
    for name, size in sorted(source.replicas.items(), key=lambda item: (-item[1], item[0])):
        if name in moving:
            continue
        path = max(room, key=lambda one: room[one], default=None)
        if path is None or room[path] < size:
            raise NoRoom(name, size)
        room[path] -= size
        plan[name] = path
    return plan


def _room(disk: DiskView, sizes: Mapping[TopicPartition, int]) -> float:
    """What may still be put on a disk, less what is on its way to it."""
    if disk.total_bytes is None or disk.free_bytes is None:
        return float("inf")
    coming = sum(max(0, sizes.get(name, 0) - one.size_bytes) for name, one in disk.arriving.items())
    return disk.free_bytes - disk.total_bytes * (100 - FULL_PERCENT) / 100 - coming
