"""The policy for a record that fails: how often and when it is tried again, and where it is dead-lettered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from penstock.client.application.errors import PenstockError, SerializationFailed

Backoff = Literal["exponential", "fixed", "none"] | Callable[[int], float]

PREFIX = "dlq."
HEADERS = "penstock.dlq."
REASON = "penstock.dlq.reason"
TOPIC = "penstock.dlq.topic"
PARTITION = "penstock.dlq.partition"
OFFSET = "penstock.dlq.offset"
ATTEMPTS = "penstock.dlq.attempts"
GROUP = "penstock.dlq.group"
VALUE = "penstock.dlq.value"
REASON_CHARACTERS_MAX = 1000


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """`retries` tries after the first, with pauses between them.

    >>> RetryPolicy(retries=5).pause_s(3)
    4.0
    """

    retries: int = 0
    backoff: Backoff = "exponential"
    delay_s: float = 1.0
    delay_s_max: float = 60.0
    give_up_on: tuple[type[BaseException], ...] = (SerializationFailed,)
    dead_letters: bool | str = True

    def __post_init__(self) -> None:
        if self.retries < 0:
            raise PenstockError(f"retries={self.retries} is not possible", "", "use 0 or more")
        if not isinstance(self.dead_letters, bool | str):
            advice = "use True, False, or the name of a topic"
            raise PenstockError(f"dead_letters={self.dead_letters!r} is not possible", "", advice)
        if not callable(self.backoff) and self.backoff not in ("exponential", "fixed", "none"):
            advice = "use 'exponential', 'fixed', 'none', or a function of the attempt"
            raise PenstockError(f"backoff={self.backoff!r} is not known", "", advice)

    def pause_s(self, attempt: int) -> float:
        """How long to wait after this attempt failed."""
        if callable(self.backoff):
            return max(0.0, self.backoff(attempt))
        if self.backoff == "none":
            return 0.0
        factor = 2.0 ** min(attempt - 1, 30) if self.backoff == "exponential" else 1.0
        return min(self.delay_s * factor, self.delay_s_max)

    def pauses_ms(self) -> tuple[int, int]:
        """The first pause and the longest, for share groups, whose brokers double the first. A function has none."""
        if callable(self.backoff) or self.backoff == "none":
            return 0, 0
        first_ms = int(self.delay_s * 1000)
        return first_ms, int(self.delay_s_max * 1000) if self.backoff == "exponential" else first_ms

    def tries_again(self, attempt: int, error: BaseException) -> bool:
        """Whether a record is tried again after this attempt failed with this error."""
        return attempt <= self.retries and not isinstance(error, self.give_up_on)

    def dead_letter_topic(self, topic: str) -> str | None:
        """The dead-letter topic for records of a topic; None if they are only logged."""
        if self.dead_letters is True:
            return PREFIX + topic
        return self.dead_letters or None


def dead_letter_headers(
    topic: str, partition: int, offset: int, attempts: int, group: str, error: BaseException
) -> list[tuple[str, bytes]]:
    """Why a record was dead-lettered, and where it was; `penstock consume -f %h` and the console show them."""
    reason = f"{type(error).__name__}: {error}"[:REASON_CHARACTERS_MAX]
    return [
        (REASON, reason.encode("utf-8", "replace")),
        (TOPIC, topic.encode()),
        (PARTITION, str(partition).encode()),
        (OFFSET, str(offset).encode()),
        (ATTEMPTS, str(attempts).encode()),
        (GROUP, group.encode()),
    ]
