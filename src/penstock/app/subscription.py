"""A subscription: a function for some topics, with its options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from penstock.app.binding import Binding
from penstock.app.policy import RetryPolicy
from penstock.client.application.errors import PenstockError

Guarantee = Literal["at-least-once", "exactly-once"]


@dataclass(frozen=True, slots=True)
class Subscription:
    """A function for some topics, and how it is run. Raises PenstockError for options that contradict each other."""

    name: str
    topics: tuple[str, ...]
    group: str
    binding: Binding
    policy: RetryPolicy
    publish: str | None = None
    reply: bool = False
    share: bool = False
    exactly_once: bool = False
    concurrency: int = 1
    batch_size: int = 500
    batch_wait_s: float = 0.0
    commit_interval_s: float = 0.2
    start: Literal["earliest", "latest"] = "earliest"

    def __post_init__(self) -> None:
        if not self.topics:
            raise PenstockError(f"{self.name} subscribes to nothing", "", 'name a topic: @app.subscribe("orders")')
        if self.concurrency < 1 or self.batch_size < 1:
            raise PenstockError(f"{self.name} cannot run", "concurrency and batch_size are 1 or more")
        if self.share and self.exactly_once:
            why = "acknowledgements of a share group cannot be part of a transaction"
            raise PenstockError(f"{self.name} cannot be exactly once", why, "use a consumer group: share=False")
