"""The asyncio clients are what their generator writes from the blocking ones."""

from __future__ import annotations

import pytest
from scripts.async_clients import CLIENTS, Client, generated


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_generated_client_is_current(client: Client) -> None:
    assert client.path.read_text() == generated(client), "run `make docs`"
