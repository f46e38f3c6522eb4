"""A connection to an HTTP/1.1 server for one GET after another: what asking a schema registry needs, and no more."""

from __future__ import annotations

import asyncio
import ssl
from urllib.parse import urlsplit

HEAD_BYTES_MAX = 64 * 1024
BODY_BYTES_MAX = 8 * 1024 * 1024
BODILESS = (204, 304)


class ConnectionEnded(Exception):
    """The server closed the connection before it answered."""


class BadAnswer(Exception):
    """The server's answer is not valid HTTP, or too long."""


class HttpConnection:
    """`is_reusable` is false once the connection has served its last request; the owner then closes it."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, url: str, authorization: str | None
    ) -> None:
        parts = urlsplit(url)
        self._reader = reader
        self._writer = writer
        self._prefix = parts.path
        sent = f"Authorization: {authorization}\r\n" if authorization else ""
        self._headers = f"Host: {parts.netloc}\r\nAccept: */*\r\n{sent}"
        self.is_reusable = True

    @classmethod
    async def open(cls, url: str, context: ssl.SSLContext | None, authorization: str | None) -> HttpConnection:
        """Connect to a URL's server; raises OSError."""
        parts = urlsplit(url)
        port = parts.port or (443 if context else 80)
        reader, writer = await asyncio.open_connection(parts.hostname or "", port, ssl=context, limit=HEAD_BYTES_MAX)
        return cls(reader, writer, url, authorization)

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()

    async def get(self, path: str) -> tuple[int, bytes]:
        """The status and the body of the answer; raises ConnectionEnded, BadAnswer or OSError."""
        try:
            self._writer.write(f"GET {self._prefix}{path} HTTP/1.1\r\n{self._headers}\r\n".encode())
            await self._writer.drain()
            head = await self._reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            raise BadAnswer("its answer's head is too long") from None
        except asyncio.IncompleteReadError as error:
            if error.partial:
                raise BadAnswer("it does not speak HTTP") from None
            raise ConnectionEnded("it closed the connection") from None
        except ConnectionError as error:
            raise ConnectionEnded(str(error)) from None
        status, headers = _head(head)
        try:
            return status, await self._body(status, headers)
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            raise BadAnswer("its answer is cut short or not valid") from None

    async def _body(self, status: int, headers: dict[str, str]) -> bytes:
        length = headers.get("content-length", "")
        self.is_reusable = headers.get("connection", "").lower() != "close"
        if status in BODILESS:
            return b""
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return await self._chunks()
        if not length:
            # The body ends with the connection.
            self.is_reusable = False
            body = bytearray()
            while more := await self._reader.read(HEAD_BYTES_MAX):
                body += more
                _check_length(len(body))
            return bytes(body)
        if not length.isdecimal() or len(length) > 18:
            raise BadAnswer("its answer has no valid Content-Length")
        _check_length(int(length))
        return await self._reader.readexactly(int(length))

    async def _chunks(self) -> bytes:
        body = bytearray()
        while True:
            line = (await self._reader.readuntil(b"\r\n")).partition(b";")[0].strip()
            try:
                size = int(line[:16], 16)
            except ValueError:
                raise BadAnswer("its answer's chunks are not valid") from None
            _check_length(len(body) + max(0, size))
            if size <= 0:
                break
            body += (await self._reader.readexactly(size + 2))[:size]
        for _ in range(100):
            if await self._reader.readuntil(b"\r\n") == b"\r\n":
                return bytes(body)
        raise BadAnswer("its answer has too many trailers")


def _head(head: bytes) -> tuple[int, dict[str, str]]:
    """The status and the headers, with their names in lower case."""
    line, *lines = head.decode("latin-1").split("\r\n")
    words = line.split(" ", 2)
    if len(words) < 2 or not words[0].startswith("HTTP/1.") or len(words[1]) != 3 or not words[1].isdecimal():
        raise BadAnswer("it does not speak HTTP")
    headers = {}
    if words[0] == "HTTP/1.0":
        headers["connection"] = "close"
    for each in lines:
        name, _, value = each.partition(":")
        headers[name.strip().lower()] = value.strip()
    return int(words[1]), headers


def _check_length(size: int) -> None:
    if size > BODY_BYTES_MAX:
        raise BadAnswer(f"its answer is longer than {BODY_BYTES_MAX} bytes")
