"""An operator who moves replicas between the data directories of brokers, and changes their mind."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from penstock.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from sim.disk import DATA, MORE_DATA
from sim.wire import PAUSE_MAX_S, Cluster, Failed


class Mover:
    """Sends requests to one broker at a time; the outcome of a move is not promised."""

    def __init__(self, cluster: Cluster, topics: Sequence[str], partitions: int) -> None:
        self._cluster = cluster
        self._topics = topics
        self._partitions = partitions
        self.stopping = False

    async def run(self, pause_s: float) -> None:
        """Move something, with pauses, until told to stop."""
        random = self._cluster.random
        while not self.stopping:
            await asyncio.sleep(min(random.expovariate(1 / pause_s), PAUSE_MAX_S))
            names = [AlterReplicaLogDirTopic(topic, list(range(self._partitions))) for topic in self._topics]
            wanted = AlterReplicaLogDir(f"/{random.choice((DATA, MORE_DATA))}", names)
            with contextlib.suppress(Failed):
                await self._cluster.call(self._cluster.some_address(), AlterReplicaLogDirsRequest([wanted]))
