"""HTTP as bytes, for requests that no client library would send; and a neighbour who wants to be served meanwhile."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any, NamedTuple, Self

import httpx

TIMEOUT_S = 30.0


class Answer(NamedTuple):
    """One answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class RawConnection:
    """A connection on which bytes are sent as they are, and answers read one by one."""

    def __init__(self, address: str, timeout_s: float = TIMEOUT_S) -> None:
        host, _, port = address.removeprefix("http://").rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=timeout_s)
        self._buffer = b""

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def answer(self) -> Answer:
        """The next answer; fails where the connection ends before it has come."""
        while b"\r\n\r\n" not in self._buffer:
            self._more()
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        line, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in lines)}
        length = int(headers.get("content-length", "0"))
        while len(self._buffer) < length:
            self._more()
        body, self._buffer = self._buffer[:length], self._buffer[length:]
        return Answer(int(line.split()[1]), headers, body)

    def rest(self) -> bytes:
        """Everything up to the end of the connection."""
        while True:
            try:
                data = self.socket.recv(65536)
            except ConnectionResetError:
                return self._buffer
            if not data:
                return self._buffer
            self._buffer += data

    def is_silent(self, seconds: float) -> bool:
        """Whether nothing comes for a while, and the connection stays."""
        self.socket.settimeout(seconds)
        try:
            self._buffer += (data := self.socket.recv(65536))
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(TIMEOUT_S)
        assert data, "the connection was closed"
        return False

    def _more(self) -> None:
        data = self.socket.recv(65536)
        if not data:
            raise AssertionError(f"the connection ended after {self._buffer!r}")
        self._buffer += data

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.socket.close()


def post(path: str, body: bytes, *headers: str, host: str = "localhost") -> bytes:
    """A request with a body."""
    lines = [f"POST {path} HTTP/1.1", f"Host: {host}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


def get(path: str, *headers: str, host: str = "localhost") -> bytes:
    """A request without one."""
    return "\r\n".join([f"GET {path} HTTP/1.1", f"Host: {host}", *headers, "", ""]).encode("latin-1")


class Neighbour:
    """Another client, at another address of this machine, that requests the status and publishes all the time."""

    def __init__(self, address: str, topic: str) -> None:
        self._address = address
        self._topic = topic
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="neighbour")
        self.answers = 0
        self.slowest_s = 0.0
        self.failures: list[str] = []

    def _run(self) -> None:
        transport = httpx.HTTPTransport(local_address="127.0.0.2")
        with httpx.Client(base_url=self._address, transport=transport, timeout=TIMEOUT_S) as client:
            while not self._stopping.wait(0.05):
                self._ask(client, "GET", "/status/alive")
                self._ask(client, "POST", f"/topics/{self._topic}/publish", json={"value": "hello"})

    def _ask(self, client: httpx.Client, method: str, path: str, **more: Any) -> None:
        started = time.monotonic()
        try:
            answer = client.request(method, path, **more)
        except httpx.HTTPError as error:
            self.failures.append(f"{path}: {error!r}")
            return
        self.slowest_s = max(self.slowest_s, time.monotonic() - started)
        self.answers += 1
        if answer.status_code != 200:
            self.failures.append(f"{path}: {answer.status_code} {answer.text}")


@contextlib.contextmanager
def neighbour(address: str, topic: str, *, patience_s: float = 5.0) -> Iterator[Neighbour]:
    """A client that must be answered all the time, if the machine has nothing else to do within `patience_s`."""
    someone = Neighbour(address, topic)
    someone._thread.start()
    try:
        yield someone
    finally:
        someone._stopping.set()
        someone._thread.join()
    assert someone.failures == []
    assert someone.answers > 0
    # Others wait for a processor, too.
    busy = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    assert someone.slowest_s < patience_s * busy
