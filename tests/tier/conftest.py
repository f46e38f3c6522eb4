from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.object_stores import STORES, Store


@pytest.fixture(scope="module", params=STORES)
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A test runs with each of the stores in turn."""
    kind = STORES[request.param]
    reason = kind.missing()
    if reason is not None:
        pytest.skip(reason)
    with kind.start(tmp_path_factory.mktemp(request.param)) as running:
        yield running
