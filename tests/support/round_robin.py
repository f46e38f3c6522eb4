"""A load balancer: each connection goes to the next backend, from whatever client."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from itertools import cycle
from types import TracebackType
from typing import Self


class RoundRobin:
    """Listens on a free port of this machine; `url` is its address, `served` counts connections by backend."""

    def __init__(self, backends: Sequence[tuple[str, int]]) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.served = dict.fromkeys(backends, 0)
        self._backends = cycle(backends)
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            backend = next(self._backends)
            self.served[backend] += 1
            far = socket.create_connection(backend)
            threading.Thread(target=_serve, args=(near, far), daemon=True).start()


def _serve(near: socket.socket, far: socket.socket) -> None:
    with near, far:
        other = threading.Thread(target=_copy, args=(near, far), daemon=True)
        other.start()
        _copy(far, near)
        other.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(1 << 16):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        return
