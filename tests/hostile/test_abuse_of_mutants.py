"""The checks of `test_abuse` notice a broker that lacks one of the bounds."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import test_abuse
from abused_broker import AbusedBroker

CHECKS: dict[str, Callable[[AbusedBroker], None]] = {
    "accept_texts_of_any_length": test_abuse.test_tokens_are_not_a_way_to_fill_the_metadata_of_a_cluster,
    "accept_any_number_of_elements": test_abuse.test_requests_beyond_the_limits_close_the_connection_at_once,
    "remember_every_denial": test_abuse.test_names_that_are_denied_are_not_kept,
    "compress_on_the_loop": test_abuse.test_records_that_take_long_to_compress_do_not_occupy_the_loop,
}


@pytest.mark.slow
@pytest.mark.parametrize("mutation", CHECKS)
def test_a_broker_without_a_bound_is_noticed(mutation: str) -> None:
    with AbusedBroker(mutation=mutation) as broker, pytest.raises(AssertionError):
        CHECKS[mutation](broker)
