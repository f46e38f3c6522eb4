"""The bench's report: it must not flatter, hide a failure, or claim what was not measured."""

from __future__ import annotations

from typing import Any

from bench.figures import Results, figure
from bench.processes import cpu_seconds, peak_resident_bytes, process_tree, reset_peak, resident_bytes
from bench.report import human, render
from bench.workloads import Kind, Workload, workloads

PRODUCE = Workload(Kind.PRODUCE, 100, "1", count=1000)
LATENCY = Workload(Kind.LATENCY, 100, "all", rate=1000, seconds=1)


def produced(peer: str, repetition: int, rate: float, workload: Workload = PRODUCE) -> dict[str, Any]:
    return {
        "peer": peer,
        "repetition": repetition,
        "workload": workload.key,
        "records": 1_000_000,
        "seconds": 1_000_000 / rate,
        "broker_cpu_seconds": 0.5,
        "peak_bytes": 100 << 20,
        "others_cpu_share": 0.01,
    }


def delayed(peer: str, p99: float) -> dict[str, Any]:
    latency = {"p50": p99 / 4, "p99": p99, "p99_9": p99 * 2, "max": p99 * 3}
    return produced(peer, 0, 1000, LATENCY) | {"acknowledged_us": latency}


def results(runs: list[dict[str, Any]]) -> Results:
    peers = {
        name: {"label": label, "version": "1", "settings": "as shipped", "durability": "cached", "missing": missing}
        for name, label, missing in (
            ("penstock", "Penstock", None),
            ("kafka", "Apache Kafka", None),
            ("nats", "NATS", "gone"),
        )
    }
    starts = [{"peer": name, "repetition": 0, "seconds": 0.5, "idle_bytes": 50 << 20} for name in ("penstock", "kafka")]
    about = {"machine": {"processor": "one"}, "librdkafka": "2", "quick": True, "repetitions": 3, "micro": []}
    return Results(about | {"peers": peers, "starts": starts, "runs": runs})


def test_a_figure_is_the_median_with_its_spread() -> None:
    found = figure([3.0, 1.0, 2.0])
    assert found is not None
    assert (found.median, found.low, found.high, found.repetitions) == (2.0, 1.0, 3.0, 3)
    assert figure([]) is None


def test_rates_are_compared_with_kafka_of_the_same_workload() -> None:
    runs = [produced("penstock", index, rate) for index, rate in enumerate((1.0e6, 1.5e6, 2.0e6))]
    runs += [produced("kafka", index, 1.0e6) for index in range(3)]
    page = render(results(runs), [PRODUCE])
    assert "**1.50 M**, 150 MB/s [1.00 M to 2.00 M] (1.50x)" in page
    assert "**1.00 M**, 100 MB/s [1.00 M to 1.00 M] |" in page


def test_latencies_show_the_tail_and_the_ratio_of_p99() -> None:
    page = render(results([delayed("penstock", 2000.0), delayed("kafka", 4000.0)]), [LATENCY])
    assert "0.50 / 2.00 / 4.00 / 6.00 (p99 0.50x)" in page


def test_failures_and_absent_peers_are_named() -> None:
    failed = {"peer": "penstock", "repetition": 0, "workload": PRODUCE.key, "failure": "flush: still unacknowledged"}
    page = render(results([failed, produced("kafka", 0, 1.0e6)]), [PRODUCE])
    assert "Penstock failed at produce/100B/acks_1: flush: still unacknowledged" in page
    assert "NATS did not run: gone" in page
    assert "| 100 B, acks=1 | - | **1.00 M**" in page


def test_a_figure_that_a_tool_does_not_report_is_absent() -> None:
    found = results([produced("kafka", 0, 1.0e6)])
    assert found.of_runs("kafka", PRODUCE.key, lambda run: float(run["requests_per_second"])) is None


def test_disturbed_repetitions_do_not_count_beside_quiet_ones() -> None:
    noisy, quiet = produced("kafka", 0, 3.0e6) | {"others_cpu_share": 0.42}, produced("kafka", 1, 1.0e6)
    page = render(results([noisy, quiet]), [PRODUCE])
    assert "| **1.00 M**, 100 MB/s |" in page
    assert "1 of 2 were left out" in page


def test_a_figure_from_disturbed_repetitions_alone_is_marked() -> None:
    page = render(results([produced("kafka", 0, 1.0e6) | {"others_cpu_share": 0.42}]), [PRODUCE])
    assert "| **1.00 M**, 100 MB/s \\* |" in page
    assert "0 of 1 were left out" in page


def test_every_workload_has_its_own_key_and_quick_ones_are_known_to_full_runs() -> None:
    for quick in (True, False):
        keys = [workload.key for workload in workloads(quick)]
        assert len(set(keys)) == len(keys)
    assert {workload.key for workload in workloads(True)} <= {workload.key for workload in workloads(False)}


def test_numbers_are_short() -> None:
    assert [human(value) for value in (12, 1_234, 12_340, 123_400, 1_234_000)] == [
        "12",
        "1.23 K",
        "12.3 K",
        "123 K",
        "1.23 M",
    ]


def test_a_process_is_weighed() -> None:
    import os

    own = os.getpid()
    assert own in process_tree(own)
    assert cpu_seconds(own) > 0
    reset_peak(own)
    before = peak_resident_bytes(own)
    ballast = bytearray(os.urandom(64 << 20))
    assert peak_resident_bytes(own) >= before + (60 << 20)
    assert resident_bytes(own) > len(ballast)
