"""The errors of a transaction's coordinator, as a producer gets them."""

from __future__ import annotations

import pytest

from penstock.model.errors import ErrorCode
from penstock.runtime.coordinator.transaction_guard import ABORTABLE_SINCE, _error_for_producer


@pytest.mark.parametrize(
    ("error", "version", "shown"),
    [
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ABORTABLE_SINCE, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NOT_COORDINATOR, ABORTABLE_SINCE, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.PRODUCER_FENCED, ABORTABLE_SINCE, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.TRANSACTION_ABORTABLE, ABORTABLE_SINCE, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.TRANSACTION_ABORTABLE, ABORTABLE_SINCE - 1, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ABORTABLE_SINCE, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_a_producer_retries_what_is_not_its_fault(error: ErrorCode, version: int, shown: ErrorCode) -> None:
    assert _error_for_producer(error, version) is shown
