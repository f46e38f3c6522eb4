"""Who may push when, what each client is asked for, and how much is kept."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.config.alter import AlterOperation, ConfigScope, apply_incremental
from penstock.config.client_metrics import parse_subscription
from penstock.core.telemetry.clients import (
    DEFAULT_INTERVAL_MS,
    SILENCE_MS_MIN,
    ClientDescription,
    Plan,
    TelemetryClients,
)
from penstock.core.telemetry.otlp import Kind, Push, Series
from penstock.model.errors import ApiError, ErrorCode

ONE, TWO = b"1" * 16, b"2" * 16
SHOP = ClientDescription("shop-7", "apache-kafka-java", "4.3.1", "10.0.0.7", 4711)
INTERVAL_MS = 1_000
ZSTD = 4


def subscribed(clients_max: int = 10, series_max: int = 100, **settings: str) -> TelemetryClients:
    clients = TelemetryClients(clients_max, series_max)
    chosen = {"metrics": "*", "interval.ms": str(INTERVAL_MS)} | {
        key.replace("_", "."): settings[key] for key in settings
    }
    clients.subscribe_to({"all": parse_subscription(chosen)})
    return clients


def code_of(work: Any, *arguments: Any, **named: Any) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        work(*arguments, **named)
    return caught.value.code


def check(clients: TelemetryClients, plan: Plan, now_ms: int, **changes: Any) -> Any:
    given: dict[str, Any] = {
        "instance_id": ONE,
        "description": SHOP,
        "subscription_id": plan.subscription_id,
        "compression_type": ZSTD,
        "size_bytes": 10,
        "size_bytes_max": 100,
        "is_terminating": False,
    }
    return clients.check_push(**(given | changes), now_ms=now_ms)


def push_of(*values: float, kind: Kind = Kind.GAUGE) -> Push:
    return Push([Series(f"m{number}", "", kind, (), value) for number, value in enumerate(values)], 0)


def test_subscriptions_add_up_and_the_shortest_interval_counts() -> None:
    clients = TelemetryClients(10, 100)
    assert clients.ask(ONE, SHOP, 0)[1:] == (DEFAULT_INTERVAL_MS, ())
    some = {
        "a": parse_subscription({"metrics": "b.c,a", "interval.ms": "5000", "match": "client_id=shop-.*"}),
        "b": parse_subscription({"metrics": "d", "interval.ms": "2000", "match": "client_software_name=apache.*"}),
        "c": parse_subscription({"metrics": "*", "interval.ms": "100", "match": "client_id=shop"}),
    }
    clients.subscribe_to(some)
    plan = clients.ask(ONE, SHOP, DEFAULT_INTERVAL_MS)
    assert plan[1:] == (2_000, ("a", "b.c", "d")), "a pattern matches the whole attribute"
    assert clients.ask(TWO, SHOP, 0).subscription_id != plan.subscription_id
    clients.subscribe_to(some | {"d": parse_subscription({"metrics": "*"})})
    assert clients.ask(ONE, SHOP, 2 * DEFAULT_INTERVAL_MS).metrics == ("*",)


def test_asking_and_pushing_too_often_is_throttled() -> None:
    clients = subscribed()
    plan = clients.ask(ONE, SHOP, 0)
    assert code_of(clients.ask, ONE, SHOP, INTERVAL_MS - 1) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    check(clients, plan, 1)
    assert code_of(check, clients, plan, INTERVAL_MS) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    check(clients, plan, INTERVAL_MS + 1)
    check(clients, plan, INTERVAL_MS + 2, is_terminating=True)
    assert code_of(check, clients, plan, 9 * INTERVAL_MS) is ErrorCode.INVALID_REQUEST, "it said goodbye"


def test_a_changed_subscription_is_requested_again_at_once() -> None:
    clients = subscribed()
    plan = clients.ask(ONE, SHOP, 0)
    check(clients, plan, 1)
    clients.subscribe_to({"all": parse_subscription({"metrics": "a"})})
    later = 1 + DEFAULT_INTERVAL_MS
    assert code_of(check, clients, plan, later) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    changed = clients.ask(ONE, SHOP, later + 1)
    assert changed.subscription_id != plan.subscription_id
    check(clients, changed, later + 2)


def test_a_push_to_a_broker_that_never_heard_of_the_client_is_taken() -> None:
    plan = subscribed().ask(ONE, SHOP, 0)
    check(subscribed(), plan, 5)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"instance_id": bytes(16)}, ErrorCode.INVALID_REQUEST),
        ({"subscription_id": 7}, ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
        ({"compression_type": 5}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"size_bytes": 101}, ErrorCode.TELEMETRY_TOO_LARGE),
    ],
)
def test_bad_pushes_are_refused(changes: dict[str, Any], code: ErrorCode) -> None:
    clients = subscribed()
    plan = clients.ask(ONE, SHOP, 0)
    assert code_of(check, clients, plan, 1, **changes) is code


def test_the_last_push_is_shown_and_deltas_add_up() -> None:
    clients = subscribed()
    client = check(clients, clients.ask(ONE, SHOP, 0), 1)
    clients.take(client, push_of(1, 2))
    assert [(one.name, one.value) for one in client.series] == [("m0", 1), ("m1", 2)]
    clients.take(client, push_of(5))
    assert [(one.name, one.value) for one in client.series] == [("m0", 5)]
    for _ in range(3):
        clients.take(client, push_of(2, kind=Kind.DELTA))
    assert [tuple(one) for one in client.series] == [("m0_total", True, (), 6)]
    assert clients.series_count == 1


def test_clients_and_series_are_limited() -> None:
    clients = subscribed(clients_max=3, series_max=5)
    for number in range(20):
        identity = bytes([number + 1]) * 16
        plan = clients.ask(identity, SHOP, number)
        client = check(clients, plan, number, instance_id=identity)
        clients.take(client, push_of(1, 2, 3))
    assert len(clients) == 3
    assert clients.series_count == sum(len(one.series) for one in clients) <= 5
    assert clients.left_out > 0
    assert {one.instance_id[0] for one in clients} == {18, 19, 20}


def test_the_silent_are_forgotten() -> None:
    clients = subscribed()
    plan = clients.ask(ONE, SHOP, 0)
    clients.take(check(clients, plan, 1), push_of(1))
    clients.forget_silent(SILENCE_MS_MIN)
    assert len(clients) == 1
    clients.forget_silent(SILENCE_MS_MIN + 1)
    assert (len(clients), clients.series_count) == (0, 0)


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("interval.ms", "99", ErrorCode.INVALID_REQUEST),
        ("interval.ms", "3600001", ErrorCode.INVALID_REQUEST),
        ("unheard.of", "1", ErrorCode.INVALID_REQUEST),
        ("match", "client_id", ErrorCode.INVALID_CONFIG),
        ("match", "colour=red", ErrorCode.INVALID_CONFIG),
        ("match", "client_id=[", ErrorCode.INVALID_CONFIG),
        ("match", "client_id=a=b", ErrorCode.INVALID_CONFIG),
    ],
)
def test_settings_are_checked_as_kafka_does(name: str, value: str, code: ErrorCode) -> None:
    change = [(name, AlterOperation.SET, value)]
    assert code_of(apply_incremental, {}, change, ConfigScope.CLIENT_METRICS) is code


def test_good_settings_are_taken() -> None:
    change = [
        ("match", AlterOperation.SET, "client_id=a.*,client_source_port=\\d+"),
        ("metrics", AlterOperation.SET, ""),
    ]
    assert apply_incremental({}, change, ConfigScope.CLIENT_METRICS)["metrics"] == ""


def test_a_client_that_describes_itself_differently_gets_the_plan_of_its_new_description() -> None:
    clients = TelemetryClients(10, 100)
    clients.subscribe_to({"new": parse_subscription({"metrics": "a", "match": "client_software_version=5.*"})})
    assert clients.ask(ONE, SHOP, 0).metrics == ()
    upgraded = SHOP._replace(software_version="5.0.0")
    assert clients.ask(ONE, upgraded, DEFAULT_INTERVAL_MS).metrics == ("a",)
    assert clients.ask(ONE, upgraded, 2 * DEFAULT_INTERVAL_MS).metrics == ("a",)
    assert clients.ask(ONE, SHOP, 3 * DEFAULT_INTERVAL_MS).metrics == ()


def test_a_user_with_many_clients_displaces_its_own() -> None:
    clients = subscribed(clients_max=4)
    other = SHOP._replace(owner="User:other")
    clients.ask(ONE, other, 0)
    for number in range(50):
        clients.ask(bytes([100 + number]) * 16, SHOP._replace(owner="User:many"), 1 + number)
    assert len(clients) == 4
    assert code_of(clients.ask, ONE, other, 2) is ErrorCode.THROTTLING_QUOTA_EXCEEDED, "it is known still"


def test_a_user_with_many_series_makes_room_for_others() -> None:
    clients = subscribed(clients_max=20, series_max=100)

    def push(instance: int, user: str, count: int, now_ms: int) -> int:
        """How many series are shown of it."""
        description = SHOP._replace(owner=user)
        plan = clients.ask(bytes([instance]) * 16, description, now_ms)
        client = check(clients, plan, now_ms, instance_id=bytes([instance]) * 16, description=description)
        clients.take(client, push_of(*range(count)))
        assert clients.series_count == sum(len(one.series) for one in clients) <= 100
        return len(client.series)

    assert [push(number, "User:many", 40, number) for number in range(1, 5)] == [40, 40, 20, 0]
    assert push(5, "User:other", 30, 5) == 30
    assert push(6, "User:third", 50, 6) == 35
    assert clients._series_of == {"User:many": 35, "User:other": 30, "User:third": 35}
    # The largest gets no more at the cost of the others.
    before = {one.instance_id: len(one.series) for one in clients if one.description.owner != "User:many"}
    push(7, "User:many", 90, 7)
    assert before == {one.instance_id: len(one.series) for one in clients if one.description.owner != "User:many"}


def test_users_do_not_push_for_each_other() -> None:
    clients = subscribed()
    mine = check(
        clients, clients.ask(ONE, SHOP._replace(owner="User:me"), 0), 1, description=SHOP._replace(owner="User:me")
    )
    clients.take(mine, push_of(1, 2))
    theirs = check(clients, clients.ask(ONE, SHOP, 2), 3)
    clients.take(theirs, push_of())
    assert len(mine.series) == 2
