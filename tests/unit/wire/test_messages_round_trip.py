"""Every message survives being written and read, in every version."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from message_values import all_messages, messages, project

from penstock.wire.codec import Steps, decode, encode, stepwise_decoder, stepwise_encoder
from penstock.wire.compiler import STEP_ELEMENTS
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.primitives import Buffer


@pytest.mark.parametrize("name", sorted(all_messages()))
@settings(max_examples=4, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_what_is_written_is_read_back_in_every_version(name: str, data: st.DataObject) -> None:
    message = all_messages()[name]
    value: Any = data.draw(messages(message))
    for version in message.versions:
        expected = project(message, value, version)
        written = encode(expected, version)
        assert decode(message.cls, version, written) == expected
        buffers: list[Buffer] = []
        carry_out(stepwise_encoder(message.cls, version)(expected, buffers))
        assert b"".join(buffers) == written
        assert carry_out(stepwise_decoder(message.cls, version)(written, 0, 2**31)) == (expected, len(written))


def test_a_long_message_is_written_and_read_in_steps() -> None:
    request = MetadataRequest([MetadataRequestTopic(name=f"{number}") for number in range(10 * STEP_ELEMENTS)])
    buffers: list[Buffer] = []
    assert len(list(stepwise_encoder(MetadataRequest, 12)(request, buffers))) == 10
    data = b"".join(buffers)
    assert data == encode(request, 12)
    assert len(list(stepwise_decoder(MetadataRequest, 12)(data, 0, 2**31))) == 10


def carry_out(steps: Steps[Any]) -> Any:
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value


@pytest.mark.parametrize("name", sorted(all_messages()))
def test_a_message_at_its_defaults_is_read_back_in_every_version(name: str) -> None:
    message = all_messages()[name]
    for version in message.versions:
        expected = project(message, message.cls(), version)
        assert decode(message.cls, version, encode(expected, version)) == expected
