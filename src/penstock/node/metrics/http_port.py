"""The listener for a node's metrics and health, open from before it serves until after it has stopped."""

from __future__ import annotations

import asyncio
import ssl

from penstock.node.failures import CannotStart
from penstock.node.metrics.collector import Collector
from penstock.node.metrics.health import Checks
from penstock.node.metrics.http_handlers import make_handlers
from penstock.runtime.env import Env
from penstock.runtime.keep_running import keep_running
from penstock.runtime.process_metrics import ProcessCollector
from penstock.server.http import HttpListener


class MetricsPort:
    """Serves the metrics of collectors, of which there are more the further a node has started."""

    def __init__(self, env: Env, host: str, port: int, ready: Checks, tls: ssl.SSLContext | None = None) -> None:
        self._env = env
        self._process = ProcessCollector(env)
        self._collectors: list[Collector] = [self._process]
        self._listener = HttpListener(host, port, make_handlers(self._collectors, ready), tls)
        self._scheme = "http" if tls is None else "https"
        self._watching: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        """Host and port, as a client on this machine would use them."""
        host = self._listener.host or "127.0.0.1"
        return f"[{host}]:{self._listener.port}" if ":" in host else f"{host}:{self._listener.port}"

    @property
    def url(self) -> str:
        """The same with its scheme."""
        return f"{self._scheme}://{self.address}"

    async def start(self) -> None:
        """Bind the port; raises CannotStart."""
        listener = self._listener
        try:
            await listener.start()
        except OSError as error:
            raise CannotStart(
                f"cannot listen on {listener.host or '*'}:{listener.port} for metrics: {error.strerror}. Choose "
                "another port in penstock.metrics.listener, or stop what uses this one"
            ) from error
        self._watching = keep_running(self._env, self._process.watch, "loop lag")

    def add_collectors(self, *collectors: Collector, node: tuple[object, ...] = ()) -> None:
        """Add collectors; `node` is this node's id, cluster, roles and rack."""
        self._collectors.extend(collectors)
        if node:
            self._process.node = node

    async def stop(self) -> None:
        """Close the listener."""
        if self._watching is not None:
            self._watching.cancel()
        await self._listener.stop()
