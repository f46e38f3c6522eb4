"""What is counted, and the text that Prometheus reads."""

from __future__ import annotations

from bisect import bisect_left
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.metrics.counters import ApiCounters, ReplicaCounters, RequestCounters
from penstock.core.metrics.histogram import Histogram, Window, quantile
from penstock.core.metrics.sheet import Metric, Sheet, label_block

PLAIN = Metric("plain_total", "counter", "Some.")
LABELLED = Metric("labelled", "gauge", "Some\nmore.", ("one", "two"))
BOTH = Metric("both_total", "counter", "All and each.", detail_labels=("topic",))
DETAIL = Metric("each", "gauge", "Each.", ("topic",), "topics")
TIMES = Metric("times_seconds", "histogram", "Times.", ("api",))
QUANTILES = Metric("times_ms", "summary", "Times.", ("api",))


def text(sheet: Sheet, *, openmetrics: bool = False) -> str:
    return b"".join(sheet.render(openmetrics=openmetrics)).decode()


def test_a_sheet_has_each_family_in_one_place() -> None:
    sheet = Sheet()
    sheet.add(PLAIN, 1)
    sheet.add(LABELLED, 0.5, "a", 2)
    sheet.add(PLAIN, 2)
    assert text(sheet) == (
        "# HELP plain_total Some.\n# TYPE plain_total counter\nplain_total 1\nplain_total 2\n"
        '# HELP labelled Some\\nmore.\n# TYPE labelled gauge\nlabelled{one="a",two="2"} 0.5\n'
    )


def test_openmetrics_declares_counters_without_their_suffix_and_ends_with_eof() -> None:
    sheet = Sheet()
    sheet.add(PLAIN, 1)
    assert text(sheet, openmetrics=True) == "# HELP plain Some.\n# TYPE plain counter\nplain_total 1\n# EOF\n"


def test_a_summary_has_its_quantiles_sum_and_count() -> None:
    sheet = Sheet()
    sheet.summary(QUANTILES, [(0.5, 2.0), (0.99, 7.5)], 12.5, 4, "fetch")
    assert text(sheet).splitlines() == [
        "# HELP times_ms Times.",
        "# TYPE times_ms summary",
        'times_ms{api="fetch",quantile="0.5"} 2.0',
        'times_ms{api="fetch",quantile="0.99"} 7.5',
        'times_ms_sum{api="fetch"} 12.5',
        'times_ms_count{api="fetch"} 4',
    ]


def test_labels_are_escaped() -> None:
    sheet = Sheet()
    sheet.add(LABELLED, 1, 'say "hi"\\', "two\nlines")
    assert text(sheet).splitlines()[-1] == 'labelled{one="say \\"hi\\"\\\\",two="two\\nlines"} 1'


def test_each_label_has_a_value() -> None:
    with pytest.raises(ValueError, match="shorter"):
        label_block(("topic", "partition"), ("orders",))


@pytest.mark.parametrize(
    ("value", "written"), [(3, "3"), (True, "1"), (0.1, "0.1"), (float("inf"), "+Inf"), (float("nan"), "NaN")]
)
def test_numbers_are_written_as_prometheus_reads_them(value: float, written: str) -> None:
    sheet = Sheet()
    sheet.add(PLAIN, value)
    assert text(sheet).split()[-1] == written


def test_a_histogram_is_cumulative() -> None:
    sheet = Sheet()
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 7.0):
        histogram.observe(value)
    sheet.histogram(TIMES, histogram, "Produce")
    assert text(sheet).splitlines()[2:] == [
        'times_seconds_bucket{api="Produce",le="1.0"} 2',
        'times_seconds_bucket{api="Produce",le="2.0"} 3',
        'times_seconds_bucket{api="Produce",le="+Inf"} 4',
        'times_seconds_sum{api="Produce"} 10.0',
        'times_seconds_count{api="Produce"} 4',
    ]


def test_a_sheet_of_details_has_nothing_else() -> None:
    sheet = Sheet(frozenset(("topics",)), has_rest=False)
    sheet.add(PLAIN, 1)
    sheet.add(BOTH, 3)
    sheet.add(BOTH, 2, "orders")
    sheet.add(DETAIL, 4, "orders")
    sheet.histogram(TIMES, Histogram(), "Produce")
    sheet.summary(QUANTILES, [(0.5, 1.0)], 1.0, 1, "Produce")
    lines = [line for line in text(sheet).splitlines() if not line.startswith("#")]
    assert lines == ['both_total{topic="orders"} 2', 'each{topic="orders"} 4']


@given(st.lists(st.floats(0, 50), min_size=1), st.floats(0, 1))
def test_a_quantile_lies_in_the_bucket_that_holds_it(values: list[float], wanted: float) -> None:
    histogram = Histogram()
    for value in values:
        histogram.observe(value)
    exact = sorted(values)[max(0, ceil(wanted * len(values)) - 1)]
    # Of values above all bounds nothing is known but the last bound.
    bounds = (0.0, *histogram.bounds, histogram.bounds[-1])
    bucket = bisect_left(histogram.bounds, exact)
    assert bounds[bucket] <= quantile(histogram.bounds, histogram.counts, wanted) <= bounds[bucket + 1]


def test_no_values_have_no_quantile() -> None:
    assert quantile((1.0, 2.0), (0, 0, 0), 0.99) == 0.0


def test_a_window_forgets_what_is_long_ago() -> None:
    window, histogram = Window(span_s=100, step_s=10), Histogram((1.0,))
    histogram.observe(0.5)
    assert window.lately(histogram, 0.0) == [1, 0]
    histogram.observe(5.0)
    # The first look is the base as long as it is the newest that is old enough.
    assert window.lately(histogram, 50.0) == [0, 1]
    assert window.lately(histogram, 160.0) == [0, 0]


def test_waiting_is_measured_apart_from_working() -> None:
    counters = ApiCounters("Produce")
    counters.answered(0.001)
    counters.answered_late(0.5, 0.4)
    assert counters.overall.count == 2
    assert counters.overall.sum == pytest.approx(0.501)
    assert counters.local.sum == pytest.approx(0.101)
    assert counters.waiting.sum == pytest.approx(0.4)


def test_nothing_is_counted_where_counting_is_off() -> None:
    requests, replicas = RequestCounters(is_on=False), ReplicaCounters(is_on=False)
    requests.api("Produce").answered(1.0)
    topic = replicas.topic("orders")
    topic.appended(10, 100)
    topic.read(100)
    topic.sent(100)
    topic.followed(100)
    assert requests.api("Produce").overall.count == 0
    assert replicas.total("messages_in") == replicas.total("bytes_out") == 0


def test_sums_do_not_shrink_when_a_topic_goes() -> None:
    replicas = ReplicaCounters()
    replicas.topic("orders").appended(10, 100)
    replicas.topic("payments").appended(1, 64)
    replicas.forget("orders")
    assert replicas.total("messages_in") == 11
    assert list(replicas.topics) == ["payments"]
    replicas.topic("orders").appended(5, 100)
    assert replicas.total("messages_in") == 16


@pytest.mark.parametrize(("size", "bucket"), [(64, 6), (65, 7), (128, 7), (2**31, 31)])
def test_a_batch_is_in_the_bucket_of_its_size(size: int, bucket: int) -> None:
    replicas = ReplicaCounters()
    replicas.topic("orders").appended(1, size)
    assert replicas.batch_sizes[bucket] == 1


def test_in_sync_replicas_that_come_and_go_are_counted() -> None:
    topic = ReplicaCounters().topic("orders")
    topic.in_sync_changed(3, 2)
    topic.in_sync_changed(2, 2)
    topic.in_sync_changed(2, 3)
    assert (topic.in_sync_shrinks, topic.in_sync_expansions) == (1, 1)
