"""Asks a schema registry about ids by HTTP, one request per connection; answers are cached for a while."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from base64 import b64encode
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from penstock.config.node import NodeSettings
from penstock.core.schema_ids import NOT_REGISTERED, Registered, record_names
from penstock.runtime.env import Env

TIMEOUT_S = 5.0
BODY_BYTES_MAX = 8 * 1024 * 1024
REMEMBERED_MAX = 10_000
# A registered schema rarely goes away; an unknown one may be registered at any moment and is not cached.
KNOWN_MS = 300_000
NOT_FOUND = 404


class RegistryUnreachable(Exception):
    """None of the registry's addresses answered."""


class RegistryClient:
    """Looks up schema ids in a registry. Concurrent requests for one id are combined."""

    def __init__(
        self, env: Env, urls: Sequence[str], user_info: str | None = None, authorities: str | None = None
    ) -> None:
        """`user_info` is a user and password for HTTP Basic, `authorities` a PEM file."""
        self._authorization = f"Basic {b64encode(user_info.encode()).decode()}" if user_info else None
        self._authorities = authorities
        self._env = env
        self._urls = [url.rstrip("/") for url in urls]
        self._known: OrderedDict[int, tuple[int, Registered]] = OrderedDict()
        self._asking: dict[int, asyncio.Future[Registered]] = {}

    def remembered(self, schema_id: int) -> Registered | None:
        """The cached answer for an id."""
        known = self._known.get(schema_id)
        return known[1] if known is not None and known[0] > self._env.monotonic_ms() else None

    async def ask(self, schema_id: int) -> Registered:
        """The answer for an id, which may be cached; raises RegistryUnreachable."""
        known = self.remembered(schema_id)
        if known is not None:
            return known
        asking = self._asking.get(schema_id)
        if asking is None:
            asking = self._asking[schema_id] = asyncio.ensure_future(self.ask_anew(schema_id))
            asking.add_done_callback(lambda done: self._answered(schema_id, done))
        return await asyncio.shield(asking)

    async def ask_anew(self, schema_id: int) -> Registered:
        """The current answer for an id; raises RegistryUnreachable."""
        found = NOT_REGISTERED
        subjects = await self._get(f"/schemas/ids/{schema_id}/subjects")
        schema = await self._get(f"/schemas/ids/{schema_id}") if subjects else None
        if isinstance(subjects, list) and isinstance(schema, dict):
            names = record_names(str(schema.get("schemaType", "AVRO")), str(schema.get("schema", "")))
            found = Registered(frozenset(str(subject) for subject in subjects), frozenset(names))
            while len(self._known) >= REMEMBERED_MAX:
                self._known.popitem(last=False)
            self._known[schema_id] = (self._env.monotonic_ms() + KNOWN_MS, found)
        return found

    def _answered(self, schema_id: int, done: asyncio.Future[Registered]) -> None:
        del self._asking[schema_id]
        # The caller may have disconnected; the next one gets a new failure.
        if not done.cancelled():
            done.exception()

    async def _fetch(self, url: str, path: str) -> tuple[int, bytes]:
        is_secure = url.startswith("https://")
        # Read anew each time, which is rare, so that renewed authorities are used.
        context = ssl.create_default_context(cafile=self._authorities) if is_secure else None
        sent = f"Authorization: {self._authorization}\r\n" if self._authorization else ""
        return await _exchange(url, path, context, sent)

    async def _get(self, path: str) -> Any:
        """The JSON at a path, None for 404; the addresses are tried in turn."""
        reasons = []
        for url in self._urls:
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    status, body = await self._fetch(url, path)
                if status == NOT_FOUND:
                    return None
                if status == 200:
                    return json.loads(body)
                reasons.append(f"{url} answered with status {status}")
            except TimeoutError:
                reasons.append(f"{url} did not answer within {TIMEOUT_S:g} s")
            except (OSError, ValueError, EOFError) as error:
                reasons.append(f"{url}: {error}")
        raise RegistryUnreachable("; ".join(reasons))


async def _exchange(url: str, path: str, context: ssl.SSLContext | None, authorization: str) -> tuple[int, bytes]:
    """The status and the body of an answer."""
    parts = urlsplit(url)
    port = parts.port or (443 if context else 80)
    reader, writer = await asyncio.open_connection(parts.hostname or "", port, ssl=context, limit=BODY_BYTES_MAX)
    try:
        # HTTP/1.0, so that the body ends with the connection and is not chunked.
        head = f"GET {parts.path}{path} HTTP/1.0\r\nHost: {parts.netloc}\r\nAccept: */*\r\n{authorization}\r\n"
        writer.write(head.encode())
        line, *headers = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        words = line.split(" ", 2)
        if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdigit():
            raise ValueError("it does not speak HTTP")
        if any(header.lower().startswith("transfer-encoding:") for header in headers):
            raise ValueError("it answers in chunks, which HTTP/1.0 does not have")
        body = await reader.read(BODY_BYTES_MAX + 1)
        while more := await reader.read(BODY_BYTES_MAX + 1 - len(body)):
            body += more
        if len(body) > BODY_BYTES_MAX:
            raise ValueError(f"its answer is longer than {BODY_BYTES_MAX} bytes")
        return int(words[1]), body
    except asyncio.LimitOverrunError:
        raise ValueError("its answer's head is too long") from None
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def registry_client(env: Env, settings: NodeSettings) -> RegistryClient | None:
    """The client of the registry that a node's settings name; None if they name none."""
    urls = settings.confluent_schema_registry_url
    if not urls:
        return None
    return RegistryClient(
        env, urls, settings.confluent_basic_auth_user_info, settings.confluent_ssl_truststore_location
    )
