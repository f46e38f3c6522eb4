"""How a broker's replicas are moved between its data directories."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from penstock.core.metadata.image import Image
from penstock.core.replica.throttle import Throttle
from penstock.runtime.env import Env
from penstock.runtime.logs.directories import LogDirectory
from penstock.runtime.replication.directory_assignments import DirectoryAssignments
from penstock.runtime.replication.directory_moves import DirectoryMoves
from penstock.runtime.replication.fetchers import MOVES_RATE, throttled_rate
from penstock.runtime.replication.partitions import Partitions


def move_replicas(
    env: Env,
    image: Image,
    partitions: Partitions,
    ask_controller: Callable[[Any], Awaitable[Any]],
    broker_epoch: Callable[[], int],
    checkpoint: Callable[[LogDirectory], None],
) -> DirectoryMoves:
    """Start telling the controller where replicas are, and continue the moves of the last run."""
    assignments = DirectoryAssignments(env, partitions, ask_controller, broker_epoch)
    assignments.start()
    throttle = Throttle(throttled_rate(image, partitions.node_id, MOVES_RATE))
    moves = DirectoryMoves(env, partitions, assignments, throttle, checkpoint)
    moves.resume()
    return moves
