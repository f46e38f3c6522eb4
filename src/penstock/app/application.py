"""`App`: functions for topics."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import signal
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar, overload

from penstock.app.binding import bind
from penstock.app.context import Message
from penstock.app.counters import SubscriptionCounters
from penstock.app.policy import Backoff, RetryPolicy
from penstock.app.processing.handler_caller import HandlerCaller
from penstock.app.processing.kafka import KafkaReplies
from penstock.app.processing.worker import Worker
from penstock.app.requests import Replies, Requests
from penstock.app.schemas import AppSchemas, SchemaKind, output_type, register
from penstock.app.subscription import Guarantee, Start, Subscription
from penstock.app.tracing import Tracer
from penstock.client.application.connection import Connection
from penstock.client.application.delivery import encode_any
from penstock.client.application.errors import PenstockError, SerializationFailed
from penstock.client.application.records import Headers
from penstock.client.application.registry import Registry

V = TypeVar("V")
Handler = TypeVar("Handler", bound=Callable[..., Any])
Middleware = TypeVar("Middleware", bound=Callable[..., Any])
Lifespan = Callable[["App"], AbstractAsyncContextManager[Any]]

WORKER_VARIABLE = "PENSTOCK_WORKER"
logger = logging.getLogger("penstock.app")


class App:
    """Functions that process the records of topics, and everything around them.

    `name` is also the consumer group of subscriptions that name none. `lifespan` is an async context manager as in
        Starlette: the value it yields is `Context.state`. `tracing` carries traces from record to record. With
        `schemas`, "json" or "avro", values of types with fields have their schemas in the connection's registry.

        >>> app = App("billing")
        >>> @app.subscribe("orders", retries=5, backoff="exponential", dead_letters=True, publish="invoices")
        ... def bill(order: dict) -> dict:
        ...     return {"total": order["amount"] * 2}
        >>> [subscription.name for subscription in app.subscriptions]
        ['bill']
    """

    def __init__(
        self,
        name: str,
        connection: Connection | str | None = None,
        *,
        lifespan: Lifespan | None = None,
        tracing: bool = True,
        schemas: SchemaKind | None = None,
        title: str = "",
        version: str = "0.1.0",
    ) -> None:
        self.name = name
        self.title = title or name
        self.version = version
        self._connection = connection
        self._lifespan = lifespan
        self._tracing = tracing
        self.schemas = schemas
        self._serdes: AppSchemas | None = None
        self._middleware: list[Callable[..., Any]] = []
        self.subscriptions: list[Subscription] = []
        self.counters: dict[str, SubscriptionCounters] = {}
        self._worker: Worker | None = None
        self._requests: Requests | None = None

    @property
    def connection(self) -> Connection:
        """The connection to the brokers: as given, or from the environment when the application starts.

        >>> App("billing", "broker:9092").connection.bootstrap
        'broker:9092'
        """
        return Connection.of(self._connection)

    def subscribe(
        self,
        *topics: str,
        retries: int = 3,
        backoff: Backoff = "exponential",
        delay_s: float = 1.0,
        delay_s_max: float = 60.0,
        give_up_on: tuple[type[BaseException], ...] = (),
        dead_letters: bool | str = True,
        publish: str | None = None,
        reply: bool = False,
        guarantee: Guarantee = "at-least-once",
        group: str | None = None,
        share: bool = False,
        concurrency: int = 1,
        batch_size: int = 500,
        batch_wait_s: float = 0.0,
        commit_interval_s: float | None = None,
        start: Start = "earliest",
        value: Any = None,
        name: str | None = None,
    ) -> Callable[[Handler], Handler]:
        """Let a function process the records of topics.

        Its first parameter's type determines what it receives: a value (`Order`, `dict`, `str`, `bytes`), a
        `Record[Order]` with key and headers, or a batch: `list[Order]`, `list[Record[Order]]`, a pyarrow.Table, a
        pandas.DataFrame. Further parameters are a `Context`, or `Annotated[T, Depends(function)]`.

        A record that fails is tried `retries` more times, with pauses by `backoff` from `delay_s` on, while records
        with other keys are processed; then it goes to the dead letters (`dlq.` and its topic's name, or the topic that
        `dead_letters` names) with the reason in its headers. Values that cannot be decoded go there at once, and so do
        records whose handler raises one of `give_up_on`.

        What the function returns is sent to `publish`, with the record's key; with `reply` to the topic that the
        record's header `reply-topic` names. `guarantee="exactly-once"` stores sent messages and the record's offset in
        one transaction. Commits are `commit_interval_s` apart: 0.2, and 0.02 for exactly once, whose consumers wait for
        them. `concurrency` records with different keys are processed at a time. `share` takes the records
        as a work queue, in a share group.

        >>> app = App("billing")
        >>> @app.subscribe("orders", guarantee="exactly-once", publish="invoices", concurrency=8)
        ... async def bill(order: dict) -> dict:
        ...     return {"total": order["amount"] * 2}
        """

        def register(handler: Handler) -> Handler:
            # Annotations are strings, and may name local variables of the scope where the function is defined.
            frame = inspect.currentframe()
            label = name or str(getattr(handler, "__name__", "handler"))
            if label in self.counters:
                raise PenstockError(
                    f"there are two subscriptions {label}", "", "name one of them: subscribe(…, name=…)"
                )
            for function in self._middleware:
                _check_wraps(function, handler)
            # Consumers read messages of a transaction only after its commit.
            interval_s = 0.02 if guarantee == "exactly-once" else 0.2
            policy = RetryPolicy(
                retries, backoff, delay_s, delay_s_max, (SerializationFailed, *give_up_on), dead_letters
            )
            self.subscriptions.append(
                Subscription(
                    label,
                    topics,
                    self._group_for(label, group or self.name, topics, share),
                    bind(handler, value, frame.f_back.f_locals if frame is not None and frame.f_back else None),
                    policy,
                    publish,
                    reply,
                    share,
                    guarantee,
                    concurrency,
                    batch_size,
                    batch_wait_s,
                    interval_s if commit_interval_s is None else commit_interval_s,
                    start,
                )
            )
            self.counters[label] = SubscriptionCounters(self.name, label)
            return handler

        return register

    def _group_for(self, label: str, group: str, topics: tuple[str, ...], share: bool) -> str:
        """Return the group, if earlier subscriptions can share it: two on one topic would split its partitions."""
        for other in self.subscriptions:
            if other.group == group and (other.share != share or set(other.topics) & set(topics)):
                why = (
                    "both kinds" if other.share != share else f"both read {', '.join(set(other.topics) & set(topics))}"
                )
                advice = f"give one of them a group of its own: subscribe(…, group='{group}-{label}')"
                raise PenstockError(f"{label} and {other.name} cannot both be in the group {group}", why, advice)
        return group

    def middleware(self, function: Middleware) -> Middleware:
        """Let a function wrap every call of a handler: it receives the next call and the Context.

        An async function wraps handlers of either kind; a plain function wraps plain handlers only. A batch is one
        call: its records are `context.records`.

        >>> app = App("billing")
        >>> @app.middleware
        ... async def timed(call_next, context):
        ...     return await call_next(context)
        """
        for subscription in self.subscriptions:
            _check_wraps(function, subscription.binding.handler)
        self._middleware.append(function)
        return function

    def register_schemas(self, connection: Connection | None = None) -> None:
        """Register the types of subscriptions, and of what their functions return, with the schema registry.

        Workers do this when they start. A type that is not compatible with what was registered before raises
        PenstockError. Without `schemas`, only types that were given as `value=Avro(Order)` have a schema.

        >>> App("billing").register_schemas()
        """
        register(self.subscriptions, self.make_schemas(connection or self.connection))

    def make_schemas(self, connection: Connection) -> AppSchemas | None:
        """The serdes of this application's types, if it has `schemas`."""
        if self.schemas is None:
            return None
        if self._serdes is None:
            self._serdes = AppSchemas(self.schemas, Registry(connection.registry))
            for subscription in self.subscriptions:
                if subscription.publish is not None:
                    self._serdes.declare_output(subscription.publish, output_type(subscription))
        return self._serdes

    def run(self) -> None:
        """Process records until SIGINT or SIGTERM, then finish running calls and commit.

        >>> App("billing").subscriptions  # app.run() returns on SIGINT or SIGTERM
        []
        """
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
        run_on_fast_loop(self.serve())

    async def serve(self, *, handle_signals: bool = True) -> None:
        """Like `run`, within a running event loop; returns after `stop`.

        >>> async def main():
        ...     app = App("billing")
        ...     app.stop()
        ...     await app.serve(handle_signals=False)
        >>> asyncio.run(main())
        """
        worker = self.make_worker()
        loop = asyncio.get_running_loop()
        if handle_signals:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, worker.stop)
        async with self.living() as state:
            await worker.run(state)

    def make_worker(self) -> Worker:
        """The worker that runs the subscriptions in this process; one for each App."""
        if self._worker is None:
            identity = os.environ.get(WORKER_VARIABLE) or uuid.uuid4().hex[:12]
            self._worker = Worker(self, identity)
        return self._worker

    def stop(self) -> None:
        """Make `run` or `serve` finish running calls, commit, and return.

        >>> App("billing").stop()
        """
        self.make_worker().stop()

    @overload
    async def request(
        self, topic: str, key: Any = None, value: Any = None, *, headers: Headers = (), timeout_s: float = 30.0
    ) -> bytes: ...

    @overload
    async def request(
        self,
        topic: str,
        key: Any = None,
        value: Any = None,
        *,
        returns: type[V],
        headers: Headers = (),
        timeout_s: float = 30.0,
    ) -> V: ...

    async def request(
        self,
        topic: str,
        key: Any = None,
        value: Any = None,
        *,
        returns: Any = bytes,
        headers: Headers = (),
        timeout_s: float = 30.0,
    ) -> Any:
        """Send a record, and return what a function with `reply=True` answers, as a value of type `returns`.

        It is sent at once, even if the requesting function fails later. The reply arrives in the topic that has the
        application's name and `.replies`, which is created. Raises TimedOut if there is none in time.

        >>> app = App("tea-shop")
        >>> @app.subscribe("questions", reply=True)
        ... def price(item: str) -> float:
        ...     return 2.5
        >>> @app.subscribe("baskets", publish="bills")
        ... async def bill(item: str) -> str:
        ...     return f"{item}: {await app.request('questions', item, item, returns=float)}"
        >>> from penstock.testing import AppHarness
        >>> with AppHarness(app) as harness:
        ...     harness.send("baskets", "alice", "green tea")
        ...     harness.run()
        ...     harness.values("bills", str)
        ['green tea: 2.5']
        """
        if self._requests is None:
            self.open_requests(self.connection)
        assert self._requests is not None
        return await self._requests.request(Message(topic, key, value, headers), returns, timeout_s)

    def open_requests(self, connection: Connection, replies: Replies | None = None) -> None:
        """Make requests possible, on a cluster or on another transport of `replies`."""
        schemas = self.make_schemas(connection) if replies is None else None
        encode = encode_any if schemas is None else schemas.encode_by_type
        self._requests = Requests(self.name, replies or KafkaReplies(connection), encode)

    @property
    def is_healthy(self) -> bool:
        """Whether all subscriptions run; False while one waits to be restarted after a failure.

        >>> App("billing").is_healthy
        True
        """
        return self._worker is None or self._worker.is_healthy

    @asynccontextmanager
    async def living(self) -> AsyncIterator[Any]:
        """The application's lifespan, for a program that makes requests without being a worker; yields its state.

        >>> async def main():
        ...     async with App("web").living() as state:
        ...         return state  # and await app.request(…)
        >>> asyncio.run(main())
        """
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._close_requests)
            yield await stack.enter_async_context(self._lifespan(self)) if self._lifespan is not None else None

    async def _close_requests(self) -> None:
        if self._requests is not None:
            await asyncio.to_thread(self._requests.close)
            self._requests = None

    def make_handler_caller(
        self, subscription: Subscription, state: Any, connection: Connection | None = None
    ) -> HandlerCaller:
        """Make a subscription's HandlerCaller. Without a connection, and so a registry, values are plain JSON."""
        binding = subscription.binding
        schemas = self.make_schemas(connection) if connection is not None else None
        serde = schemas.serde(binding.value_type) if schemas is not None else None
        caller = HandlerCaller(
            binding if serde is None else replace(binding, decode=serde.decode),
            subscription.publish,
            self._middleware,
            Tracer(subscription.group, enabled=self._tracing),
            subscription.concurrency,
            subscription.reply,
            encode_any if schemas is None else schemas.encode,
        )
        caller.state = state
        return caller


def run_on_fast_loop(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine on a new event loop: uvloop's, if that is installed."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(work)
    else:
        uvloop.run(work)


def _check_wraps(middleware: Callable[..., Any], handler: Callable[..., Any]) -> None:
    if inspect.iscoroutinefunction(handler) and not inspect.iscoroutinefunction(middleware):
        names = [str(getattr(each, "__name__", each)) for each in (middleware, handler)]
        what = f"the middleware {names[0]} cannot wrap {names[1]}"
        raise PenstockError(what, f"{names[1]} is async, and {names[0]} is not", f"write `async def {names[0]}`")
