"""How a broker's replicas are moved between its data directories, and what it does when one of them fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from penstock.core.metadata.image import Image
from penstock.core.replica.throttle import Throttle
from penstock.runtime.controller.broker_lifecycle import BrokerLifecycle
from penstock.runtime.env import Env
from penstock.runtime.logs.directories import LogDirectory
from penstock.runtime.replication.damaged_replicas import DamagedReplicas
from penstock.runtime.replication.directory_assignments import DirectoryAssignments
from penstock.runtime.replication.directory_moves import DirectoryMoves
from penstock.runtime.replication.fetchers import MOVES_RATE, throttled_rate
from penstock.runtime.replication.partitions import Partitions
from penstock.wire.apis import Request

REPORT_CHECK_S = 0.1


def move_replicas(
    env: Env,
    image: Image,
    partitions: Partitions,
    ask_controller: Callable[[Request[object]], Awaitable[object]],
    broker_epoch: Callable[[], int],
) -> tuple[DirectoryMoves, DamagedReplicas]:
    """Start telling the controller where replicas are, continue the last run's moves, and see to damaged replicas."""
    assignments = DirectoryAssignments(env, partitions, ask_controller, broker_epoch)
    assignments.start()
    throttle = Throttle(throttled_rate(image, partitions.node_id, MOVES_RATE))
    moves = DirectoryMoves(env, partitions, assignments, throttle)
    moves.resume()
    damaged = DamagedReplicas(env, partitions, assignments)
    damaged.start()
    return moves, damaged


def watch_failures(
    env: Env,
    partitions: Partitions,
    lifecycle: BrokerLifecycle,
    timeout_ms: int,
    give_up: Callable[[str], None],
) -> None:
    """Tell the controller at once of a data directory that fails.

    A broker gives up if it cannot: its leaderships would stay where nothing can be written. So does one without any
    directory that works, once the controller knows.
    """

    async def report(directory: LogDirectory) -> None:
        deadline_ms = env.monotonic_ms() + timeout_ms
        lifecycle.heartbeat_now()
        while directory.directory_id not in lifecycle.reported_offline:
            if env.monotonic_ms() > deadline_ms:
                give_up(f"the controller could not be told for {timeout_ms} ms that {directory.path} failed")
                return
            await asyncio.sleep(REPORT_CHECK_S)
        if all(one.failure is not None for one in partitions.directories):
            give_up("every data directory of this broker has failed")

    if all(one.failure is not None for one in partitions.directories):
        # While the logs were opened.
        give_up("every data directory of this broker has failed")
    partitions.on_directory_failed(lambda directory: env.spawn(report(directory), f"report {directory.path}"))
