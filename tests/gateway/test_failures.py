"""Arguments that confluent_kafka rejects are the caller's mistake, whichever side checks them."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from penstock.gateway.kafka.errors import checked_call
from penstock.gateway.web.problem import Problem


def refuse(error: Exception) -> Any:
    raise error


@pytest.mark.parametrize(
    "error",
    [
        ValueError("out of range"),
        TypeError("not text"),
        OverflowError("too large"),
        KafkaException(KafkaError(KafkaError._INVALID_ARG, "no")),
    ],
)
def test_refused_arguments_are_a_bad_request(error: Exception) -> None:
    with pytest.raises(Problem) as caught:
        checked_call(refuse, error)
    assert caught.value.status == 400
    assert caught.value.fix


def test_a_record_next_to_a_refused_one_may_be_sent_again() -> None:
    with pytest.raises(Problem) as caught:
        checked_call(refuse, KafkaException(KafkaError(KafkaError._INVALID_DIFFERENT_RECORD)))
    assert caught.value.status == 503
    assert "send it again" in caught.value.fix


def test_numbers_out_of_range_are_a_bad_request() -> None:
    with pytest.raises(Problem):
        checked_call(TopicPartition, "orders", 0, 1 << 80)


def test_other_exceptions_are_bugs() -> None:
    with pytest.raises(KeyError):
        checked_call(refuse, KeyError("a bug"))


@pytest.mark.parametrize("factor", [10_000, 10_001, 32_767, 1 << 40])
def test_an_invalid_replication_factor_is_rejected(factor: int, rest: httpx.Client) -> None:
    answer = rest.post("/topics", json={"name": "wide", "replicationFactor": factor})
    assert answer.status_code == 400
    assert answer.json()["fix"]
    v3 = rest.post("/v3/clusters/-/topics", json={"topic_name": "wide", "replication_factor": factor})
    assert v3.status_code == 400
