"""Messages that brokers refuse fail the record they were sent for, and never stop the subscription."""

from __future__ import annotations

from typing import Any

import pytest

import penstock
from penstock import App, Message
from penstock.app.subscription import Guarantee
from penstock.testing import AppHarness
from support.dlq_command import dlq

MORE_THAN_A_PRODUCER_TAKES = 1_100_000
SMALL_LIMIT = 20_000
MORE_THAN_THE_TOPIC_TAKES = 30_000
GUARANTEES = ["at-least-once", "exactly-once"]


def values_of(harness: AppHarness, topic: str) -> list[str]:
    return sorted(value[:10] for value in harness.values(topic, str))


@pytest.mark.parametrize("options", [{"guarantee": each} for each in GUARANTEES] + [{"share": True}])
def test_record_with_too_large_result_is_dead_lettered(options: dict[str, Any], servers: str, name: str) -> None:
    app = App(name, servers)

    @app.subscribe(f"in-{name}", publish=f"out-{name}", **options)
    def enlarge(value: str) -> str:
        return "x" * MORE_THAN_A_PRODUCER_TAKES if value == "large" else value

    with AppHarness(app, servers, partitions=1) as harness:
        for value in ("before", "large", "after"):
            harness.send(f"in-{name}", value, value)
        harness.run()
        harness.send(f"in-{name}", "later", "later")
        harness.run()
        assert values_of(harness, f"out-{name}") == ["after", "before", "later"]
        (letter,) = harness.dead_letters(f"in-{name}")
    assert letter.record.value == b"large"
    assert "MSG_SIZE_TOO_LARGE" in letter.reason
    assert app.counters["enlarge"].dead == 1


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_other_messages_of_a_refused_batch_are_stored(guarantee: Guarantee, servers: str, name: str) -> None:
    """A broker refuses all of a batch; here every batch is too large for the topic, and one record too."""
    app = App(name, servers)
    with penstock.Admin(servers) as admin:
        admin.create_topic(f"out-{name}", 1, 1, {"max.message.bytes": str(SMALL_LIMIT)})

    @app.subscribe(f"in-{name}", publish=f"out-{name}", guarantee=guarantee)
    def fill(value: str) -> str:
        return f"{value:10}" + "x" * (MORE_THAN_THE_TOPIC_TAKES if value == "large" else 500)

    numbers = [str(number) for number in range(100)]
    with AppHarness(app, servers, partitions=1) as harness:
        for value in (*numbers[:50], "large", *numbers[50:]):
            harness.send(f"in-{name}", value, value)
        harness.run()
        found = values_of(harness, f"out-{name}")
        letters = harness.dead_letters(f"in-{name}")
    # At least once: if the refusal is reported late, some may have been sent before.
    assert sorted(set(found) if guarantee == "at-least-once" else found) == sorted(f"{each:10}" for each in numbers)
    assert [letter.record.value for letter in letters] == [b"large"]


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_record_that_chooses_an_invalid_topic_is_dead_lettered(guarantee: Guarantee, servers: str, name: str) -> None:
    app = App(name, servers)
    with penstock.Admin(servers) as admin:
        admin.create_topic(f"good-{name}", 1, 1)

    @app.subscribe(f"in-{name}", guarantee=guarantee)
    def route(value: str) -> Message:
        return Message(f"{value}-{name}" if value == "good" else "no topic has this name!", None, value)

    with AppHarness(app, servers, partitions=1) as harness:
        for value in ("good", "bad", "good"):
            harness.send(f"in-{name}", "a", value)
        harness.run()
        assert values_of(harness, f"good-{name}") == ["good", "good"]
        (letter,) = harness.dead_letters(f"in-{name}")
    assert letter.record.value == b"bad"


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_too_large_dead_letter_is_sent_without_its_value(guarantee: Guarantee, servers: str, name: str) -> None:
    app = App(name, servers)
    with penstock.Admin(servers) as admin:
        admin.create_topic(f"dlq.in-{name}", 1, 1, {"max.message.bytes": str(SMALL_LIMIT)})

    @app.subscribe(f"in-{name}", retries=0, publish=f"out-{name}", guarantee=guarantee)
    def fail(value: str) -> str:
        if value.startswith("large"):
            raise ValueError("not this one")
        return value

    with AppHarness(app, servers, partitions=1) as harness:
        harness.send(f"in-{name}", "a", "large" + "x" * MORE_THAN_THE_TOPIC_TAKES)
        harness.send(f"in-{name}", "b", "small")
        harness.run()
        assert values_of(harness, f"out-{name}") == ["small"]
        (letter,) = harness.dead_letters(f"in-{name}")
    assert letter.reason == "ValueError: not this one"
    # A replay sees that there is no copy, and reads the record from its own topic.
    assert (letter.record.key, letter.record.value) == (None, None)
    assert (letter.record.header("penstock.dlq.value"), letter.record.header("penstock.dlq.offset")) == (
        b"too large",
        b"0",
    )
    (shown,) = dlq(servers, "peek", f"dlq.in-{name}")
    assert (shown["message"], shown["group"], shown["delivery_count"]) == ("ValueError: not this one", name, 1)
    assert shown["original"] == {"topic": f"in-{name}", "partition": 0, "offset": 0, "timestamp": -1}
    assert f"dlq.in-{name}" in [row["topic"] for row in dlq(servers, "list")]
    sent = dlq(servers, "replay", f"dlq.in-{name}", "--yes")
    assert sent == {"topics": [{"topic": f"in-{name}", "records": 1}], "gone": 0, "unknown": 0}


def test_all_records_of_a_batch_with_too_large_result_are_dead_lettered(servers: str, name: str) -> None:
    app = App(name, servers)

    @app.subscribe(f"in-{name}", publish=f"out-{name}", batch_size=10)
    def join(batch: list[str]) -> str:
        return "x" * MORE_THAN_A_PRODUCER_TAKES if "large" in batch else " ".join(batch)

    with AppHarness(app, servers, partitions=1) as harness:
        for value in ("large", *(str(number) for number in range(5))):
            harness.send(f"in-{name}", value, value)
        harness.run()
        harness.send(f"in-{name}", "later", "later")
        harness.run()
        sent = " ".join(harness.values(f"out-{name}", str)).split()
        dead_lettered = [letter.record.value.decode() for letter in harness.dead_letters(f"in-{name}")]
    assert "large" in dead_lettered
    assert sorted([*sent, *dead_lettered]) == sorted(["large", "later", *(str(number) for number in range(5))])
