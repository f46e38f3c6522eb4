"""Requests about many things, served a piece at a time, so that other clients get their turns in between.

A request may name tens of thousands of topics, partitions or groups, for each of which its handler works some
microseconds. The APIs in `PIECES` answer each row of the request by itself, in one row of the response: theirs are
handled in several calls, and their responses put together.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from penstock.api.context import Handler, RequestContext, settled
from penstock.wire.apis import ApiKey
from penstock.wire.codec import Steps

# How many rows take a few milliseconds.
ROWS_MAX = 100
# Of groups, whose names may be so long that finding the coordinator of one takes a millisecond.
GROUPS_MAX = 4

# How many elements of a request's or a response's arrays are read or written in a fraction of a millisecond.
ROWS_READ_MAX = 500
ROWS_WRITTEN_MAX = 500
# How many rows the controller decides about at once.
DECIDED_MAX = 250

T = TypeVar("T")
A = TypeVar("A")


class Pieces(NamedTuple):
    """The arrays of an API's request and response whose rows correspond, and those within these rows, if any."""

    asked: str
    answered: str
    asked_inner: str = ""
    answered_inner: str = ""
    rows_max: int = ROWS_MAX
    # What a row is about, where its answer may be long: what a request repeats is answered once.
    subject: Callable[[Any], Hashable] | None = None


def _configs_of(row: Any) -> Hashable:
    keys = row.configuration_keys
    return row.resource_type, row.resource_name, None if keys is None else tuple(keys)


PIECES = {
    ApiKey.LIST_OFFSETS: Pieces("topics", "topics", "partitions", "partitions"),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Pieces("topics", "topics", "partitions", "partitions"),
    ApiKey.DESCRIBE_PRODUCERS: Pieces(
        "topics", "topics", "partition_indexes", "partitions", subject=lambda row: row.name
    ),
    # Each has all settings of a topic or broker.
    ApiKey.DESCRIBE_CONFIGS: Pieces("resources", "results", rows_max=20, subject=_configs_of),
    ApiKey.FIND_COORDINATOR: Pieces("coordinator_keys", "coordinators", rows_max=GROUPS_MAX),
    ApiKey.DESCRIBE_GROUPS: Pieces("groups", "groups", rows_max=GROUPS_MAX, subject=str),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Pieces("group_ids", "groups", rows_max=GROUPS_MAX, subject=str),
    ApiKey.SHARE_GROUP_DESCRIBE: Pieces("group_ids", "groups", rows_max=GROUPS_MAX, subject=str),
    ApiKey.STREAMS_GROUP_DESCRIBE: Pieces("group_ids", "groups", rows_max=GROUPS_MAX, subject=str),
    ApiKey.DESCRIBE_TRANSACTIONS: Pieces("transactional_ids", "transaction_states", subject=str),
}


class _Turns:
    """The pieces of large requests that wait on one event loop, of which each turn of the loop continues one.

    However many such requests there are, and on however many connections, others wait for one piece at most.
    """

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()

    def wait(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        if len(self._waiting) == 1:
            loop.call_soon(self._continue_next, loop)
        return turn

    def _continue_next(self, loop: asyncio.AbstractEventLoop) -> None:
        turn = self._waiting.popleft()
        if self._waiting:
            loop.call_soon(self._continue_next, loop)
        if not turn.done():
            turn.set_result(None)


_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, _Turns] = WeakKeyDictionary()


async def next_turn() -> None:
    """Let other clients have their turns, and then other large requests."""
    loop = asyncio.get_running_loop()
    turns = _turns.get(loop)
    if turns is None:
        turns = _turns[loop] = _Turns()
    await turns.wait(loop)


async def by_turns(steps: Steps[T]) -> T:
    """What the steps return; after each of them other clients get their turns."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: T = done.value
            return result
        await next_turn()


def has_many_rows(response: Any) -> bool:
    """Whether the arrays of a response, and those within their elements, are too long to be written at once."""
    left = ROWS_WRITTEN_MAX
    for value in response:
        if type(value) is not list and type(value) is not tuple:
            continue
        left -= len(value)
        if left < 0:
            return True
        for row in value:
            if isinstance(row, tuple):
                left -= sum([len(inner) for inner in row if type(inner) is list or type(inner) is tuple])
        if left < 0:
            return True
    return False


async def together(rows: Sequence[T], key: Callable[[T], Hashable]) -> AsyncIterator[list[int]]:
    """The positions of the rows in pieces for a decision each; rows that have the same key are in the first one.

    After each of them other clients get their turns.
    """
    keys = [key(row) for row in rows]
    counts = Counter(keys)
    if len(counts) == len(rows) <= DECIDED_MAX:
        yield [*range(len(rows))]
        return
    repeated = [position for position, each in enumerate(keys) if counts[each] > 1]
    if repeated:
        yield repeated
        await next_turn()
    single = [position for position, each in enumerate(keys) if counts[each] == 1]
    for start in range(0, len(single), DECIDED_MAX):
        yield single[start : start + DECIDED_MAX]
        await next_turn()


async def decide_in_pieces(
    rows: Sequence[T], key: Callable[[T], Hashable], decide: Callable[[list[T]], Awaitable[Sequence[A]]]
) -> list[A]:
    """The answers to the rows, in their order; `decide` answers some of them, all those with the same key together."""
    answers: dict[int, A] = {}
    async for piece in together(rows, key):
        answers.update(zip(piece, await decide([rows[position] for position in piece]), strict=True))
    return [answers[position] for position in range(len(rows))]


async def in_turns(rows: Iterable[T], rows_max: int = ROWS_MAX) -> AsyncIterator[T]:
    """The rows; after every `rows_max` of them other clients get their turns."""
    for number, row in enumerate(rows, 1):
        yield row
        if not number % rows_max:
            await next_turn()


def in_pieces(handle: Handler, pieces: Pieces) -> Handler:
    """The handler of an API, for requests of any size."""
    asked, inner, rows_max = pieces.asked, pieces.asked_inner, pieces.rows_max

    def handle_any(request: Any, context: RequestContext) -> Any:
        rows = getattr(request, asked)
        if pieces.subject is not None and rows:
            rows = distinct(rows, pieces.subject, inner)
            request = request._replace(**{asked: rows})
        if not rows or _size(rows, inner) <= rows_max:
            return handle(request, context)
        return handle_pieces(request, context)

    async def handle_pieces(request: Any, context: RequestContext) -> object:
        whole: Any = None
        answers: list[object] = []
        for piece in _split(getattr(request, asked), inner, rows_max):
            response = await settled(handle(request._replace(**{asked: piece}), context))
            if whole is None:
                whole = response
            _join(answers, getattr(response, pieces.answered), pieces.answered_inner)
            await next_turn()
        return whole._replace(**{pieces.answered: answers})

    return handle_any


def distinct(rows: Iterable[T], subject: Callable[[T], Hashable], inner: str = "") -> list[T]:
    """The rows without those about the same subject as an earlier one, which gets their elements of the array `inner`.

    A request that names one thing thirty thousand times would have an answer that fits into no memory.
    """
    found: dict[Hashable, list[T]] = {}
    for row in rows:
        found.setdefault(subject(row), []).append(row)
    if not inner:
        return [same[0] for same in found.values()]
    united = [(same[0], [element for row in same for element in getattr(row, inner)]) for same in found.values()]
    return [row._replace(**{inner: [*dict.fromkeys(elements)]}) for row, elements in united]  # type: ignore[attr-defined]


def _size(rows: Sequence[object], inner: str) -> int:
    return len(rows) + sum(len(getattr(row, inner)) for row in rows) if inner else len(rows)


def _split(rows: Sequence[Any], inner: str, rows_max: int) -> Iterator[list[object]]:
    """The rows in pieces of at most `rows_max`, those within them counted; a row with many is in several pieces."""
    piece: list[Any] = []
    left = rows_max
    for row in rows:
        within = getattr(row, inner) if inner else ()
        start = 0
        while True:
            if left < 2:
                yield piece
                piece, left = [], rows_max
            taken = within[start : start + left - 1]
            piece.append(row._replace(**{inner: taken}) if len(taken) < len(within) else row)
            left -= 1 + len(taken)
            start += len(taken)
            if start >= len(within):
                break
    if piece:
        yield piece


def _join(answers: list[Any], more: Sequence[object], inner: str) -> None:
    """Append rows; the first of them may continue the last one there is, whose array is made longer."""
    rest = list(more)
    if inner and answers and rest and _continues(answers[-1], rest[0], inner):
        continued = getattr(answers[-1], inner)
        if not isinstance(continued, list):
            continued = list(continued)
            answers[-1] = answers[-1]._replace(**{inner: continued})
        continued += getattr(rest.pop(0), inner)
    answers += rest


def _continues(row: Any, other: Any, inner: str) -> bool:
    return bool(row._replace(**{inner: ()}) == other._replace(**{inner: ()}))
