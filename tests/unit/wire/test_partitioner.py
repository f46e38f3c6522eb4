"""Keys go where the Java client sends them."""

from __future__ import annotations

import warnings
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_values import each_kernel

from penstock.wire.partitioner import partition_for_key

with warnings.catch_warnings():
    # It loads its own data files in a way that Python is about to give up.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.partitioner.default import murmur2 as kafka_python_murmur2

# What the Java client's own tests expect.
JAVA_HASHES = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@each_kernel
@pytest.mark.parametrize("key", JAVA_HASHES)
def test_hashes_are_java_s(kernel: ModuleType, key: bytes) -> None:
    assert kernel.murmur2(key) == JAVA_HASHES[key]


@each_kernel
@given(key=st.binary(max_size=200))
def test_hashes_are_kafka_python_s(kernel: ModuleType, key: bytes) -> None:
    assert kernel.murmur2(key) & 0xFFFFFFFF == kafka_python_murmur2(key)
    assert kernel.murmur2(memoryview(bytearray(key))) == kernel.murmur2(key)


@given(key=st.binary(max_size=40), partitions=st.integers(1, 10_000))
def test_partitions_are_kafka_python_s(key: bytes, partitions: int) -> None:
    assert partition_for_key(key, partitions) == (kafka_python_murmur2(key) & 0x7FFFFFFF) % partitions


def test_a_negative_hash_is_masked_and_not_negated() -> None:
    assert partition_for_key(b"foobar", 1000) == (-790332482 & 0x7FFFFFFF) % 1000 == 166
