"""Bytes to messages and back, for every message class under `messages/`.

`decoder` and `encoder` return a function for one class and one version, compiled on first use and cached. The hot path
keeps the functions; occasional readers and writers call `decode` and `encode`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from typing import Any, TypeVar, cast

from penstock.wire import schema
from penstock.wire.decoding import compile_decoder
from penstock.wire.encoding import compile_encoder
from penstock.wire.primitives import Buffer, MalformedMessage, UnsupportedVersion

MessageT = TypeVar("MessageT")
T = TypeVar("T")

# A function that is carried out step by step, and then returns something.
Steps = Generator[None, None, T]

_definitions: dict[type[object], schema.Message] = {}
_decoders: dict[tuple[type[object], int], Callable[..., tuple[Any, int]]] = {}
_encoders: dict[tuple[type[Any], int], Callable[[object, list[Buffer]], None]] = {}
_stepwise_decoders: dict[tuple[type[Any], int], Callable[..., Steps[Any]]] = {}
_stepwise_encoders: dict[tuple[type[object], int], Callable[[object, list[Buffer]], Steps[None]]] = {}


def decoder(cls: type[MessageT], version: int) -> Callable[[Buffer, int], tuple[MessageT, int]]:
    """A function that reads a message of that version at a position; it returns the message and the position behind it.

    It raises MalformedMessage for anything that is not such a message. Records are views of the buffer it is given,
    everything else is copied out. Raises UnsupportedVersion if the message has no such version.
    """
    found = _decoders.get((cls, version))
    if found is None:
        found = _decoders[cls, version] = compile_decoder(_message(cls, version), version, _classes(cls))
    return found


def bounded_decoder(cls: type[MessageT], version: int) -> Callable[[Buffer, int, int], tuple[MessageT, int]]:
    """As `decoder`; the function's third argument is how many elements the message's arrays may have in all.

    Tagged fields count like elements. With more it raises TooManyEntries, before it reads them.
    """
    decoder(cls, version)
    return _decoders[cls, version]


def encoder(cls: type[MessageT], version: int) -> Callable[[MessageT, list[Buffer]], None]:
    """A function that appends a message's bytes to a list of buffers.

    Records are appended as they are, never copied. It raises ValueError, and appends nothing, for a message that the
    version cannot express: null where it may not be, a number out of range, a field that the version does not have
    and that may not be dropped. Raises UnsupportedVersion if the message has no such version.
    """
    found = _encoders.get((cls, version))
    if found is None:
        found = _encoders[cls, version] = compile_encoder(_message(cls, version), version, _classes(cls))
    return found


def stepwise_decoder(cls: type[MessageT], version: int) -> Callable[[Buffer, int, int], Steps[tuple[MessageT, int]]]:
    """As `bounded_decoder`, for a large request: a generator that yields every fraction of a millisecond."""
    found = _stepwise_decoders.get((cls, version))
    if found is None:
        found = compile_decoder(_message(cls, version), version, _classes(cls), in_steps=True)
        _stepwise_decoders[cls, version] = found
    return found


def stepwise_encoder(cls: type[MessageT], version: int) -> Callable[[MessageT, list[Buffer]], Steps[None]]:
    """As `encoder`, for a large message: a generator that yields every fraction of a millisecond.

    The message must not change meanwhile.
    """
    found = _stepwise_encoders.get((cls, version))
    if found is None:
        found = compile_encoder(_message(cls, version), version, _classes(cls), in_steps=True)
        _stepwise_encoders[cls, version] = found
    return found


def decode(cls: type[MessageT], version: int, data: Buffer, *, whole: bool = True) -> MessageT:
    """The message that `data` holds; bytes behind it are refused unless `whole` is false."""
    message, position = decoder(cls, version)(data, 0)
    if whole and position != len(data):
        raise MalformedMessage(f"{cls.__name__} version {version} is followed by {len(data) - position} bytes too many")
    return message


def encode(message: object, version: int) -> bytes:
    """The bytes of one message."""
    buffers: list[Buffer] = []
    encoder(type(message), version)(message, buffers)
    return b"".join(buffers)


def definition_of(cls: type[object]) -> schema.Message:
    """The definition that a message class was generated from."""
    found = _definitions.get(cls)
    if found is None:
        found = _definitions[cls] = schema.load(cls.__module__.rpartition(".")[2]).message(cls.__name__)
    return found


def _message(cls: type[Any], version: int) -> schema.Message:
    message = definition_of(cls)
    if version not in message.versions:
        raise UnsupportedVersion(f"{cls.__name__} has versions {message.versions}, not {version}")
    return message


def _classes(cls: type[object]) -> Callable[[str], type[object]]:
    module = sys.modules[cls.__module__]
    return lambda name: cast(type[object], getattr(module, name))
