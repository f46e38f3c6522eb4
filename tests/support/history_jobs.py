"""What workers of a share group did with records, and the anomalies in it.

too-often       a record was delivered more often than the limit allows
two-holders     two workers held a record at the same time, and both were told that what they said of it counts; or one
                was told so by the broker that had delivered the record to another one meanwhile
after-the-end   a record was delivered that a worker had finished for good, by the same broker or long ago
early           a delayed record was delivered before its time
lost-job        a record was neither accepted nor is it among the dead letters
lost-letter     a record was rejected and is not among the dead letters
double-letter   a record is among the dead letters twice
stray-letter    a dead letter of a record that was accepted, or that is not the record

A worker's acknowledgement of a record is ignored, without an error, once the group has gone past it. So an answer
proves that the worker held the record only if its lock cannot have ended by then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from penstock.core.share.acknowledgements import AckType
from support.history import Anomaly, Status

FINAL = (AckType.ACCEPT, AckType.REJECT)
# A broker that is cut off hands out records for so long although another one has replaced it. What is said of them
# there does not count.
UNHEARD_S = 1.0


class Delivery(NamedTuple):
    """A record that a worker got."""

    worker: str
    offset: int
    delivery_count: int
    asked: float
    got: float
    broker: str = ""


@dataclass(slots=True, eq=False)
class Saying:
    """What a worker said of a record, and what became of that."""

    worker: str
    offset: int
    kind: AckType
    # When the lock may have begun.
    asked: float
    got: float
    said: float
    broker: str
    status: Status = Status.OPEN
    answered: float = 0.0
    # The broker that it was said to, if that need not be the one that delivered the record.
    told: str = ""


class Letter(NamedTuple):
    """A dead letter: which record it is about, and what it has of it."""

    offset: int
    value: str


class JobBook:
    """Written by workers. Times are those of `clock`, which all of them share."""

    def __init__(self, clock: Callable[[], float], deliveries_max: int, lock_s: float) -> None:
        self.clock = clock
        self.deliveries: list[Delivery] = []
        self.sayings: list[Saying] = []
        self.letters: list[Letter] = []
        self._deliveries_max = deliveries_max
        self._lock_s = lock_s
        self._noticed: list[Anomaly] = []

    def delivered(
        self,
        worker: str,
        offset: int,
        delivery_count: int,
        asked: float,
        due: float | None = None,
        broker: str = "",
    ) -> Delivery:
        """A worker got a record that it had asked for at a time; one that is delayed is due at another."""
        one = Delivery(worker, offset, delivery_count, asked, self.clock(), broker)
        self.deliveries.append(one)
        if due is not None and one.got < due:
            self._notice("early", f"{worker} got {offset} {due - one.got:.3f} s before it was due")
        if delivery_count > self._deliveries_max:
            self._notice("too-often", f"{worker} got {offset} for the {delivery_count}th time")
        return one

    def say(self, delivery: Delivery, kind: AckType) -> Saying:
        """A worker is about to say something of a record."""
        saying = Saying(
            delivery.worker, delivery.offset, kind, delivery.asked, delivery.got, self.clock(), delivery.broker
        )
        self.sayings.append(saying)
        return saying

    def answered(self, sayings: Iterable[Saying], status: Status) -> None:
        """What became of it."""
        for saying in sayings:
            saying.status, saying.answered = status, self.clock()

    def _notice(self, kind: str, text: str) -> None:
        self._noticed.append(Anomaly(kind, f"[{self.clock():.3f}] {text}"))

    def check(self, values: Mapping[int, str]) -> list[Anomaly]:
        """Every anomaly; `values` are all records by their offsets, and everybody has come to the end."""
        return [
            *self._noticed,
            *self._two_holders(),
            *self._after_the_end(),
            *self._missing(values),
            *self._letters(values),
        ]

    def _confirmed(self, *kinds: AckType) -> Iterator[Saying]:
        return (
            one
            for one in self.sayings
            if one.status is Status.OK and one.answered < one.asked + self._lock_s and (not kinds or one.kind in kinds)
        )

    def _two_holders(self) -> Iterator[Anomaly]:
        held: dict[int, list[Saying]] = {}
        reported = set()
        for one in self._confirmed():
            held.setdefault(one.offset, []).append(one)
        for offset, holds in held.items():
            holds.sort(key=lambda one: (one.got, one.said))
            for before, after in pairwise(holds):
                if after.got < before.said:
                    text = f"{before.worker} and {after.worker} both held {offset} at {after.got:.3f}"
                    reported.add(offset)
                    yield Anomaly("two-holders", text)
        yield from self._delivered_meanwhile({offset: one for offset, one in held.items() if offset not in reported})

    def _delivered_meanwhile(self, held: Mapping[int, list[Saying]]) -> Iterator[Anomaly]:
        """A broker that accepts a worker's acknowledgement of a record has not delivered it to another one since."""
        for delivery in self.deliveries:
            for one in held.get(delivery.offset, ()):
                if one.told == delivery.broker and one.got < delivery.asked and delivery.got < one.said:
                    text = f"{one.worker} held {one.offset}, and {delivery.worker} got it at {delivery.got:.3f}"
                    yield Anomaly("two-holders", text)

    def _after_the_end(self) -> Iterator[Anomaly]:
        ended = {one.offset: one for one in self._confirmed(*FINAL)}
        for delivery in self.deliveries:
            end = ended.get(delivery.offset)
            if end is None:
                continue
            unheard_s = 0.0 if delivery.broker == end.broker else UNHEARD_S
            if delivery.asked > end.answered + unheard_s:
                what = "accepted" if end.kind is AckType.ACCEPT else "rejected"
                yield Anomaly(
                    "after-the-end",
                    f"{delivery.worker} got {delivery.offset} at {delivery.got:.3f}, "
                    f"which {end.worker} had {what} by {end.answered:.3f}",
                )

    def _missing(self, values: Mapping[int, str]) -> Iterator[Anomaly]:
        letters = {letter.offset for letter in self.letters}
        # Operations of unknown outcome may have counted.
        accepted = {one.offset for one in self.sayings if one.kind is AckType.ACCEPT and one.status is not Status.FAIL}
        for offset in values:
            if offset not in accepted and offset not in letters:
                yield Anomaly("lost-job", f"{offset} was neither accepted nor is it among the dead letters")
        for one in self._confirmed(AckType.REJECT):
            if one.offset not in letters:
                yield Anomaly("lost-letter", f"{one.worker} rejected {one.offset}, which is not among the dead letters")

    def _letters(self, values: Mapping[int, str]) -> Iterator[Anomaly]:
        for offset, count in Counter(letter.offset for letter in self.letters).items():
            if count > 1:
                yield Anomaly("double-letter", f"{offset} is among the dead letters {count} times")
        accepted = {one.offset: one for one in self._confirmed(AckType.ACCEPT)}
        for letter in self.letters:
            if letter.offset in accepted:
                worker = accepted[letter.offset].worker
                yield Anomaly("stray-letter", f"{letter.offset} is a dead letter although {worker} accepted it")
            elif values.get(letter.offset) != letter.value:
                yield Anomaly("stray-letter", f"the dead letter of {letter.offset} has {letter.value!r}")
