"""Records for the tests of the record modules: chosen ones, and Hypothesis's."""

from __future__ import annotations

import importlib.util
from types import ModuleType

import pytest
from hypothesis import strategies as st

from penstock.wire import _kernel_py
from penstock.wire.records import Record

NOW_MS = 1_700_000_000_000
SIZE_MAX = 1 << 20

SAMPLE = [
    Record(0, NOW_MS, b"key", b"value", (("trace", b"1"), ("empty", b""), ("null", None), ("trace", b"2"))),
    Record(1, NOW_MS + 5, None, b"no key"),
    Record(2, NOW_MS - 70_000, b"tombstone", None),
    Record(3, NOW_MS, None, None),
    Record(4, NOW_MS + 1, b"", b""),
    Record(5, NOW_MS + 9_000_000, b"k" * 200, b"v" * 70_000, (("grüße", "ß".encode()),)),
]

FIELDS = st.none() | st.binary(max_size=80)
HEADERS = st.lists(st.tuples(st.text(max_size=8), FIELDS), max_size=3).map(tuple)
TIMESTAMPS = st.integers(-1, 1 << 42)


@st.composite
def record_lists(draw: st.DrawFn, *, gaps: bool = False, size_max: int = 12) -> list[Record]:
    """Records with offsets from 0 on, with gaps as compaction leaves them if asked for."""
    records = []
    offset = 0
    for timestamp, key, value, headers in draw(
        st.lists(st.tuples(TIMESTAMPS, FIELDS, FIELDS, HEADERS), min_size=1, max_size=size_max)
    ):
        offset += draw(st.integers(0, 300)) if gaps else 0
        records.append(Record(offset, timestamp, key, value, headers))
        offset += 1
    return records


def native_kernel() -> ModuleType | None:
    """The compiled kernel, if this installation has one."""
    if importlib.util.find_spec("penstock.wire._kernel") is None:
        return None
    return importlib.import_module("penstock.wire._kernel")


NATIVE = native_kernel()
needs_native = pytest.mark.skipif(NATIVE is None, reason="the native kernel was not built")
each_kernel = pytest.mark.parametrize(
    "kernel", [pytest.param(_kernel_py, id="python"), pytest.param(NATIVE, id="native", marks=needs_native)]
)
