"""Where the replicas of a disk go when it is emptied, and what the doctor reports about disks."""

from __future__ import annotations

import pytest

from penstock.cli.cluster.disk_plan import NoRoom, plan_drain
from penstock.cli.doctor.command import NOTE, OK, WRONG
from penstock.cli.doctor.disks import judge_disks
from penstock.client.disks import Arriving, DiskView, disks_of, duration
from penstock.model.ids import TopicPartition
from penstock.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

GB = 10**9
HOUR_MS = 3_600_000


def disk(path: str, free: int = 800 * GB, **more: object) -> DiskView:
    return DiskView(1, path, is_online=True, total_bytes=1000 * GB, free_bytes=free, **more)  # type: ignore[arg-type]


def name(number: int) -> TopicPartition:
    return TopicPartition("orders", number)


def test_replicas_go_where_there_is_room_the_largest_first() -> None:
    source = disk("/a", replicas={name(0): 10 * GB, name(1): 200 * GB, name(2): 150 * GB})
    plan = plan_drain(source, [source, disk("/b", 500 * GB), disk("/c", 400 * GB)])
    assert plan == {name(1): "/b", name(2): "/c", name(0): "/b"}


def test_what_is_on_its_way_stays_so_and_its_room_is_taken() -> None:
    source = disk("/a", replicas={name(0): 300 * GB, name(1): 100 * GB})
    busy = disk("/b", 500 * GB, arriving={name(0): Arriving(50 * GB, 7)})
    assert plan_drain(source, [source, busy]) == {name(1): "/b"}
    with pytest.raises(NoRoom):
        plan_drain(disk("/a", replicas={**source.replicas, name(1): 101 * GB}), [busy])


def test_cordoned_and_failed_disks_get_nothing() -> None:
    source = disk("/a", replicas={name(0): GB})
    with pytest.raises(NoRoom):
        plan_drain(source, [source, disk("/b", is_cordoned=True), DiskView(1, "/c", is_online=False)])
    assert plan_drain(disk("/a"), [disk("/b", is_cordoned=True)]) == {}


def test_a_response_becomes_disks() -> None:
    rows = [DescribeLogDirsPartition(0, 100, 0), DescribeLogDirsPartition(1, 40, 5, True)]
    found = DescribeLogDirsResult(0, "/a", [DescribeLogDirsTopic("orders", rows)], 1000, 250, True, 9 * HOUR_MS)
    online, offline = disks_of(7, DescribeLogDirsResponse(results=[found, DescribeLogDirsResult(56, "/b")]))
    assert online == DiskView(7, "/a", True, True, 1000, 250, 9 * HOUR_MS, {name(0): 100}, {name(1): Arriving(40, 5)})
    assert (online.used_percent, online.size_bytes, online.is_full_soon) == (75, 140, True)
    assert offline == DiskView(7, "/b", is_online=False)


def test_the_doctor_speaks_of_disks_that_failed_or_fill_up() -> None:
    (fine,) = judge_disks([disk("/a"), disk("/b", full_in_ms=400 * HOUR_MS)])
    assert fine.level == OK
    failed, full, urgent, soon = judge_disks(
        [
            DiskView(1, "/a", is_online=False),
            disk("/b", 50 * GB),
            disk("/c", full_in_ms=9 * HOUR_MS),
            disk("/d", full_in_ms=20 * HOUR_MS),
        ]
    )
    assert [one.level for one in (failed, full, urgent, soon)] == [WRONG, WRONG, WRONG, NOTE]
    assert urgent.what == "/c of broker 1 is full in 9 h at this rate"


@pytest.mark.parametrize(("hours", "text"), [(0.5, "30 min"), (9, "9 h"), (47.9, "47 h"), (80, "3 days")])
def test_durations_are_rough(hours: float, text: str) -> None:
    assert duration(int(hours * HOUR_MS)) == text
