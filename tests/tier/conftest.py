from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.object_stores import STORES, Store, available


@pytest.fixture(scope="module", params=STORES)
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A test runs with each of the stores in turn."""
    with available(request.param).start(tmp_path_factory.mktemp(request.param)) as running:
        yield running
