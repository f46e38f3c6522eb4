"""Reads JSON bodies: short ones on the event loop, long ones in a worker, because a few megabytes can take seconds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from penstock.gateway.named_limits import higher_limit
from penstock.gateway.web.bodies import check_shape, parse_json, read_at_once, reject_constant
from penstock.gateway.web.operations import Body, Validator
from penstock.gateway.web.problem import Problem
from penstock.gateway.work.budgets import AT_ONCE_BYTES_MAX, Budgets
from penstock.gateway.work.pool import WorkerPool, WorkFailed

Shape = Mapping[str, object] | None


class Refusal(NamedTuple):
    """A Problem in transit from a worker."""

    code: int
    message: str
    fix: str


class BodyReader:
    """Reads the bodies of one port's requests."""

    def __init__(self, workers: WorkerPool, budgets: Budgets) -> None:
        self._workers = workers
        self._budgets = budgets

    async def read(self, raw: bytes, body: Body, status: int) -> object:
        """The value of a body that matches the declared schema; raises Problem with `status` if it does not."""
        if len(raw) <= AT_ONCE_BYTES_MAX:
            return await read_at_once(raw, body, status)
        shape = body.schema if body.validator is not None else None
        return await self._read_elsewhere(read_value, raw, status, shape)

    async def values(self, raw: bytes, count_max: int) -> list[Any]:
        """Concatenated JSON values, at most `count_max` of them."""
        if len(raw) <= AT_ONCE_BYTES_MAX:
            return several_values(raw, count_max)
        values: list[Any] = await self._read_elsewhere(read_several, raw, count_max)
        return values

    async def work(self, function: Any, raw: bytes, *arguments: object) -> Any:
        """The result of a function on a body that has been read; the budgets are passed as its last argument."""
        if len(raw) <= AT_ONCE_BYTES_MAX:
            try:
                return function(raw, *arguments, self._budgets)
            except RecursionError:
                raise Problem(413, "the body is nested too deeply", "send a flatter one") from None
        return await self._read_elsewhere(function, raw, *arguments)

    async def _read_elsewhere(self, function: Any, raw: bytes, *arguments: object) -> Any:
        try:
            found = await self._workers.run(function, raw, *arguments, self._budgets)
        except WorkFailed as failure:
            raise Problem(
                413, f"reading the body was aborted: {failure.reason}", f"send less at a time, or {failure.fix}"
            ) from None
        if isinstance(found, Refusal):
            raise Problem(*found)
        return found


def read_value(raw: bytes, status: int, shape: Shape, budgets: Budgets) -> object:
    """The value of a body, or a Refusal."""
    try:
        value = parse_json(raw, status)
        _check_count(raw, value, budgets)
        if shape is not None:
            check_shape(value, Validator(shape), status)
    except Problem as problem:
        return Refusal(problem.code, problem.message, problem.fix)
    return value


def read_several(raw: bytes, count_max: int, budgets: Budgets) -> object:
    """The values of a body, or a Refusal."""
    try:
        values = several_values(raw, count_max)
        _check_count(raw, values, budgets)
    except Problem as problem:
        return Refusal(problem.code, problem.message, problem.fix)
    return values


def several_values(raw: bytes, count_max: int) -> list[object]:
    """Concatenated JSON values."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise Problem(40002, "the body is not valid UTF-8", "send JSON text") from None
    decoder, position, found = json.JSONDecoder(parse_constant=reject_constant), 0, list[object]()
    while True:
        while position < len(text) and text[position] in " \t\r\n":
            position += 1
        if position >= len(text):
            return found
        try:
            value, position = decoder.raw_decode(text, position)
        except RecursionError:
            raise Problem(40002, "the body is nested too deeply", "send a flatter one") from None
        except ValueError as error:
            raise Problem(40002, f"the body is not valid JSON: {error}", "send JSON text") from None
        found.append(value)
        if len(found) > count_max:
            raise Problem(40002, f"the body has more than {count_max:,} records", "send fewer at a time")


def _check_count(raw: bytes, value: object, budgets: Budgets) -> None:
    """413 for more values than the event loop should have to process."""
    # Every value but the first follows one of these characters, so if they are few nothing needs to be counted.
    if sum(map(raw.count, (b",", b"[", b"{", b":"))) < budgets.body_values_max:
        return
    count, waiting = 0, [value]
    while waiting:
        each = waiting.pop()
        count += 1
        if isinstance(each, dict):
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each
        if count + len(waiting) > budgets.body_values_max:
            raise Problem(
                413,
                f"the body has more JSON values than {budgets.named('body_values_max')}",
                f"send less at a time, or {higher_limit('body_values_max')}",
            )
