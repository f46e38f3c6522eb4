"""Many records through each client and codec, in order and whole.

`PENSTOCK_RECORDS` is how many; the default suits every test run, a million takes minutes with the slower clients.
The rates are logged (`--log-cli-level=INFO`); they are the Python clients', not the broker's.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator

import pytest
from client_drivers import CODECS, Driver, Row, driver_params

from penstock.testing import Cluster

RECORDS = int(os.environ.get("PENSTOCK_RECORDS", "20000"))
TIMEOUT_SECONDS = 120 + RECORDS // 1000

logger = logging.getLogger(__name__)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as running:
        yield running


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return [Row(str(number).encode(), b"%d of many records, all different " % number * 2) for number in range(RECORDS)]


@pytest.mark.timeout(TIMEOUT_SECONDS)
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("driver", driver_params())
def test_many_records_come_back_whole_and_in_order(
    cluster: Cluster, rows: list[Row], driver: Driver, codec: str
) -> None:
    topic = cluster.create_topic()
    started = time.perf_counter()
    driver.produce(cluster.bootstrap_servers, topic, rows, codec)
    written = time.perf_counter()
    read = driver.consume(cluster.bootstrap_servers, topic, len(rows))
    done = time.perf_counter()
    wrote, consumed = (round(len(rows) / seconds) for seconds in (written - started, done - written))
    logger.info("%s, %s: %d records, %d/s written, %d/s read", driver.name, codec, len(rows), wrote, consumed)
    assert len(read) == len(rows)
    # Not one comparison of the lists: a million records would make an endless message.
    assert next((number for number, row in enumerate(rows) if read[number] != row), None) is None
