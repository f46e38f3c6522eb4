"""What the produce requests of all connections share."""

from __future__ import annotations

from penstock.core.replica.postponed import PostponedBatches
from penstock.runtime.env import Env
from penstock.runtime.fair_work import FairWork
from penstock.runtime.replication.batch_preparation import WorkBudget


class ProduceWork:
    """The workers for batches that are too large for the event loop, and the batches refused for the moment."""

    __slots__ = ("budget", "fair", "postponed")

    def __init__(self, env: Env) -> None:
        self.fair = FairWork(env)
        self.postponed = PostponedBatches()
        # What the request that is being appended may still prepare on the event loop.
        self.budget = WorkBudget()
