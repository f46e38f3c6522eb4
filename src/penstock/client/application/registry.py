"""The schema registry, as serdes use it: schemas are registered once, and found by the id in front of a value."""

from __future__ import annotations

import base64
import json
import struct
import threading
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

from penstock.client.application.connection import Connection
from penstock.client.application.errors import ConnectionFailed, PenstockError, SerializationFailed

TIMEOUT_S = 10.0
CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
MAGIC = 0
_FRAME = struct.Struct(">bI")


class Registry:
    """A schema registry by its address; `http://user:password@host:8081` signs in.

    >>> Registry("http://localhost:8081").url
    'http://localhost:8081'
    """

    def __init__(self, url: str | None = None) -> None:
        found = url or Connection.from_environment().registry
        if not found:
            advice = "give registry='http://host:8081', or set PENSTOCK_REGISTRY"
            raise PenstockError("there is no schema registry", "no address is known", advice)
        parts = urlsplit(found)
        self._authorization = ""
        if parts.username is not None:
            secret = f"{parts.username}:{parts.password or ''}".encode()
            self._authorization = "Basic " + base64.b64encode(secret).decode()
        self.url = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))
        self._ids: dict[tuple[str, str], int] = {}
        self._schemas: dict[int, str] = {}
        self._lock = threading.Lock()

    def register(self, subject: str, schema: str, kind: str) -> int:
        """The id of a schema under a subject; registered if it is new, and remembered."""
        with self._lock:
            number = self._ids.get((subject, schema))
            if number is None:
                answer = self._call(
                    f"/subjects/{quote(subject, safe='')}/versions", {"schema": schema, "schemaType": kind}
                )
                number = self._ids[subject, schema] = int(answer["id"])
            return number

    def schema(self, number: int) -> str:
        """The schema with an id; remembered."""
        with self._lock:
            if number not in self._schemas:
                self._schemas[number] = str(self._call(f"/schemas/ids/{number}")["schema"])
            return self._schemas[number]

    def _call(self, path: str, body: dict[str, object] | None = None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": CONTENT_TYPE, "Accept": CONTENT_TYPE}
        if self._authorization:
            headers["Authorization"] = self._authorization
        request = urllib.request.Request(self.url + path, data, headers)
        what = f"the schema registry at {self.url} refuses {path}"
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except urllib.error.HTTPError as error:
            said = _message(error.read().decode("utf-8", "replace"))
            advice = "make the schema compatible, or change the subject's rule" if error.code == 409 else ""
            raise PenstockError(what, said, advice, code=str(error.code)) from error
        except OSError as error:
            advice = "start it with `penstock gateway`, or correct PENSTOCK_REGISTRY"
            raise ConnectionFailed(f"the schema registry at {self.url} does not answer", str(error), advice) from error


def _message(body: str) -> str:
    """The error message in a registry's JSON."""
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return body


def framed(number: int, payload: bytes) -> bytes:
    """A value with the id of its schema in front.

    >>> framed(7, b"tea")
    b'\\x00\\x00\\x00\\x00\\x07tea'
    """
    return _FRAME.pack(MAGIC, number) + payload


def unframed(data: bytes, topic: str) -> tuple[int, bytes]:
    """The id of a value's schema, and the value.

    >>> unframed(b"\\x00\\x00\\x00\\x00\\x07tea", "orders")
    (7, b'tea')
    """
    if len(data) < _FRAME.size or data[0] != MAGIC:
        advice = "it was sent without the registry: read it with its plain type"
        raise SerializationFailed(f"a value of {topic} has no schema id in front", "", advice)
    return _FRAME.unpack_from(data)[1], data[_FRAME.size :]
