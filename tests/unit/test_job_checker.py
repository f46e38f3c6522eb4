"""The checker of share groups' workers names each anomaly, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.core.share.acknowledgements import AckType
from support.history import Status
from support.history_jobs import JobBook, Letter

ACCEPT, RELEASE, REJECT = AckType.ACCEPT, AckType.RELEASE, AckType.REJECT


class Book(JobBook):
    """One whose clock a test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(lambda: self.now, deliveries_max=2, lock_s=10.0)

    def told(
        self, worker: str, offset: int, kind: AckType, times: Iterator[int], count: int = 1, status: Status = Status.OK
    ) -> None:
        """A worker asks, gets a record, speaks and is answered, at four times."""
        asked = next(times)
        self.now = next(times)
        delivery = self.delivered(worker, offset, count, asked)
        self.now = next(times)
        saying = self.say(delivery, kind)
        self.now = next(times)
        self.answered([saying], status)

    def kinds(self, *values: str) -> list[str]:
        return [anomaly.kind for anomaly in self.check(dict(enumerate(values)))]


def test_a_good_story_has_no_anomalies() -> None:
    book = Book()
    book.told("a", 0, RELEASE, iter((0, 1, 2, 3)))
    book.told("b", 0, ACCEPT, iter((2, 4, 5, 6)), count=2)
    book.told("b", 1, REJECT, iter((2, 4, 5, 6)))
    book.told("a", 2, ACCEPT, iter((2, 4, 5, 6)), status=Status.UNKNOWN)
    book.letters.append(Letter(1, "v1"))
    assert book.kinds("v0", "v1", "v2") == []


def test_what_gets_lost_is_found() -> None:
    book = Book()
    book.told("a", 0, ACCEPT, iter((0, 1, 2, 3)), status=Status.FAIL)
    book.told("a", 1, REJECT, iter((0, 1, 2, 3)))
    assert book.kinds("v0", "v1") == ["lost-job", "lost-job", "lost-letter"]


def test_letters_too_many_and_of_others_are_found() -> None:
    book = Book()
    book.told("a", 0, REJECT, iter((0, 1, 2, 3)))
    book.told("a", 1, ACCEPT, iter((0, 1, 2, 3)))
    book.letters += [Letter(0, "v0"), Letter(0, "v0"), Letter(1, "v1"), Letter(2, "other")]
    assert book.kinds("v0", "v1", "v2") == ["double-letter", "stray-letter", "stray-letter"]


def test_two_holders_are_found_unless_a_lock_may_have_ended() -> None:
    book = Book()
    book.told("a", 0, ACCEPT, iter((0, 1, 6, 7)))
    book.told("b", 0, ACCEPT, iter((2, 3, 4, 5)))
    assert book.kinds("v0") == ["two-holders"]
    late = Book()
    late.told("a", 0, ACCEPT, iter((0, 1, 12, 13)))
    late.told("b", 0, ACCEPT, iter((2, 11, 12, 13)))
    assert late.kinds("v0") == []


def test_a_record_that_its_holder_may_settle_is_delivered_to_no_other_worker() -> None:
    book = Book()
    book.told("a", 0, ACCEPT, iter((0, 1, 6, 7)))
    book.told("b", 0, ACCEPT, iter((2, 3, 4, 5)), status=Status.FAIL)
    assert book.kinds("v0") == ["two-holders"]


def test_a_broker_that_was_replaced_may_not_have_heard_for_a_second() -> None:
    for asked, kinds in ((3.9, []), (4.1, ["after-the-end"])):
        book = Book()
        book.told("a", 0, ACCEPT, iter((0, 1, 2, 3)))
        book.delivered("b", 0, 1, asked, broker="another")
        assert book.kinds("v0") == kinds


def test_deliveries_after_the_end_too_often_and_too_early_are_found() -> None:
    book = Book()
    book.told("a", 0, ACCEPT, iter((0, 1, 2, 3)))
    book.told("b", 0, RELEASE, iter((4, 5, 6, 7)), count=3, status=Status.FAIL)
    book.delivered("b", 1, 1, 7, due=8.5)
    book.letters.append(Letter(1, "v1"))
    assert book.kinds("v0", "v1") == ["too-often", "early", "after-the-end"]
