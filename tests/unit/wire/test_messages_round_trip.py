"""Every message survives being written and read, in every version."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from message_values import all_messages, messages, project

from penstock.wire.codec import decode, encode


@pytest.mark.parametrize("name", sorted(all_messages()))
@settings(max_examples=4, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_what_is_written_is_read_back_in_every_version(name: str, data: st.DataObject) -> None:
    message = all_messages()[name]
    value: Any = data.draw(messages(message))
    for version in message.versions:
        expected = project(message, value, version)
        assert decode(message.cls, version, encode(expected, version)) == expected


@pytest.mark.parametrize("name", sorted(all_messages()))
def test_a_message_at_its_defaults_is_read_back_in_every_version(name: str) -> None:
    message = all_messages()[name]
    for version in message.versions:
        expected = project(message, message.cls(), version)
        assert decode(message.cls, version, encode(expected, version)) == expected
