"""From a frame to a handler and back: header, version, decode, handle, encode.

A route is created once per API and version and cached. The peer's mistakes are `ProtocolError`s and close its
connection; any other exception that escapes a handler is a bug of ours: it is logged with its traceback and closes the
connection too, because the client could not make sense of a missing reply.

Every request is timed: from the moment its frame is complete to the moment its reply can be sent, and separately the
time that it was parked, waiting for other brokers, for records or for the disk.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from functools import partial
from inspect import iscoroutine
from struct import Struct
from struct import error as StructError
from time import perf_counter
from typing import Any, NamedTuple, Protocol, TypeVar

from penstock.api.context import NO_HEADER, Client, Handler, RepeatedHeader, Reply, RequestContext, settled
from penstock.api.forwarding import Forwarding, decoded_in_steps
from penstock.api.pieces import ROWS_READ_MAX, by_turns, has_many_rows
from penstock.api.response_errors import Finder, error_finder
from penstock.api.table import FORWARDED_KEYS
from penstock.api.work_timer import WorkTimer
from penstock.core.metrics.counters import FETCH_BY_CONSUMERS, FETCH_BY_FOLLOWERS, ApiCounters, RequestCounters
from penstock.core.security.audited_requests import AUDITED, is_change
from penstock.core.security.quotas import CONTROLLER_MUTATION_RATE, REQUEST_PERCENTAGE
from penstock.model.access import ANONYMOUS
from penstock.model.errors import ApiError, ProtocolError, Throttled
from penstock.runtime.replication.fetch_rows import is_follower
from penstock.runtime.security.audit import AuditTrail
from penstock.runtime.security.client_quotas import ClientQuotas
from penstock.wire.apis import APIS, ApiKey, request_class, response_class, response_header_version
from penstock.wire.codec import Steps, bounded_decoder, encoder, stepwise_decoder, stepwise_encoder
from penstock.wire.decoding import ENTRIES_UNLIMITED
from penstock.wire.frame import decode_request_header, encode_response
from penstock.wire.primitives import Buffer, MalformedMessage, TooManyEntries

_KEY_VERSION_ID = Struct(">HHi")
NUMBERS_BYTES = _KEY_VERSION_ID.size
# A longer header is not kept for the next request: a connection that is idle must not hold what its peer once sent.
HEADER_KEPT_BYTES_MAX = 512
_SIZE = Struct(">i")
# The most frequent handlers; they report their errors themselves, so that good responses need not be searched.
REPORTS_OWN_ERRORS = frozenset(("Produce", FETCH_BY_CONSUMERS))

# What counts against a consumer's quota.
FETCHING = frozenset((ApiKey.FETCH, ApiKey.SHARE_FETCH, ApiKey.TAKE_SHARE_RECORDS))
# Requests between brokers, which count against no quota; clients that send the same are charged for it.
BETWEEN_BROKERS: Collection[int] = frozenset(
    (
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        ApiKey.API_VERSIONS,
        ApiKey.INITIALIZE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE,
        ApiKey.WRITE_SHARE_GROUP_STATE,
        ApiKey.DELETE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    )
)

# Changes that count against a client's mutation quota (KIP-599), and since which version the controller refuses what is
# over it. Earlier ones it carries out, and throttles the client afterwards.
REFUSED_SINCE: Mapping[int, int] = {
    ApiKey.CREATE_TOPICS: 6,
    ApiKey.DELETE_TOPICS: 5,
    ApiKey.CREATE_PARTITIONS: 3,
}

# What nodes send each other about all the partitions that they share.
LARGE_BETWEEN_NODES: Collection[int] = frozenset(
    (
        *BETWEEN_BROKERS,
        ApiKey.FETCH,
        ApiKey.FETCH_SNAPSHOT,
        ApiKey.LIST_OFFSETS,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ALTER_PARTITION,
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
        ApiKey.BROKER_REGISTRATION,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.CONTROLLER_REGISTRATION,
        ApiKey.ENVELOPE,
    )
)
# Those of them that clients send rarely and about little, if at all.
SMALL_FOR_CLIENTS: Collection[int] = frozenset(LARGE_BETWEEN_NODES) - {
    ApiKey.API_VERSIONS,
    ApiKey.FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    ApiKey.ADD_PARTITIONS_TO_TXN,
}
SMALL_ENTRIES_MAX = 1_000
# Those that are decided in one step, since a coordinator's or the controller's state must not change meanwhile. They
# may have so many times fewer elements.
DECIDED_AT_ONCE: Collection[int] = frozenset(
    (
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        ApiKey.JOIN_GROUP,
        ApiKey.SHARE_GROUP_HEARTBEAT,
        ApiKey.TXN_OFFSET_COMMIT,
    )
)
DECIDED_AT_ONCE_PART = 3
# Frequent ones whose responses have few elements where their requests have.
SHORT_ANSWERS: Collection[int] = frozenset(
    (
        ApiKey.PRODUCE,
        ApiKey.FETCH,
        ApiKey.HEARTBEAT,
        ApiKey.OFFSET_COMMIT,
        ApiKey.API_VERSIONS,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.ENVELOPE,
    )
)
UNLIMITED_BYTES = 2**31 - 1

T = TypeVar("T")
PrincipalOf = Callable[[Mapping[str, object]], str]

logger = logging.getLogger("penstock.api")


class Route(NamedTuple):
    """Everything needed to serve one API in one version."""

    api_key: int
    decode: Callable[[Buffer, int, int], tuple[Any, int]]
    handle: Handler
    response: type[Any]
    encode: Callable[[Any, list[Buffer]], None]
    # As `decode` and `encode`, for requests and responses with many elements; made with the first of them.
    decode_steps: Callable[[], Callable[[Buffer, int, int], Steps[tuple[Any, int]]]]
    encode_steps: Callable[[], Callable[[object, list[Buffer]], Steps[None]]]
    # Whether its responses may have many elements though the request has few.
    may_list: bool
    header_version: int
    version: int
    forwarding: Forwarding | None
    # Not measured against quotas, if the client is exempt.
    is_between_brokers: bool
    counters: ApiCounters
    # Finds the errors in a response; None where there cannot be any.
    errors: Finder | None
    # The largest request, except from other nodes.
    bytes_max: int
    # The most elements in its arrays, except from other nodes.
    entries_max: int
    # With more it is served in turns with other clients.
    entries_at_once_max: int
    # The same for fetches by followers, which have different meaning and timing.
    of_followers: Route | None


class RequestLimits(NamedTuple):
    """The largest requests of clients: in bytes, except Produce, and in elements of all arrays together."""

    bytes_max: int = 1024 * 1024
    entries_max: int = 30_000

    def entries_of(self, api_key: int) -> int:
        """The most elements in the arrays of a client's request of one API."""
        if api_key in SMALL_FOR_CLIENTS:
            return min(self.entries_max, SMALL_ENTRIES_MAX)
        return self.entries_max // DECIDED_AT_ONCE_PART if api_key in DECIDED_AT_ONCE else self.entries_max


DEFAULT_LIMITS = RequestLimits()


class Dispatcher:
    """Routes for every API that this listener serves. Shared by all its connections.

    With `forwarding`, requests that need the active controller are sent there unless it is in this process.
    """

    def __init__(
        self,
        handlers: Mapping[int, Handler],
        versions: Mapping[int, tuple[int, int]],
        forwarding: Forwarding | None = None,
        counters: RequestCounters | None = None,
        clock: Callable[[], float] = perf_counter,
        followers_fetch: str = FETCH_BY_FOLLOWERS,
        quotas: ClientQuotas | None = None,
        audit: AuditTrail | None = None,
        between_brokers: Collection[int] = BETWEEN_BROKERS,
        is_exempt: Callable[[Client], bool] = lambda _: True,
        limits: RequestLimits = DEFAULT_LIMITS,
    ) -> None:
        """`followers_fetch` is the counter for fetches by other nodes. Without `quotas` no client is throttled.

        `audit` receives the changes to the cluster. Quotas don't apply to the APIs `between_brokers`, for clients that
        are really exempt, and do not only claim to be brokers.
        """
        self._handlers = handlers
        self._versions = versions
        self._forwarding = forwarding
        self.counters = counters or RequestCounters()
        self._clock = clock
        self._followers_fetch = followers_fetch
        self._quotas = quotas
        self._audit = audit if audit is not None and audit.is_on else None
        self._between_brokers = between_brokers
        self._is_exempt = is_exempt
        self._limits = limits
        self._routes: dict[int, Route] = {}
        self._tasks: set[asyncio.Task[object]] = set()

    def session(
        self,
        listener_name: str,
        address: tuple[str, int],
        security_protocol: str = "PLAINTEXT",
        principal_of: PrincipalOf | None = None,
    ) -> ClientSession:
        """The session of a new connection. `principal_of` returns the principal of a certificate."""
        client = Client(address, listener_name, security_protocol=security_protocol)
        return ClientSession(self, client, principal_of)

    def answer(self, frame: bytearray, client: Client) -> Reply | asyncio.Future[Reply | None] | None:
        """Serve one frame; raises Throttled if it is too early for that.

        Handlers do not keep the frame's records once they have returned.
        """
        started = self._clock()
        try:
            api_key, version, correlation_id = _KEY_VERSION_ID.unpack_from(frame)
        except StructError:
            raise MalformedMessage("a request is shorter than its header") from None
        route = self._routes.get(api_key << 16 | version)
        if route is None:
            route = self._find_route(api_key, version)
            if route is None:
                return self._unsupported(api_key, version, correlation_id, client, started)
        last_route, last_header, context, position = client.last_header
        if last_route is not route or not frame.startswith(last_header, NUMBERS_BYTES):
            context, position = _read_header(frame, route, client)
        if not client.has_waited:
            self._wait_for_quotas(route, context)
        if route.forwarding is not None and self._quotas is not None and self._quotas.are_set:
            self._wait_for_controller(self._quotas, route, context)
        if len(frame) > route.bytes_max:
            self._check_size(route, len(frame), client)
        # Like Kafka we ignore bytes after the message: librdkafka sends some after a Metadata request.
        try:
            request, _ = route.decode(frame, position, route.entries_at_once_max)
        except TooManyEntries:
            return self._answer_in_turns(frame, position, context, route, correlation_id, started)
        if route.forwarding is not None:
            timer = WorkTimer(self._clock)
            return self._own(timer.measured(self._decide(bytes(frame), request, context, route, started, timer)))
        if route.of_followers is not None and is_follower(request):
            route = route.of_followers
        response = route.handle(request, context)
        if type(response) is not route.response and (isinstance(response, asyncio.Future) or iscoroutine(response)):
            return self._park(response, route, context, correlation_id, len(frame), started)
        return self._finish(response, route, context, correlation_id, len(frame), started)

    def _answer_in_turns(
        self,
        frame: bytearray,
        position: int,
        context: RequestContext,
        route: Route,
        correlation_id: int,
        started: float,
    ) -> asyncio.Task[Reply | None]:
        """Serve a request with many elements, so that other clients get their turns in between."""
        timer = WorkTimer(self._clock)
        work = self._own(
            timer.measured(self._serve_in_turns(frame, position, context, route, correlation_id, started, timer))
        )
        if route.api_key != ApiKey.PRODUCE:
            return work

        async def answered() -> Reply | None:
            # Records are stored even if the producer has gone.
            return await asyncio.shield(work)

        return self._own(answered())

    async def _serve_in_turns(
        self,
        frame: bytearray,
        position: int,
        context: RequestContext,
        route: Route,
        correlation_id: int,
        started: float,
        timer: WorkTimer,
    ) -> Reply | None:
        may_be_large = self._may_be_large(route, context.client)
        try:
            steps = route.decode_steps()(frame, position, ENTRIES_UNLIMITED if may_be_large else route.entries_max)
            request, _ = await by_turns(steps)
        except TooManyEntries:
            raise ProtocolError(
                f"{APIS[route.api_key].name} with more than {route.entries_max} elements in its arrays "
                "(penstock.request.entries.max)"
            ) from None
        if route.forwarding is not None:
            return await self._decide(bytes(frame), request, context, route, started, timer)
        if route.of_followers is not None and is_follower(request):
            route = route.of_followers
        response = await self._handled(request, context, route)
        waited_s = self._clock() - started - timer.spent_s
        return await self._finish_in_turns(response, route, context, correlation_id, len(frame), started, waited_s)

    async def _handled(self, request: object, context: RequestContext, route: Route) -> object:
        while True:
            try:
                return await settled(route.handle(request, context))
            except Throttled as throttled:
                await asyncio.sleep(throttled.delay_ms / 1000)

    def _check_size(self, route: Route, size_bytes: int, client: Client) -> None:
        """Raises ProtocolError for a request that is too large, unless it comes from another node."""
        if not self._may_be_large(route, client):
            raise ProtocolError(
                f"{APIS[route.api_key].name} of {size_bytes} bytes; {route.bytes_max} are accepted "
                "(penstock.request.bytes.max)"
            )

    def _may_be_large(self, route: Route, client: Client) -> bool:
        return route.api_key in LARGE_BETWEEN_NODES and self._is_exempt(client)

    def _wait_for_quotas(self, route: Route, context: RequestContext) -> None:
        """Raises Throttled for the first request of a connection whose client is throttled.

        Without that a client would evade its quotas by connecting again for each request.
        """
        client = context.client
        if (route.is_between_brokers or route.of_followers is not None) and self._is_exempt(client):
            return
        client.has_waited = True
        if self._quotas is None or not self._quotas.are_set or client.mute is None:
            return
        throttled_ms = self._quotas.throttled_ms(client, context.client_id or "")
        if throttled_ms:
            raise Throttled(throttled_ms)

    @staticmethod
    def _wait_for_controller(quotas: ClientQuotas, route: Route, context: RequestContext) -> None:
        """Raises Throttled for a decision of a client that the active controller throttles.

        It mutes the connection of the request that was too much; without this a client would send the next one by
        another connection.
        """
        is_refused = context.api_version >= REFUSED_SINCE.get(route.api_key, 0)
        keys = (REQUEST_PERCENTAGE,) if is_refused else (REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
        held_ms = quotas.held_ms(keys, context.client, context.client_id or "")
        if held_ms:
            raise Throttled(held_ms)

    def _throttled_by_controller(self, route: Route, context: RequestContext, throttle_ms: int) -> None:
        _mute(context.client, throttle_ms)
        if throttle_ms > 0 and self._quotas is not None and self._quotas.are_set:
            key = CONTROLLER_MUTATION_RATE if route.api_key in REFUSED_SINCE else REQUEST_PERCENTAGE
            self._quotas.hold(key, context.client, context.client_id or "", throttle_ms)

    def _finish(
        self,
        response: Any,
        route: Route,
        context: RequestContext,
        correlation_id: int,
        size_bytes: int,
        started: float,
        waited_s: float | None = None,
    ) -> Reply | asyncio.Task[Reply | None] | None:
        """What is sent for a response; None if the request has no reply."""
        may_have_many = route.may_list or (waited_s is not None and route.api_key == ApiKey.FETCH)
        if may_have_many and response is not None and has_many_rows(response):
            waited_s = waited_s or 0.0
            return self._own(
                self._finish_in_turns(response, route, context, correlation_id, size_bytes, started, waited_s)
            )
        if self._quotas is not None and self._quotas.are_set and route.forwarding is None:
            work_s = self._clock() - started - (waited_s or 0.0)
            response = self._charge(self._quotas, response, route, context, size_bytes, work_s)
        reply = None
        if response is not None:
            if route.errors is not None:
                route.errors(response, route.counters.failed)
            body: list[Buffer] = []
            route.encode(response, body)
            reply = encode_response(correlation_id, route.header_version, body)
        if waited_s is None:
            route.counters.answered(self._clock() - started)
        else:
            route.counters.answered_late(self._clock() - started, waited_s)
        return reply

    async def _finish_in_turns(
        self,
        response: Any,
        route: Route,
        context: RequestContext,
        correlation_id: int,
        size_bytes: int,
        started: float,
        waited_s: float,
    ) -> Reply | None:
        """As `_finish`, for a response with many elements."""
        if self._quotas is not None and self._quotas.are_set and route.forwarding is None:
            work_s = self._clock() - started - waited_s
            response = self._charge(self._quotas, response, route, context, size_bytes, work_s)
        reply = None
        if response is not None:
            if route.errors is not None:
                route.errors(response, route.counters.failed)
            body: list[Buffer] = []
            await by_turns(route.encode_steps()(response, body))
            reply = encode_response(correlation_id, route.header_version, body)
        route.counters.answered_late(self._clock() - started, waited_s)
        return reply

    def _charge(
        self,
        quotas: ClientQuotas,
        response: Any,
        route: Route,
        context: RequestContext,
        size_bytes: int,
        work_s: float,
    ) -> object:
        """Measure a request; a client over its quota gets the throttle time in the response, and is throttled."""
        if route.is_between_brokers and self._is_exempt(context.client):
            return response
        client_id = context.client_id or ""
        throttle_ms = quotas.worked(context.client, client_id, work_s)
        if route.api_key == ApiKey.PRODUCE:
            throttle_ms = max(throttle_ms, quotas.produced(context.client, client_id, size_bytes))
        elif route.api_key in FETCHING and response is not None:
            throttle_ms = max(throttle_ms, quotas.fetched(context.client, client_id, response))
        if not throttle_ms:
            return response
        _mute(context.client, throttle_ms)
        present = getattr(response, "throttle_time_ms", None)
        return response if present is None else response._replace(throttle_time_ms=max(present, throttle_ms))

    def _find_route(self, api_key: int, version: int) -> Route | None:
        allowed = self._versions.get(api_key)
        if allowed is None or not allowed[0] <= version <= allowed[1]:
            return None
        # Produce 0-2 are advertised, as in Kafka for old clients' checks, but not served.
        if version < APIS[api_key].first_version:
            return None
        name = FETCH_BY_CONSUMERS if api_key == ApiKey.FETCH else APIS[api_key].name
        response = response_class(api_key)
        errors = error_finder(response) if self.counters.is_on else None
        forwarding = self._forwarding if api_key in FORWARDED_KEYS else None
        handle = self._handlers[api_key]
        if self._audit is not None and api_key in AUDITED and forwarding is None:
            handle = _audited(self._audit, api_key, handle)
        route = Route(
            api_key,
            bounded_decoder(request_class(api_key), version),
            handle,
            response,
            encoder(response, version),
            partial(stepwise_decoder, request_class(api_key), version),
            partial(stepwise_encoder, response, version),
            api_key not in SHORT_ANSWERS,
            response_header_version(api_key, version),
            version,
            forwarding,
            api_key in self._between_brokers,
            self.counters.api(name),
            None if name in REPORTS_OWN_ERRORS else errors,
            UNLIMITED_BYTES if api_key == ApiKey.PRODUCE else self._limits.bytes_max,
            self._limits.entries_of(api_key),
            min(self._limits.entries_max, ROWS_READ_MAX),
            None,
        )
        if api_key == ApiKey.FETCH:
            counters = self.counters.api(self._followers_fetch)
            followed = route._replace(counters=counters, errors=errors, is_between_brokers=True)
            route = route._replace(of_followers=followed)
        self._routes[api_key << 16 | version] = route
        return route

    def _unsupported(
        self, api_key: int, version: int, correlation_id: int, client: Client, started: float
    ) -> Reply | asyncio.Task[Reply | None] | None:
        """A client that requests a newer ApiVersions gets the supported versions in version 0."""
        route = self._find_route(api_key, 0) if api_key == ApiKey.API_VERSIONS else None
        if route is None:
            name = APIS[api_key].name if api_key in APIS else f"API {api_key}"
            raise ProtocolError(f"{name} version {version} is not served here")
        context = RequestContext(version, None, client)
        return self._finish(route.handle(None, context), route, context, correlation_id, 0, started)

    async def _decide(
        self, frame: bytes, request: Any, context: RequestContext, route: Route, started: float, timer: WorkTimer
    ) -> Reply | None:
        """Have the active controller answer; without one the client gets the error in its own API's form.

        The controller charges the client for a request that is forwarded.
        """
        forwarding = route.forwarding
        assert forwarding is not None
        api_key, _, correlation_id = _KEY_VERSION_ID.unpack_from(frame)
        response = await settled(route.handle(request, context)) if forwarding.is_active() else None
        if response is None or not forwarding.is_active():
            # A controller that loses leadership meanwhile calls its successor: many clients don't retry.
            try:
                answer = await forwarding.forward(frame, request, context.client)
                route.counters.answered(self._clock() - started)
                self._throttled_by_controller(route, context, forwarded_throttle_ms(answer, route))
                if self._audit is not None and api_key in AUDITED and is_change(api_key, request):
                    told = await by_turns(decoded_in_steps(answer, api_key, route.version))
                    self._audit.changed(context.client, api_key, request, told)
                return [_SIZE.pack(len(answer)) + answer]
            except ApiError:
                if response is None:
                    response = await settled(forwarding.unavailable[api_key](request, context))
        self._throttled_by_controller(route, context, getattr(response, "throttle_time_ms", 0))
        if self._quotas is not None and self._quotas.are_set:
            response = self._charge(self._quotas, response, route, context, len(frame), timer.spent_s)
        if self._audit is not None and api_key in AUDITED:
            self._audit.changed(context.client, api_key, request, response)
        reply = self._finish(response, route, context, correlation_id, len(frame), started)
        return await reply if isinstance(reply, asyncio.Task) else reply

    def _own(self, work: Coroutine[object, object, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _park(
        self,
        response: Awaitable[Any],
        route: Route,
        context: RequestContext,
        correlation_id: int,
        size_bytes: int,
        started: float,
    ) -> asyncio.Future[Reply | None]:
        """A future of what `_finish` returns for a response that comes later."""
        timer: WorkTimer | None = None
        if iscoroutine(response):
            timer = WorkTimer(self._clock)
            waiting: asyncio.Future[object] = self._own(timer.measured(response))
        else:
            assert isinstance(response, asyncio.Future)
            waiting = response
        reply: asyncio.Future[Reply | None] = asyncio.get_running_loop().create_future()
        route.counters.parked += 1
        parked = self._clock()

        def finish(done: asyncio.Future[object]) -> None:
            route.counters.parked -= 1
            waited_s = self._clock() - parked
            if timer is not None:
                waited_s -= timer.spent_s
            if done.cancelled():
                reply.cancel()
                return
            error = done.exception()
            if reply.done():
                return
            if error is None:
                try:
                    response = done.result()
                    last = self._finish(response, route, context, correlation_id, size_bytes, started, waited_s)
                    if isinstance(last, asyncio.Task):
                        last.add_done_callback(partial(_pass_on, reply))
                    else:
                        reply.set_result(last)
                    return
                except Exception as problem:  # noqa: BLE001 - the connection must get it, or it waits forever
                    error = problem
            reply.set_exception(error)

        def abandon(done: asyncio.Future[Reply | None]) -> None:
            # Records are stored even if the producer has gone: with acks=0 it does not wait for that.
            if done.cancelled() and route.api_key != ApiKey.PRODUCE:
                waiting.cancel()

        waiting.add_done_callback(finish)
        reply.add_done_callback(abandon)
        return reply


class Mutable(Protocol):
    """A connection, as far as quotas need it."""

    def mute(self, duration_ms: int) -> None: ...


class ClientSession:
    """One connection's session with the dispatcher."""

    __slots__ = ("_dispatcher", "_principal_of", "client")

    is_signed_in = True

    def __init__(self, dispatcher: Dispatcher, client: Client, principal_of: PrincipalOf | None = None) -> None:
        self._dispatcher = dispatcher
        self._principal_of = principal_of
        self.client = client

    @property
    def owner(self) -> str:
        """Its user, or the address of one without a name."""
        return self.client.host if self.client.principal == ANONYMOUS else self.client.principal

    def opened(self, connection: Mutable, certificate: Mapping[str, object] | None) -> None:
        """The connection is open; the principal is that of its certificate, if it has one."""
        self.client.mute = connection.mute
        if certificate and self._principal_of is not None:
            self.client.principal = self._principal_of(certificate)

    def answer(self, frame: bytearray) -> Reply | asyncio.Future[Reply | None] | None:
        """Serve one frame; raises ProtocolError when the connection should be closed, Throttled to be asked again."""
        try:
            return self._dispatcher.answer(frame, self.client)
        except Throttled:
            raise
        except ProtocolError:
            self._dispatcher.counters.refused += 1
            raise
        except Exception as error:
            self._dispatcher.counters.refused += 1
            logger.exception("a request of %s:%d could not be served; this is a bug", *self.client.address)
            raise ProtocolError("an internal error") from error

    def closed(self) -> None:
        """The connection has closed. It cancels its parked replies itself."""
        self.client.closed()


def _pass_on(reply: asyncio.Future[Reply | None], done: asyncio.Future[Reply | None]) -> None:
    """Answer as another future does."""
    if done.cancelled():
        reply.cancel()
        return
    error = done.exception()
    if reply.done():
        return
    if error is None:
        reply.set_result(done.result())
    else:
        reply.set_exception(error)


def _read_header(frame: bytearray, route: Route, client: Client) -> tuple[RequestContext, int]:
    """The context of a request, and where its body begins."""
    header, position = decode_request_header(frame)
    client.api_key, client.client_id = header.api_key, header.client_id
    context = RequestContext(route.version, header.client_id, client)
    if position <= HEADER_KEPT_BYTES_MAX:
        client.last_header = RepeatedHeader(route, bytes(frame[NUMBERS_BYTES:position]), context, position)
    else:
        client.last_header = NO_HEADER
    return context, position


def _audited(audit: AuditTrail, api_key: int, handle: Handler) -> Handler:
    """A handler whose changes are recorded in the audit trail."""

    def audited(request: Any, context: RequestContext) -> object:
        response = handle(request, context)
        if not is_change(api_key, request):
            return response
        if isinstance(response, asyncio.Future) or iscoroutine(response):
            return tell_later(response, request, context)
        audit.changed(context.client, api_key, request, response)
        return response

    async def tell_later(response: Awaitable[Any], request: object, context: RequestContext) -> object:
        settled = await response
        audit.changed(context.client, api_key, request, settled)
        return settled

    return audited


def _mute(client: Client, throttle_ms: int) -> None:
    """Serve no further request of a throttled client for this long (KIP-219)."""
    if throttle_ms > 0 and client.mute is not None:
        client.mute(throttle_ms)


def forwarded_throttle_ms(answer: bytes, route: Route) -> int:
    """The throttle time in a response, header included, that the controller wrote; 0 if it has none."""
    fields = response_class(route.api_key)._fields
    if fields[0] != "throttle_time_ms":
        return 0
    # A correlation id, and an empty set of tagged fields in flexible versions.
    (throttle_ms,) = _SIZE.unpack_from(answer, 4 + route.header_version)
    return int(throttle_ms)
