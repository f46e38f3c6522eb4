"""A subscription: a function for some topics, with its options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from penstock.app.binding import Binding
from penstock.app.policy import RetryPolicy
from penstock.client.application.errors import PenstockError

Guarantee = Literal["at-least-once", "exactly-once"]
Start = Literal["earliest", "latest"]


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
    guarantee: Guarantee = "at-least-once"
    concurrency: int = 1
    batch_size: int = 500
    batch_wait_s: float = 0.0
    commit_interval_s: float = 0.2
    start: Start = "earliest"

    def __post_init__(self) -> None:
        if not self.topics or not all(topic and isinstance(topic, str) for topic in self.topics):
            raise PenstockError(
                f"{self.name} subscribes to nothing", "", 'name topics: @app.subscribe("orders", "returns")'
            )
        for option, value, known in (
            ("guarantee", self.guarantee, get_args(Guarantee)),
            ("start", self.start, get_args(Start)),
        ):
            if value not in known:
                advice = f"use {' or '.join(map(repr, known))}"
                raise PenstockError(f"{self.name} cannot run with {option}={value!r}", "", advice)
        if self.concurrency < 1 or self.batch_size < 1:
            raise PenstockError(f"{self.name} cannot run", "concurrency and batch_size are 1 or more")
        if self.batch_wait_s < 0 or self.commit_interval_s < 0:
            raise PenstockError(f"{self.name} cannot run", "batch_wait_s and commit_interval_s are 0 or more")
        if self.share and self.exactly_once:
            why = "acknowledgements of a share group cannot be part of a transaction"
            raise PenstockError(f"{self.name} cannot be exactly once", why, "use a consumer group: share=False")

    @property
    def exactly_once(self) -> bool:
        """Whether what is read and what is sent for it is one transaction."""
        return self.guarantee == "exactly-once"
