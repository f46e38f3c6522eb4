"""On a machine that stayed up all that was written is there: only the end of an unfinished write is cut off."""

from __future__ import annotations

import pytest
from log_support import LogMaker, append, read_all
from test_recovery import fill, flip, positions

from penstock.model.errors import ErrorCode
from penstock.storage.files import CorruptLogError
from penstock.storage.log import Log
from penstock.storage.settings import LogSettings

IN_RECORDS, IN_LENGTH, IN_OFFSET, IN_MAGIC, IN_EPOCH = 90, 10, 6, 16, 45


def reopened(logs: LogMaker) -> Log:
    return logs.open(recovery_point=1, lost_power=False, stayed_up=True)


def crashed(logs: LogMaker, count: int = 5) -> list[int]:
    """A log whose process was killed, which had synced one batch; returns where its batches start, and its end."""
    log = logs.open()
    fill(log, count)
    starts = positions(log)
    log.close(clean=False)
    return starts


@pytest.mark.parametrize("number", [1, 2, 4])
@pytest.mark.parametrize("at", [IN_RECORDS, IN_EPOCH])
def test_a_damaged_batch_is_no_torn_end(logs: LogMaker, number: int, at: int) -> None:
    """Everything from it on was cut, and the replica could be elected without it."""
    starts = crashed(logs)
    flip(logs.directory / logs.files(".log")[0], starts[number] + at)
    for _ in range(2):
        log = reopened(logs)
        assert (log.end_offset, log.recovery.bytes_truncated) == (5, 0)
        assert [one.position for one in log.recovery.damaged] == [starts[number]]
        with pytest.raises(CorruptLogError) as caught:
            read_all(log, number)
        assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
        assert [one.offset for one in read_all(log, number + 1)] == list(range(number + 1, 5))
        log.close(clean=False)


@pytest.mark.parametrize(
    ("number", "at", "bit"),
    [
        (1, IN_OFFSET, 6),
        *((number, *one) for number in (1, 2, 4) for one in ((IN_LENGTH, 4), (IN_LENGTH, 0), (IN_MAGIC, 0))),
    ],
)
def test_a_log_that_cannot_be_followed_past_damage_refuses_to_open(
    logs: LogMaker, number: int, at: int, bit: int
) -> None:
    starts = crashed(logs)
    path = logs.directory / logs.files(".log")[0]
    flip(path, starts[number] + at, bit)
    before = path.read_bytes()
    for _ in range(2):
        with pytest.raises(CorruptLogError):
            reopened(logs)
    assert path.read_bytes() == before


@pytest.mark.parametrize("left", [1, 20, 60, 61, 62, 100, -1])
@pytest.mark.parametrize("reserved", [0, 500])
def test_a_write_that_was_not_finished_is_cut_off(logs: LogMaker, left: int, reserved: int) -> None:
    if reserved:
        logs.settings = LogSettings(segment_bytes=2000, preallocate=True)
    starts = crashed(logs)
    path = logs.directory / logs.files(".log")[0]
    end = starts[4] + left if left > 0 else starts[5] - 5
    path.write_bytes(path.read_bytes()[:end] + bytes(reserved))
    log = reopened(logs)
    assert (log.end_offset, log.recovery.damaged) == (4, [])
    assert append(log, b"more") == 4
    log.close(clean=False)
    assert reopened(logs).end_offset == 5


def test_nothing_is_removed_behind_a_segment_with_a_damaged_end(logs: LogMaker) -> None:
    crashed(logs, 40)
    names = logs.files(".log")
    path = logs.directory / names[1]
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(CorruptLogError):
        reopened(logs)
    assert logs.files(".log") == names
