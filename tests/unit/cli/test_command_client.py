"""A command has one client, whose connections serve all of its requests."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner

from penstock.cli import wire_client
from penstock.cli.wire_client import ask_cluster
from penstock.wire.messages.describe_cluster import DescribeClusterRequest


def test_all_requests_of_a_command_use_one_client_that_is_closed_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []

    class Client:
        def __init__(self, _: object) -> None:
            events.append("open")

        def __enter__(self) -> Client:
            return self

        def __exit__(self, *_: object) -> None:
            events.append("close")

        def ask(self, _: object) -> object:
            events.append("ask")
            return SimpleNamespace(error_code=0)

    monkeypatch.setattr(wire_client, "WireClient", Client)

    @click.command()
    def command() -> None:
        connection: Any = SimpleNamespace()
        ask_cluster(connection, DescribeClusterRequest(), "the first")
        ask_cluster(connection, DescribeClusterRequest(), "the second")

    assert CliRunner().invoke(command).exit_code == 0
    assert events == ["open", "ask", "ask", "close"]
