"""Connections of a server: how many, how fast, and from where."""

from __future__ import annotations

import pytest

from penstock.core.security import connections
from penstock.core.security.connections import ADMITTED, REFUSED, UNLIMITED, ConnectionQuotas, ConnectionRules
from penstock.core.security.quotas import Windows

WINDOWS = Windows(2, 1000)


def quotas(rate_of_ip: float | None = None, **rules: object) -> ConnectionQuotas:
    return ConnectionQuotas(WINDOWS, ConnectionRules(**rules), lambda _: rate_of_ip)  # type: ignore[arg-type]


def test_all_listeners_share_the_room_and_the_protected_one_has_its_own() -> None:
    counted = quotas(connections_max=2, protected="INTERNAL")
    for address in ("a", "b"):
        assert counted.has_room("CLIENTS")
        assert counted.admit("CLIENTS", address, 0) == ADMITTED
    assert not counted.has_room("CLIENTS")
    assert not counted.is_crowded
    assert counted.has_room("INTERNAL")
    assert counted.admit("INTERNAL", "c", 0) == ADMITTED
    assert counted.is_crowded
    counted.left("a")
    assert not counted.is_crowded
    counted.left("b")
    assert counted.has_room("CLIENTS")


def test_an_address_has_so_many_over_all_listeners() -> None:
    counted = quotas(per_ip_max=1, per_ip_overrides={"b": 2})
    assert counted.admit("A", "a", 0) == ADMITTED
    assert counted.admit("B", "a", 0) == REFUSED
    assert [counted.admit("A", "b", 0) for _ in range(3)] == [ADMITTED, ADMITTED, REFUSED]
    counted.left("a")
    assert counted.admit("B", "a", 0) == ADMITTED


def test_the_rate_of_all_listeners_delays_all_but_the_protected_one() -> None:
    counted = quotas(creation_rate_max=2, protected="INTERNAL")
    # Two windows count: four connections in two seconds are the rate, at first those of one window.
    delays = [counted.delay_ms("CLIENTS", UNLIMITED, 0) for _ in range(4)]
    assert delays[:2] == [0, 0]
    assert all(0 < delay <= 1000 for delay in delays[2:])
    assert counted.delay_ms("OTHERS", UNLIMITED, 0) > 0
    assert counted.delay_ms("INTERNAL", UNLIMITED, 0) == 0
    assert counted.delay_ms("INTERNAL", UNLIMITED, 0) == 0
    assert counted.delay_ms("CLIENTS", UNLIMITED, 5000) == 0


def test_a_listeners_own_rate_delays_it_alone_even_if_it_is_protected() -> None:
    counted = quotas(protected="INTERNAL")
    assert [counted.delay_ms("INTERNAL", 1, 0) > 0 for _ in range(3)] == [False, True, True]
    assert counted.delay_ms("CLIENTS", 1, 0) == 0


def test_an_address_over_its_rate_is_held_and_does_not_count() -> None:
    counted = quotas(rate_of_ip=1, creation_rate_max=100)
    assert counted.delay_ms("A", 100, 0) == 0
    assert counted.admit("A", "a", 0) == ADMITTED
    for _ in range(500):
        assert counted.delay_ms("A", 100, 0) == 0
        verdict = counted.admit("A", "a", 0)
        assert not verdict.is_admitted
        assert 0 < verdict.hold_ms <= 1000
    assert counted.admit("A", "b", 0) == ADMITTED
    # What was refused has not used up its quota either.
    assert counted.admit("A", "a", 3000) == ADMITTED


def test_an_address_that_keeps_trying_gets_its_rate_nonetheless() -> None:
    counted = quotas(rate_of_ip=1)
    admitted = [counted.admit("A", "a", now_ms).is_admitted for now_ms in range(0, 20_000, 250)]
    # Held attempts do not count: once held for good, it would be admitted once.
    assert 8 <= sum(admitted) <= 21


def test_addresses_whose_rate_is_measured_are_bounded_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "METERS_MAX", 3)
    counted = quotas(rate_of_ip=5.0)
    for number in range(10):
        counted.admit("CLIENTS", f"address-{number}", 0)
    # Those that came last.
    assert list(counted._of_addresses) == ["address-7", "address-8", "address-9"]
