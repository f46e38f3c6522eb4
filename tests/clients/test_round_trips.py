"""What one client writes every client reads: each codec, keys, headers, nulls, and 1 byte to 10 MB."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from client_drivers import CODECS, Driver, Refused, Row, driver_params

from penstock.testing import Cluster

ROWS = [
    Row(b"key", b"value"),
    Row(None, b"without a key"),
    Row(b"key", b""),
    Row(b"gone", None),
    Row("schlüssel".encode(), "größe 🐟".encode()),
    Row(b"k", b"v", (("trace", b"1"), ("trace", b"2"), ("kind", b"fish"))),
    Row(b"1", b"x"),
    *(Row(str(number).encode(), f"record {number}".encode()) for number in range(300)),
    Row(b"long", b"0123456789" * 20_000),
]
SIZES = (1, 10, 1_000, 100_000, 1_000_000, 10_000_000)
DRIVER = pytest.mark.parametrize("driver", driver_params())


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as running:
        yield running


@pytest.fixture(scope="module")
def topics() -> dict[tuple[str, str], str]:
    """Topics that were filled already, by client and codec."""
    return {}


@pytest.mark.parametrize("reader", driver_params())
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("writer", driver_params())
def test_every_client_reads_what_a_client_wrote(
    cluster: Cluster, topics: dict[tuple[str, str], str], writer: Driver, codec: str, reader: Driver
) -> None:
    topic = topics.get((writer.name, codec))
    if topic is None:
        topic = topics[writer.name, codec] = cluster.create_topic()
        writer.produce(cluster.bootstrap_servers, topic, ROWS, codec)
    assert reader.consume(cluster.bootstrap_servers, topic, len(ROWS)) == ROWS


@DRIVER
def test_records_from_a_byte_to_ten_megabytes(cluster: Cluster, driver: Driver) -> None:
    topic = cluster.create_topic(configs={"max.message.bytes": "11000000"})
    noise = random.Random(7)
    rows = [Row(b"size", noise.randbytes(size).translate(WITHOUT_SEPARATORS)) for size in SIZES]
    driver.produce(cluster.bootstrap_servers, topic, rows, large=True)
    assert driver.consume(cluster.bootstrap_servers, topic, len(rows)) == rows


@DRIVER
def test_a_record_above_the_limit_is_refused(cluster: Cluster, driver: Driver) -> None:
    topic = cluster.create_topic()
    with pytest.raises(Refused, match=r"MSG_SIZE_TOO_LARGE|MessageSizeTooLarge|Message size too large"):
        driver.produce(cluster.bootstrap_servers, topic, [Row(None, b"x" * 1_100_000)], large=True)
    driver.produce(cluster.bootstrap_servers, topic, [Row(None, b"x" * 1_000_000)], large=True)
    assert driver.consume(cluster.bootstrap_servers, topic, 1) == [Row(None, b"x" * 1_000_000)]


WITHOUT_SEPARATORS = bytes(byte if byte not in (0x1E, 0x1F) else 0x20 for byte in range(256))
