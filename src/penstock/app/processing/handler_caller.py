"""Calls handlers, one record after the other, in a thread or on the loop, and reports each record's result."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from penstock.app.binding import Binding, messages_of
from penstock.app.context import Context, Message
from penstock.app.processing.key_queue import Job
from penstock.app.requests import CORRELATION, REPLY_TOPIC
from penstock.app.tracing import Trace, Tracer
from penstock.client.application.delivery import encode_any
from penstock.client.application.errors import SerializationFailed
from penstock.client.application.records import Record
from penstock.client.application.serdes import Encode

# A chunk of calls stops after this time, so that offsets can be committed and partitions revoked.
CHUNK_S_MAX = 0.2


class HandlerResults(NamedTuple):
    """Which records are done, which failed, and which are left: they wait behind a failure, or time is up."""

    done: list[Job]
    failed: list[tuple[Job, Exception]]
    left: list[Job]
    busy_s: float


class HandlerCaller:
    """Calls one subscription's handler. `state` is the value that the application's lifespan yielded."""

    def __init__(
        self,
        binding: Binding,
        publish: str | None,
        middleware: Sequence[Any],
        tracer: Tracer,
        concurrency: int,
        reply: bool = False,
        encode: Encode = encode_any,
    ) -> None:
        self.binding = binding
        self._encode = encode
        self.state: Any = None
        self._publish = publish
        self._reply = reply
        self._tracer = tracer
        self._is_stopping = False
        self._is_simple = binding.shape == "value" and binding.is_plain and not middleware and not tracer.makes_spans
        # Async middleware is on the loop, around handlers of either kind.
        self._is_on_loop = binding.is_async or any(map(inspect.iscoroutinefunction, middleware))
        self._threads = (
            None if binding.is_async else ThreadPoolExecutor(concurrency, thread_name_prefix="penstock-handler")
        )
        self._call = self._chained(middleware)

    async def run(self, jobs: list[Job]) -> HandlerResults:
        """Process records in order; those behind a failed one with the same key are left."""
        run = self._run_batch if self.binding.is_batch else self._run_each
        if self._threads is None or self._is_on_loop:
            return await run(jobs)
        return await asyncio.get_running_loop().run_in_executor(self._threads, _run_to_end, run, jobs)

    def stop(self) -> None:
        """Call no further handlers; running calls finish."""
        self._is_stopping = True

    def close(self) -> None:
        """Stop the threads once their calls return."""
        if self._threads is not None:
            self._threads.shutdown(wait=False)

    async def _run_each(self, jobs: list[Job]) -> HandlerResults:
        started = time.perf_counter()
        done: list[Job] = []
        failed: list[tuple[Job, Exception]] = []
        left: list[Job] = []
        blocked: set[object] = set()
        deadline = started + CHUNK_S_MAX
        handler = self.binding.handler if self._is_simple else None
        is_async = self.binding.is_async
        process = self._traced_outputs if self._tracer.makes_spans else self._outputs
        for index, job in enumerate(jobs):
            if blocked and job.key in blocked:
                left.append(job)
                continue
            try:
                if handler is not None:
                    result = handler(job.record.value)
                    if is_async:
                        result = await result
                    if result is not None or self._reply:
                        job.outputs = self._messages(result, job)
                else:
                    job.outputs = await process(job)
            except Exception as error:  # noqa: BLE001 - whatever a handler raises is the record's failure
                failed.append((job, error))
                blocked.add(job.key)
            else:
                done.append(job)
            if time.perf_counter() > deadline or self._is_stopping:
                left += jobs[index + 1 :]
                break
        return HandlerResults(done, failed, left, time.perf_counter() - started)

    async def _outputs(self, job: Job) -> list[Message]:
        context = Context(job.record, job.attempt, self.state)
        result = await self._called(context)
        return self._messages(result, job, context.messages)

    async def _called(self, context: Context) -> object:
        result = self._call(context)
        return await result if self._is_on_loop else result

    async def _traced_outputs(self, job: Job) -> list[Message]:
        with self._tracer.processing([job.record]) as trace:
            return trace.carried(await self._outputs(job))

    def _messages(self, result: Any, job: Job, before: Sequence[Message] = ()) -> list[Message]:
        """The messages to send: those that the handler gave to its context, then its result."""
        record = job.record
        if self._reply and (topic := record.header(REPLY_TOPIC)) is not None:
            # The requester gets a reply even if the handler returns nothing.
            headers = [(CORRELATION, record.header(CORRELATION))]
            found = [*before, Message(topic.decode(), record.key_bytes, result, headers)]
        elif result is None:
            found = list(before)
        else:
            found = [*before, *messages_of(result, self._publish, record.key_bytes)]
        found = [self._encoded(message) for message in found]
        return found if self._tracer.makes_spans else self._tracer.pass_on(record, found)

    def _encoded(self, message: Message) -> Message:
        """Encode a message's value. If that fails, the record that it is sent for fails."""
        value = message.value
        return message if isinstance(value, bytes) else replace(message, value=self._encode(value, message.topic))

    def _chained(self, middleware: Sequence[Any]) -> Callable[[Context], Any]:
        binding = self.binding

        def call(context: Context) -> Any:
            return binding.handler(binding.argument(context.records), **binding.extras(context))

        async def call_async(context: Context) -> Any:
            return await binding.handler(binding.argument(context.records), **await binding.async_extras(context))

        async def call_in_thread(context: Context) -> object:
            # With the loop's context variables, such as the current span.
            run = contextvars.copy_context().run
            return await asyncio.get_running_loop().run_in_executor(self._threads, run, call, context)

        chained: Callable[[Context], object] = call
        if self._is_on_loop:
            chained = call_async if binding.is_async else call_in_thread
        for layer in reversed(middleware):
            chained = partial(layer, chained)
        return chained

    # A batch that fails is halved until the record that fails is alone: it is tried again, records with its key wait
    # behind it, and the others are done.

    async def _run_batch(self, jobs: list[Job]) -> HandlerResults:
        started = time.perf_counter()
        jobs, failed = self._readable(jobs)
        done: list[Job] = []
        left: list[Job] = []
        blocked: set[object] = set()
        pieces = [jobs] if jobs else []
        while pieces:
            piece = pieces.pop()
            if blocked:
                left += [job for job in piece if job.key in blocked]
                piece = [job for job in piece if job.key not in blocked]
                if not piece:
                    continue
            context = Context(None, piece[0].attempt, self.state, batch=[job.record for job in piece])
            try:
                with self._tracing(context.records) as trace:
                    result = await self._called(context)
                piece[0].outputs = self._batch_messages(result, context, trace)
                piece[0].companions = piece[1:]
            except Exception as error:  # noqa: BLE001
                if len(piece) == 1:
                    failed.append((piece[0], error))
                    blocked.add(piece[0].key)
                else:
                    middle = len(piece) // 2
                    pieces += [piece[middle:], piece[:middle]]
            else:
                done += piece
        return HandlerResults(done, failed, left, time.perf_counter() - started)

    def _tracing(self, records: Sequence[Record[object]]) -> AbstractContextManager[Trace | None]:
        return self._tracer.processing(records, is_batch=True) if self._tracer.makes_spans else nullcontext()

    def _batch_messages(self, result: Any, context: Context, trace: Trace | None) -> list[Message]:
        found = [self._encoded(each) for each in (*context.messages, *messages_of(result, self._publish, None))]
        return found if trace is None else trace.carried(found)

    @staticmethod
    def _readable(jobs: list[Job]) -> tuple[list[Job], list[tuple[Job, Exception]]]:
        """The records whose values can be decoded, and the others with the reason."""
        readable: list[Job] = []
        failed: list[tuple[Job, Exception]] = []
        for job in jobs:
            try:
                _ = job.record.value
            except SerializationFailed as error:
                failed.append((job, error))
            else:
                readable.append(job)
        return readable, failed


def _run_to_end(
    run: Callable[[list[Job]], Coroutine[object, object, HandlerResults]], jobs: list[Job]
) -> HandlerResults:
    """Run, in a thread without a loop, a coroutine that never waits because its handler is not async."""
    try:
        run(jobs).send(None)
    except StopIteration as ended:
        finished: HandlerResults = ended.value
        return finished
    raise AssertionError("the handler is not async, but it waited")
