"""Binds a handler's parameters by its signature: values, records, batches, Arrow tables, DataFrames, dependencies."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args, get_origin

from penstock.app.context import Context, Depends, Message
from penstock.client.application.errors import PenstockError, SerializationFailed
from penstock.client.application.records import Record
from penstock.client.application.serdes import Decode, decoder_of

Shape = Literal["value", "record", "values", "records", "table", "frame"]
BATCHES = ("values", "records", "table", "frame")


@dataclass(frozen=True, slots=True)
class Binding:
    """A handler, and the arguments that its signature requires."""

    handler: Callable[..., Any]
    shape: Shape
    value_type: Any
    result_type: Any
    decode: Decode | None
    is_async: bool
    context_name: str | None
    dependencies: dict[str, Callable[..., Any]]
    async_dependencies: dict[str, Callable[..., Any]]

    @property
    def is_batch(self) -> bool:
        """Whether the handler takes many records at once."""
        return self.shape in BATCHES

    @property
    def is_plain(self) -> bool:
        """Whether the handler takes its record and nothing else."""
        return not (self.context_name or self.dependencies or self.async_dependencies)

    def argument(self, records: Sequence[Record[Any]]) -> Any:
        """The first argument for these records; raises SerializationFailed."""
        if self.shape == "value":
            return records[0].value
        if self.shape == "record":
            return records[0]
        if self.shape == "values":
            return [record.value for record in records]
        return list(records) if self.shape == "records" else _columns(self.shape, records)

    def extras(self, context: Context) -> dict[str, Any]:
        """The further arguments that are provided without waiting."""
        found = {name: _provided(provide, context) for name, provide in self.dependencies.items()}
        if self.context_name is not None:
            found[self.context_name] = context
        return found

    async def async_extras(self, context: Context) -> dict[str, Any]:
        """The further arguments of an async handler."""
        found = self.extras(context)
        for name, provide in self.async_dependencies.items():
            found[name] = await _provided(provide, context)
        return found


def bind(handler: Callable[..., Any], value: Any = None, names: Mapping[str, Any] | None = None) -> Binding:
    """Read a handler's signature. `value` is the type or serde of its values, if it is not the annotation's.

    `names` are names that annotations may use besides those of its module.
    """
    try:
        hints = typing.get_type_hints(handler, localns=dict(names or {}), include_extras=True)
    except NameError as error:
        advice = "define the types before the function, or at the top of the module"
        raise PenstockError(f"the types of {handler.__name__} cannot be read", str(error), advice) from error
    parameters = list(inspect.signature(handler).parameters.values())
    if not parameters:
        advice = "write `def handle(order: Order)`"
        raise PenstockError(f"{handler.__name__} takes no record", "a handler's first parameter is the record", advice)
    first, *rest = parameters
    shape, kind = _shape(hints.get(first.name, bytes))
    context_name = None
    dependencies: dict[str, Callable[..., Any]] = {}
    async_dependencies: dict[str, Callable[..., Any]] = {}
    for parameter in rest:
        hint = hints.get(parameter.name)
        provided = next((each for each in get_args(hint) if isinstance(each, Depends)), None)
        if hint is Context:
            context_name = parameter.name
        elif get_origin(hint) is Annotated and provided is not None:
            target = async_dependencies if inspect.iscoroutinefunction(provided.provide) else dependencies
            target[parameter.name] = provided.provide
        elif parameter.default is inspect.Parameter.empty:
            advice = "annotate it with Context, or with Annotated[type, Depends(function)]"
            raise PenstockError(f"{handler.__name__} has a parameter {parameter.name!r}", "nothing provides it", advice)
    is_async = inspect.iscoroutinefunction(handler)
    if async_dependencies and not is_async:
        wanted = ", ".join(async_dependencies)
        raise PenstockError(f"{handler.__name__} cannot wait for {wanted}", "it is not async", "write `async def`")
    return Binding(
        handler,
        shape,
        value if value is not None else kind,
        hints.get("return"),
        decoder_of(value if value is not None else kind),
        is_async,
        context_name,
        dependencies,
        async_dependencies,
    )


def messages_of(result: Any, publish: str | None, key: Any) -> list[Message]:
    """The messages to send for a result: messages as they are, values to the topic that it is published to."""
    if result is None:
        return []
    if isinstance(result, Message):
        return [result]
    if isinstance(result, list | tuple) or inspect.isgenerator(result):
        return [message for each in result for message in messages_of(each, publish, key)]
    if publish is None:
        advice = "subscribe with publish='topic', return Message(topic, key, value), or return nothing"
        raise PenstockError("the handler returned a value", "its subscription has no topic to send it to", advice)
    return [Message(publish, key, result)]


def _shape(hint: Any) -> tuple[Shape, Any]:
    """The shape of a handler's first parameter, and the type of its values."""
    origin = get_origin(hint)
    name = f"{getattr(hint, '__module__', '')}.{getattr(hint, '__qualname__', '')}"
    if name in ("pyarrow.lib.Table", "pyarrow.Table"):
        return "table", dict
    if name in ("pandas.core.frame.DataFrame", "pandas.DataFrame"):
        return "frame", dict
    if hint is Record:
        return "record", bytes
    if origin is Record:
        return "record", get_args(hint)[0]
    if origin is list:
        (each,) = get_args(hint)
        inner, kind = _shape(each)
        return ("records" if inner == "record" else "values"), kind
    return "value", hint


def _columns(shape: Shape, records: Sequence[Record[Any]]) -> Any:
    rows = [record.value for record in records]
    if any(row is None for row in rows):
        raise SerializationFailed("a record without a value is no row of a table")
    # Every field that occurs is a column; Arrow alone would take those of the first row.
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: [row.get(name) for row in rows] for name in names}
    try:
        if shape == "frame":
            import pandas

            return pandas.DataFrame(columns)
        import pyarrow

        return pyarrow.table(columns)
    except (ValueError, TypeError) as error:
        raise SerializationFailed("the records do not fit into one table", str(error)) from error


def _provided(provide: Callable[..., Any], context: Context) -> Any:
    return provide(context) if inspect.signature(provide).parameters else provide()
