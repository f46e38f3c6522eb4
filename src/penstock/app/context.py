"""The objects that a handler can receive besides its record: a context, messages to send, dependencies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.client.application.records import Headers, Record


@dataclass(frozen=True, slots=True)
class Message:
    """A record to send: what handlers return or give to `Context.send`.

    >>> Message("invoices", "alice", {"total": 12}).topic
    'invoices'
    """

    topic: str
    key: Any = None
    value: Any = None
    headers: Headers = ()


@dataclass(slots=True)
class Context:
    """The record that is processed, which try it is, and what is sent when it succeeds. A batch is in `records`.

    >>> context = Context(record=None, attempt=2, state={"rate": 1.5})
    >>> context.send("invoices", "alice", {"total": 12})
    >>> len(context.messages), context.attempt, context.state["rate"]
    (1, 2, 1.5)
    """

    record: Record[Any] | None
    attempt: int
    state: Any = None
    messages: list[Message] = field(default_factory=list)
    batch: Sequence[Record[Any]] = ()

    @property
    def records(self) -> Sequence[Record[Any]]:
        """The records that are processed: one, or those of a batch.

        >>> Context(record=None, attempt=1).records
        ()
        """
        return self.batch if self.record is None else (self.record,)

    def send(self, topic: str, key: Any = None, value: Any = None, headers: Headers = ()) -> None:
        """Send a record once the handler has returned; nothing is sent if it fails.

        >>> context = Context(record=None, attempt=1)
        >>> context.send("log", "alice", "billed")
        >>> context.messages[0].topic
        'log'
        """
        self.messages.append(Message(topic, key, value, headers))


@dataclass(frozen=True, slots=True)
class Depends:
    """A parameter that a function provides: `rate: Annotated[float, Depends(current_rate)]`.

    The function takes nothing, or a Context.

    >>> Depends(lambda: 1.5).provide()
    1.5
    """

    provide: Callable[..., Any]
