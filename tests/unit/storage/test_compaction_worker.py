"""The process that cleans: what it is told, what it answers, how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest
from compaction_support import make_job, pairs, put, swap_in
from log_support import NOW_MS, LogMaker

from penstock.storage.compaction.clean import CompactionError, CompactionReport
from penstock.storage.compaction.swap import CleanedSegment
from penstock.storage.compaction.worker import MODULE, Pacer, decode_answer, decode_job, encode_job
from penstock.storage.log import Log

END_TIMEOUT_S = 20

Worker = subprocess.Popen[bytes]


@pytest.fixture
def worker() -> Iterator[Worker]:
    with subprocess.Popen([sys.executable, "-m", MODULE], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield process
        process.kill()


def say(worker: Worker, line: bytes) -> None:
    assert worker.stdin is not None
    worker.stdin.write(line)
    worker.stdin.flush()


def hear(worker: Worker) -> CleanedSegment | CompactionReport:
    assert worker.stdout is not None
    return decode_answer(worker.stdout.readline())


@pytest.fixture
def log(logs: LogMaker) -> Log:
    log = logs.open()
    for number in range(40):
        put(log, (b"k%d" % (number % 3), b"v%d" % number), producer_id=3, producer_epoch=0, base_sequence=number)
    log.roll(NOW_MS)
    return log


def test_a_job_survives_the_way_to_the_process(log: Log) -> None:
    job = make_job(log)
    assert len(job.segments) > 1
    assert decode_job(encode_job(job)) == job
    limited = replace(job, bytes_per_second_max=12.5)
    assert decode_job(encode_job(limited)) == limited


def test_each_segment_is_handed_over_before_the_next_is_begun(log: Log, worker: Worker, logs: LogMaker) -> None:
    job = make_job(log)
    say(worker, encode_job(job))
    handed_over = 0
    while isinstance(answer := hear(worker), CleanedSegment):
        assert len(logs.files(".log.cleaned")) == 1
        swap_in(log, answer, log.generation)
        handed_over += 1
        say(worker, b"\n")
    assert handed_over == 2
    report = answer
    assert (report.end_offset, report.records_kept, report.keys_mapped) == (40, 3, 3)
    assert [offset for offset, _, _ in pairs(log)] == [37, 38, 39]
    assert worker.wait(END_TIMEOUT_S) == 0


def test_it_ends_when_its_owner_is_gone(log: Log, worker: Worker) -> None:
    say(worker, encode_job(make_job(log)))
    hear(worker)
    assert worker.stdin is not None
    worker.stdin.close()
    assert worker.wait(END_TIMEOUT_S) == 1


def test_what_goes_wrong_is_answered(log: Log, worker: Worker) -> None:
    job = make_job(log)
    log.delete_directory(bytes(16))
    say(worker, encode_job(job))
    with pytest.raises(CompactionError, match="is gone") as caught:
        hear(worker)
    assert caught.value.is_passing
    assert worker.wait(END_TIMEOUT_S) == 0


def test_a_lasting_error_is_distinguished_from_a_transient_one() -> None:
    with pytest.raises(CompactionError) as caught:
        decode_answer(json.dumps({"error": "damaged", "passing": False}).encode())
    assert (caught.value.message, caught.value.is_passing) == ("damaged", False)


class FakeClock:
    def __init__(self) -> None:
        self.now = 100.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_the_pacer_keeps_to_its_rate_and_does_not_save_up() -> None:
    clock = FakeClock()
    pacer = Pacer(1000.0, lambda: clock.now, clock.sleep)
    for _ in range(50):
        pacer(200)
    assert 9.8 <= clock.now - 100 <= 10.1
    clock.now += 60
    pacer(0)
    start = clock.now
    for _ in range(10):
        pacer(200)
    assert 1.8 <= clock.now - start <= 2.1


def test_without_a_limit_the_pacer_never_sleeps() -> None:
    clock = FakeClock()
    pacer = Pacer(1.7976931348623157e308, lambda: clock.now, clock.sleep)
    for _ in range(100):
        pacer(1 << 20)
    assert clock.now == 100.0
