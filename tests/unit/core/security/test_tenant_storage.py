"""How one broker knows what a tenant holds in the whole cluster."""

from __future__ import annotations

from penstock.core.security.tenant_storage import Led, StorageMeter


def test_a_broker_alone_never_exceeds_a_limit() -> None:
    meter = StorageMeter(100)
    assert [meter.admit(40) for _ in range(3)] == [True, True, False]
    assert (meter.used_bytes, meter.refused_batches, meter.is_full) == (80, 1, False)
    assert meter.admit(20)
    assert meter.is_full


def test_what_others_lead_is_learned_in_rounds() -> None:
    meter = StorageMeter(100)
    assert meter.admit(30)
    meter.begin_round()
    assert meter.end_round([Led(1, 30), Led(2, 65)], 3)
    assert meter.used_bytes == 95
    assert not meter.admit(6)
    meter.begin_round()
    assert meter.end_round([Led(1, 30), Led(1, 10)], 2)
    assert meter.admit(60)


def test_what_is_appended_during_a_round_is_not_forgotten() -> None:
    meter = StorageMeter(100)
    assert meter.admit(10)
    meter.begin_round()
    assert meter.admit(50)
    assert meter.end_round([Led(1, 10)], 1)
    assert meter.used_bytes == 60
    assert not meter.admit(41)


def test_a_partition_that_two_brokers_report_refuses_no_writes() -> None:
    meter = StorageMeter(100)
    meter.begin_round()
    assert meter.end_round([Led(1, 60), Led(0, 0)], 1)
    meter.begin_round()
    assert not meter.end_round([Led(1, 60), Led(1, 60)], 1)
    assert meter.used_bytes == 60
    assert meter.admit(40)


def test_offline_partitions_are_not_waited_for() -> None:
    meter = StorageMeter(100)
    meter.begin_round()
    assert meter.end_round([Led(1, 20)], 5)
    assert meter.used_bytes == 20


def test_without_a_limit_bytes_are_only_counted() -> None:
    meter = StorageMeter(None)
    assert meter.admit(1 << 60)
    assert not meter.is_full
    assert meter.used_bytes == 1 << 60


def test_a_meter_that_has_just_begun_holds_what_was_reported() -> None:
    meter = StorageMeter(100)
    assert (meter.used_bytes, meter.refused_batches) == (0, 0)
    assert meter.end_round([Led(1, 60)], 1)
    assert meter.used_bytes == 60
