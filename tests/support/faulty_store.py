"""A proxy in front of an object store that is away, slow, loses answers, or breaks uploads off."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random

HANGING_S = 45


class Fault:
    """What a proxy in front of S3 does to requests."""

    def __init__(self) -> None:
        # Requests are not answered until it is set.
        self.answers = threading.Event()
        self.answers.set()
        self.delay_s = 0.0
        # The share of requests that are carried out, but whose answer is an error.
        self.lost = 0.0
        # The share of uploads that break off in the middle.
        self.torn = 0.0
        self.random = Random(7)


@contextmanager
def faulty_proxy(target: str) -> Iterator[tuple[str, Fault]]:
    """Passes requests on to `target`, unless its fault prevents it."""
    fault = Fault()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            if self.command == "PUT" and fault.random.random() < fault.torn:
                self.rfile.read(size // 2)
                self.close_connection = True
                return
            body = self.rfile.read(size)
            time.sleep(fault.delay_s)
            if not fault.answers.is_set():
                fault.answers.wait(HANGING_S)
                self.answer(503, b"", {})
                return
            headers = {name: text for name, text in self.headers.items() if name.lower() != "connection"}
            with closing(HTTPConnection(target.removeprefix("http://"), timeout=20)) as connection:
                connection.request(self.command, self.path, body, headers)
                found = connection.getresponse()
                status, content, given = found.status, found.read(), dict(found.headers)
            if fault.random.random() < fault.lost:
                self.answer(400, b"lost", {})
                return
            self.answer(status, content, given)

        def answer(self, status: int, content: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, text in headers.items():
                if name.lower() not in ("content-length", "transfer-encoding", "connection", "date", "server"):
                    self.send_header(name, text)
            length = headers.get("Content-Length") if self.command == "HEAD" else None
            self.send_header("Content-Length", length or str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", fault
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
