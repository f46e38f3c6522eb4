"""Asks a schema registry about ids by HTTP; answers are cached for a while.

Theory of operation. Ids to look up wait in a queue, in which the topics that use them take turns. At most
`CONNECTIONS_MAX` tasks work on it, each with one connection, which it closes when nothing waits any more; so a batch
full of ids costs neither descriptors nor TLS handshakes, and delays other topics' lookups by a few at most. All that
want an id before its lookup has started share the answer. If no address of the registry can be reached, everything
that waits fails, so that producers learn it at once and try again.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from base64 import b64encode
from collections.abc import Sequence

from penstock.config.node import NodeSettings
from penstock.core.fairness import FairCache, FairQueue
from penstock.core.schema_ids import NOT_REGISTERED, Registered, record_names
from penstock.runtime.env import Env
from penstock.runtime.schemas.http_connection import BadAnswer, ConnectionEnded, HttpConnection

TIMEOUT_S = 5.0
# With the time in the queue.
LOOK_UP_TIMEOUT_S = 20.0
CONNECTIONS_MAX = 8
# Ids that wait to be looked up: for one topic, and altogether.
WAITING_PER_TOPIC_MAX = 5_000
WAITING_MAX = 50_000
# Answers that are kept, each for the topic that asked first.
REMEMBERED_MAX = 10_000
REMEMBERED_BYTES_MAX = 32 * 1024 * 1024
# The approximate size of an answer and of each of its names, besides their letters.
ENTRY_BYTES, NAME_BYTES = 600, 100
# A registered schema rarely goes away; an unknown one may be registered at any moment and is not cached.
KNOWN_MS = 300_000
OK, NOT_FOUND = 200, 404


class RegistryUnreachable(Exception):
    """None of the registry's addresses answered."""


class RegistryClient:
    """Looks up schema ids in a registry."""

    def __init__(
        self, env: Env, urls: Sequence[str], user_info: str | None = None, authorities: str | None = None
    ) -> None:
        """`user_info` is a user and password for HTTP Basic, `authorities` a PEM file."""
        self._authorization = f"Basic {b64encode(user_info.encode()).decode()}" if user_info else None
        self._authorities = authorities
        self._env = env
        self._urls = [url.rstrip("/") for url in urls]
        self._known: FairCache[str, int, tuple[int, Registered]] = FairCache(REMEMBERED_MAX, REMEMBERED_BYTES_MAX)
        self._queue: FairQueue[str, int] = FairQueue()
        # What those that wait in the queue will get.
        self._waiting: dict[int, asyncio.Future[Registered]] = {}
        self._workers = 0

    def remembered(self, schema_id: int) -> Registered | None:
        """The cached answer for an id."""
        known = self._known.get(schema_id)
        return known[1] if known is not None and known[0] > self._env.monotonic_ms() else None

    async def look_up(self, topic: str, schema_id: int) -> Registered:
        """The answer for an id that a topic uses, given after this call; raises RegistryUnreachable."""
        waiting = self._waiting.get(schema_id)
        if waiting is None:
            if self._queue.length(topic) >= WAITING_PER_TOPIC_MAX or len(self._queue) >= WAITING_MAX:
                raise RegistryUnreachable("too many schema ids are waiting to be looked up")
            waiting = self._waiting[schema_id] = asyncio.get_running_loop().create_future()
            waiting.add_done_callback(_ignore_failure)
            self._queue.put(topic, schema_id)
            if self._workers < CONNECTIONS_MAX:
                self._workers += 1
                self._env.spawn(self._work(), "schema registry")
        try:
            async with asyncio.timeout(LOOK_UP_TIMEOUT_S):
                return await asyncio.shield(waiting)
        except TimeoutError:
            raise RegistryUnreachable(f"it did not answer within {LOOK_UP_TIMEOUT_S:g} s") from None

    async def _work(self) -> None:
        """Look up what waits, until nothing does."""
        addresses = [_Address(self._env, url, self._authorization, self._authorities) for url in self._urls]
        try:
            while self._queue:
                topic, schema_id = self._queue.take()
                waiting = self._waiting.pop(schema_id)
                try:
                    waiting.set_result(await self._answer(addresses, topic, schema_id))
                except _NoneReached as error:
                    waiting.set_exception(error)
                    self._fail_waiting(str(error))
                except RegistryUnreachable as error:
                    waiting.set_exception(error)
                finally:
                    if not waiting.done():
                        waiting.set_exception(RegistryUnreachable("the lookup was aborted"))
        finally:
            self._workers -= 1
            for address in addresses:
                address.close()

    def _fail_waiting(self, why: str) -> None:
        while self._queue:
            _, schema_id = self._queue.take()
            self._waiting.pop(schema_id).set_exception(RegistryUnreachable(why))

    async def _answer(self, addresses: Sequence[_Address], topic: str, schema_id: int) -> Registered:
        subjects = await _get(addresses, f"/schemas/ids/{schema_id}/subjects")
        schema = await _get(addresses, f"/schemas/ids/{schema_id}") if subjects else None
        if not isinstance(subjects, list) or not isinstance(schema, dict):
            self._known.pop(schema_id)
            return NOT_REGISTERED
        names = record_names(str(schema.get("schemaType", "AVRO")), str(schema.get("schema", "")))
        found = Registered(frozenset(str(subject) for subject in subjects), frozenset(names))
        size = ENTRY_BYTES + sum(NAME_BYTES + len(name) for names in found for name in names)
        self._known.put(topic, schema_id, (self._env.monotonic_ms() + KNOWN_MS, found), size)
        return found


class _NoneReached(RegistryUnreachable):
    """No connection to any address: the same will happen to other lookups."""


class _Address:
    """One of the registry's addresses, and the worker's connection to it."""

    def __init__(self, env: Env, url: str, authorization: str | None, authorities: str | None) -> None:
        self.url = url
        # Whether the last attempt to connect succeeded.
        self.is_reached = False
        self._env = env
        self._authorization = authorization
        self._authorities = authorities
        self._connection: HttpConnection | None = None

    async def get(self, path: str) -> tuple[int, bytes]:
        """The status and the body of an answer."""
        connection = self._connection
        if connection is not None:
            try:
                return await self._exchange(connection, path)
            except ConnectionEnded:
                # A server may close a connection between two requests.
                self._connection = None
        return await self._exchange(await self._connect(), path)

    async def _exchange(self, connection: HttpConnection, path: str) -> tuple[int, bytes]:
        self._connection = None
        try:
            answer = await connection.get(path)
        except BaseException:
            connection.close()
            raise
        if connection.is_reusable:
            self._connection = connection
        else:
            connection.close()
        return answer

    async def _connect(self) -> HttpConnection:
        context = None
        self.is_reached = False
        try:
            if self.url.startswith("https://"):
                # Read for each connection, so that renewed authorities are used; off the loop, because it takes long.
                context = await self._env.run_blocking(lambda: ssl.create_default_context(cafile=self._authorities))
            connection = await HttpConnection.open(self.url, context, self._authorization)
        except OSError as error:
            raise _NotReached(str(error)) from None
        self.is_reached = True
        return connection

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()


class _NotReached(Exception):
    """The connection to an address failed."""


async def _get(addresses: Sequence[_Address], path: str) -> object:
    """The JSON at a path, None for 404; the addresses are tried in turn."""
    reasons = []
    for address in addresses:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                status, body = await address.get(path)
            if status == NOT_FOUND:
                return None
            if status == OK:
                return json.loads(body)
            reasons.append(f"{address.url} answered with status {status}")
        except TimeoutError:
            reasons.append(f"{address.url} did not answer within {TIMEOUT_S:g} s")
        except _NotReached as error:
            reasons.append(f"{address.url}: {error}")
        except (OSError, ValueError, RecursionError, BadAnswer, ConnectionEnded) as error:
            reasons.append(f"{address.url}: {error}")
    is_reached = any(address.is_reached for address in addresses)
    raise (RegistryUnreachable if is_reached else _NoneReached)("; ".join(reasons))


def _ignore_failure(done: asyncio.Future[Registered]) -> None:
    """The clients that waited may have disconnected."""
    if not done.cancelled():
        done.exception()


def registry_client(env: Env, settings: NodeSettings) -> RegistryClient | None:
    """The client of the registry that a node's settings name; None if they name none."""
    urls = settings.confluent_schema_registry_url
    if not urls:
        return None
    return RegistryClient(
        env, urls, settings.confluent_basic_auth_user_info, settings.confluent_ssl_truststore_location
    )
