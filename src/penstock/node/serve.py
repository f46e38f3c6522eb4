"""Runs one node as a process, until a signal stops it."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Callable

from penstock.api.table import ROWS
from penstock.config.listeners import unprotected
from penstock.config.node import NodeSettings
from penstock.node.failures import CannotStart
from penstock.node.frozen_heap import FrozenHeap
from penstock.node.node import Node
from penstock.node.process_limits import allow_open_files, keep_freed_memory
from penstock.runtime.env import SystemEnv
from penstock.runtime.raft.metadata_files import DamagedMetadata
from penstock.storage.files import StorageError
from penstock.storage.metadata_files import MetadataFileError

logger = logging.getLogger("penstock.node")

# A module takes up to 10 ms; requests are answered in between.
LOADING_PAUSE_S = 0.05


def serve(
    settings: NodeSettings,
    *,
    ready: Callable[[dict[str, object]], None] | None = None,
    made: Callable[[Node], None] | None = None,
) -> int:
    """Run a node until SIGTERM or SIGINT, or until its data directories have failed; returns the process's exit code.

    `made` is called with the node before it starts, `ready` once it serves.
    """
    keep_freed_memory()
    allow_open_files()
    heap = FrozenHeap()
    heap.start()
    runner = asyncio.Runner(loop_factory=_loop_factory(settings.penstock_loop))
    try:
        with runner:
            return runner.run(_serve(settings, ready, made))
    finally:
        heap.stop()


async def _serve(
    settings: NodeSettings,
    ready: Callable[[dict[str, object]], None] | None,
    made: Callable[[Node], None] | None,
) -> int:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    env = SystemEnv()
    node = Node(settings, env)
    doomed = False

    def doom() -> None:
        nonlocal doomed
        doomed = True
        stopped.set()

    node.on_doom = doom
    if made is not None:
        made(node)
    starting = loop.create_task(node.start())
    stopping = loop.create_task(stopped.wait())
    # A node that waits for its cluster can still be stopped.
    await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()
    try:
        await starting
    except (CannotStart, DamagedMetadata, MetadataFileError, StorageError) as error:
        sys.stderr.write(f"Penstock cannot start: {error}\n")
        await node.give_up()
        await env.close()
        return 1
    except asyncio.CancelledError:
        logger.info("stopped before it served any client")
        await node.give_up()
        await env.close()
        return 0
    logger.info("node %d of cluster %s serves %s", settings.node_id, node.cluster_id, node.addresses)
    for listener, why in unprotected(settings.listeners, bool(settings.authorizer_class_name)):
        logger.warning("listener %s is open to the network: %s (docs/security.md)", listener, why)
    if node.metrics_url is not None:
        logger.info("metrics and health at %s", node.metrics_url)
    if ready is not None:
        facts = {"listeners": node.addresses, "node_id": settings.node_id, "cluster_id": node.cluster_id}
        ready(facts if node.metrics_address is None else {**facts, "metrics": node.metrics_address})
    loading = loop.create_task(load_apis(LOADING_PAUSE_S))
    await stopping
    loading.cancel()
    logger.info("stopping: finishing what was accepted")
    await node.stop()
    await env.close()
    if doomed:
        return 1
    logger.info("stopped cleanly")
    return 0


async def load_apis(pause_s: float) -> None:
    """Import the modules of all APIs, one after the other.

    A node starts without most of them. But once it serves, an upgrade of the package under it must not make it load
    modules of another version with the first request of some kind.
    """
    for row in ROWS:
        row.declarations()
        await asyncio.sleep(pause_s)


def _loop_factory(wanted: str) -> Callable[[], asyncio.AbstractEventLoop] | None:
    if wanted == "asyncio":
        return None
    try:
        import uvloop
    except ImportError:
        if wanted == "uvloop":
            raise
        return None
    return uvloop.new_event_loop
