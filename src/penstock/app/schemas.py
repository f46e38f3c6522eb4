"""Schemas of an application's types: registered when it starts, and identified by a prefix of each value.

A subscription's type is registered for its topics, the type of what its function returns for the topic that it
publishes to, under the usual subjects (`orders-value`). If a type is not compatible with what was registered before,
the application stops before it reads anything.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable, Iterator
from typing import Any, Literal, get_args, get_origin

from penstock.app.context import Message
from penstock.app.subscription import Subscription
from penstock.client.application.delivery import encode_any
from penstock.client.application.errors import PenstockError
from penstock.client.application.registry import Registry
from penstock.client.application.schemas import SUBJECT, Avro, JsonSchema, Protobuf, UntypedAvro
from penstock.client.application.serdes import is_record_type

SchemaKind = Literal["json", "avro"]
REFUSED = "409"
MANY = (list, tuple, Iterable, Iterator, typing.Iterable, typing.Iterator)


class AppSchemas:
    """The serdes of an application's types."""

    def __init__(self, kind: SchemaKind, registry: Registry) -> None:
        self._kind = kind
        self._registry = registry
        self._serdes: dict[Any, Any] = {}
        self._outputs: dict[str, Any] = {}

    def serde(self, kind: Any) -> Any | None:
        """The serde of a type with fields, or of dicts that are only read; None for all others."""
        if kind not in self._serdes:
            self._serdes[kind] = self._make(kind)
        return self._serdes[kind]

    def declare_output(self, topic: str, kind: Any) -> None:
        """Declare that values of this type are sent to a topic."""
        self._outputs[topic] = self.serde(kind) if is_record_type(kind) else None

    def encode(self, value: Any, topic: str) -> bytes | str | None:
        """Encode a value for a topic: with the schema of the type that was declared for the topic, or without one."""
        serde = None if value is None else self._outputs.get(topic)
        found: bytes | str | None = encode_any(value, topic) if serde is None else serde.encode(value, topic)
        return found

    def encode_by_type(self, value: Any, topic: str) -> bytes | str | None:
        """Encode a value for a topic without a declared type, with the schema of its own type if it has one."""
        serde = self.serde(type(value)) if is_record_type(type(value)) else None
        found: bytes | str | None = encode_any(value, topic) if serde is None else serde.encode(value, topic)
        return found

    def _make(self, kind: Any) -> object | None:
        if is_record_type(kind):
            return (JsonSchema if self._kind == "json" else Avro)(kind, registry=self._registry)
        if kind is dict or get_origin(kind) is dict:
            return JsonSchema(kind, registry=self._registry) if self._kind == "json" else UntypedAvro(self._registry)
        return None


def register(subscriptions: Iterable[Subscription], schemas: AppSchemas | None) -> None:
    """Register the types of subscriptions and of what they send; raises PenstockError if one is not compatible."""
    for subscription in subscriptions:
        kind = subscription.binding.value_type
        for topic in subscription.topics:
            if not topic.startswith("^"):
                _register(subscription, topic, kind, schemas)
        if subscription.publish is not None:
            _register(subscription, subscription.publish, output_type(subscription), schemas)


def output_type(subscription: Subscription) -> object:
    """The type of the values that a function sends: its result's, without None, or its elements' if it returns many."""
    return _one_of(subscription.binding.result_type)


def _one_of(kind: Any) -> object:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (typing.Union, types.UnionType):
        kinds = [each for each in arguments if each is not type(None)]
        return _one_of(kinds[0]) if len(kinds) == 1 else kind
    if arguments and (origin in MANY or getattr(origin, "__name__", "") == "Generator"):
        return _one_of(arguments[0])
    return None if kind is Message or kind is type(None) else kind


def _register(subscription: Subscription, topic: str, kind: Any, schemas: AppSchemas | None) -> None:
    serde: Any = None
    if isinstance(kind, JsonSchema | Avro | Protobuf):
        serde = kind
    elif schemas is not None and is_record_type(kind):
        serde = schemas.serde(kind)
    if serde is None:
        return
    try:
        serde.register(topic)
    except PenstockError as error:
        if error.code != REFUSED:
            raise
        name = getattr(kind, "__name__", None) or type(kind).__name__
        what = f"{subscription.name} cannot start: {name} is not compatible with the schemas of {topic}"
        rule = f"change the rule of the subject {SUBJECT.format(topic)}"
        advice = f"give new fields a default and keep the others as they are, use another topic, or {rule}"
        raise PenstockError(what, error.why, advice, code=REFUSED) from error
