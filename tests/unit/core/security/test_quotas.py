"""Quotas: whose applies, how rates are measured, and how long a client waits."""

from __future__ import annotations

import pytest

from penstock.core.security.quotas import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    NAME_KEPT_MAX,
    PRODUCER_BYTE_RATE,
    USER,
    Quotas,
    QuotaTable,
    Windows,
    entity,
)

WINDOWS = Windows(11, 1000)


def quotas(*rows: tuple[dict[str, str | None], float], key: str = PRODUCER_BYTE_RATE) -> Quotas:
    table = QuotaTable()
    for parts, value in rows:
        table.set(key, entity(parts), value)
    return Quotas(table, WINDOWS, WINDOWS)


PRECEDENCE: list[dict[str, str | None]] = [
    {USER: "u", CLIENT_ID: "c"},
    {USER: "u", CLIENT_ID: None},
    {USER: "u"},
    {USER: None, CLIENT_ID: "c"},
    {USER: None, CLIENT_ID: None},
    {USER: None},
    {CLIENT_ID: "c"},
    {CLIENT_ID: None},
]


@pytest.mark.parametrize("first", range(len(PRECEDENCE)))
def test_the_most_exact_quota_applies(first: int) -> None:
    table = quotas(*[(parts, float(number)) for number, parts in enumerate(PRECEDENCE[first:], first)]).table
    found = table.limit(PRODUCER_BYTE_RATE, "u", "c")
    assert found is not None
    assert found.value == first


def test_who_has_no_quota_is_not_measured() -> None:
    measured = quotas(({USER: "u"}, 1.0))
    assert measured.record(PRODUCER_BYTE_RATE, "other", "c", 1e9, 0) == 0
    assert measured.table.limit(PRODUCER_BYTE_RATE, "other", "c") is None


def test_a_removed_quota_throttles_no_client() -> None:
    measured = quotas(({USER: "u"}, 1.0))
    assert measured.record(PRODUCER_BYTE_RATE, "u", "c", 1000, 0) > 0
    measured.table.set(PRODUCER_BYTE_RATE, entity({USER: "u"}), None)
    assert measured.record(PRODUCER_BYTE_RATE, "u", "c", 1000, 1) == 0
    assert measured.table.is_empty


def test_a_client_over_its_rate_waits_until_it_is_kept_again() -> None:
    measured = quotas(({USER: "u"}, 100.0))
    # Ten windows count as passed, so 1,000 bytes in the first moment are just within 100 a second.
    assert measured.record(PRODUCER_BYTE_RATE, "u", "c", 1000, 0) == 0
    # 3,000 bytes over 10 s are 300 a second: three times as much time is needed for them, twice as much more.
    assert measured.record(PRODUCER_BYTE_RATE, "u", "c", 2000, 0) == 20_000
    assert measured.record(PRODUCER_BYTE_RATE, "u", "c", 0, 5_000) == 20_000
    # What lies back longer than all windows is forgotten.
    assert measured.record(PRODUCER_BYTE_RATE, "u", "c", 0, 11_000) == 0


def test_a_steady_rate_below_the_quota_is_never_held_back() -> None:
    measured = quotas(({USER: "u"}, 1000.0))
    assert all(measured.record(PRODUCER_BYTE_RATE, "u", "c", 99, step * 100) == 0 for step in range(600))


def test_a_producer_that_obeys_ends_up_at_its_quota() -> None:
    measured = quotas(({USER: "u"}, 1000.0))
    now, sent = 0.0, 0
    while now < 120_000:
        wait = measured.record(PRODUCER_BYTE_RATE, "u", "c", 500, now)
        sent += 500
        now += 10 + min(wait, 11_000)
    assert 900 <= sent * 1000 / now <= 1200


@pytest.mark.parametrize(
    ("parts", "shares"),
    [
        ({USER: "u"}, [("u", "other")]),
        ({USER: "u", CLIENT_ID: "c"}, []),
        ({CLIENT_ID: "c"}, [("other", "c")]),
        ({USER: None}, [("u", "other")]),
    ],
)
def test_those_whom_one_quota_covers_alike_share_it(
    parts: dict[str, str | None], shares: list[tuple[str, str]]
) -> None:
    measured = quotas((parts, 10.0))
    assert measured.record(PRODUCER_BYTE_RATE, "u", "c", 10_000, 0) > 0
    for user, client in [("u", "other"), ("other", "c"), ("other", "other")]:
        waits = measured.record(PRODUCER_BYTE_RATE, user, client, 0, 0) > 0
        assert waits is ((user, client) in shares)


def test_changes_are_drawn_from_a_bucket() -> None:
    measured = quotas(({USER: "u"}, 2.0), key=CONTROLLER_MUTATION_RATE)
    # A full bucket holds what all windows allow, and one request may take more than there is.
    assert measured.mutated("u", "c", 22, 0) == 0
    assert measured.mutated("u", "c", 10, 0) == 5_000
    assert measured.mutation_throttle_ms("u", "c", 4_000) == 1_000
    assert measured.mutation_throttle_ms("u", "c", 5_000) == 0
    assert measured.mutated("u", "c", 1, 5_000) == 500


def test_addresses_have_quotas_of_their_own() -> None:
    table = quotas(({IP: "10.0.0.1"}, 5.0), ({IP: None}, 9.0), key=CONNECTION_CREATION_RATE).table
    assert table.ip_limit("10.0.0.1") == 5
    assert table.ip_limit("10.0.0.2") == 9
    assert quotas().table.ip_limit("10.0.0.1") is None


def test_what_is_measured_does_not_grow_with_the_names_of_clients() -> None:
    measured = quotas(({CLIENT_ID: None}, 100.0))
    names = [f"{number}" + "x" * 30_000 for number in range(50)]
    for name in names:
        assert measured.record(PRODUCER_BYTE_RATE, "alice", name, 50, 0) == 0
    assert len(measured._meters) == 50
    assert all(len(part) <= NAME_KEPT_MAX for _, shared_by in measured._meters for part in shared_by)
    assert measured.table._resolved == {}
    # Each is still measured on its own.
    assert measured.record(PRODUCER_BYTE_RATE, "alice", names[0], 100_000, 0) > 0
    assert measured.record(PRODUCER_BYTE_RATE, "alice", names[1], 1, 0) == 0


def test_changes_without_a_quota_are_not_throttled() -> None:
    measured = quotas(({USER: "other"}, 100.0))
    assert measured.mutated("u", "c", 5_000, 0) == 0
    assert measured.mutation_throttle_ms("u", "c", 0) == 0


def test_a_user_with_many_client_ids_displaces_no_measurement_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.core.security.quotas.METERS_MAX", 10)
    table = QuotaTable()
    for key in (PRODUCER_BYTE_RATE, CONTROLLER_MUTATION_RATE):
        table.set(key, entity({USER: None, CLIENT_ID: None}), 1.0)
    measured = Quotas(table, Windows(11, 1000), Windows(11, 1000))
    assert measured.record(PRODUCER_BYTE_RATE, "u", "c", 100, 0) > 0
    assert measured.mutated("u", "c", 100, 0) > 0
    for number in range(100):
        measured.record(PRODUCER_BYTE_RATE, "eve", str(number), 100, 0)
        measured.mutated("eve", str(number), 100, 0)
    assert measured.throttled_ms("u", "c", 0) > 0
    assert measured.mutation_throttle_ms("u", "c", 0) > 0
