"""Writers of several gateways with repeated conflicts: each succeeds, or times out."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random

import pytest

from penstock.gateway.registry import service
from penstock.gateway.registry.decisions import Decision
from penstock.gateway.registry.records import RegistryRecord
from penstock.gateway.registry.service import Registry
from penstock.gateway.registry.state import RegistryState
from penstock.gateway.web.problem import Problem
from penstock.gateway.work.budgets import DEFAULT_BUDGETS
from penstock.gateway.work.pool import WorkerPool

RECORD = RegistryRecord("CONFIG", "orders", value={"compatibilityLevel": "FULL"})


class ContestedLog:
    """A log in which another gateway is faster `conflicts` times."""

    conflicts = 0

    def __init__(self, *_: object) -> None:
        self.stale_keys: list[bytes] = []

    async def append(self, _: Sequence[tuple[bytes, bytes | None]]) -> bool:
        ContestedLog.conflicts -= 1
        return ContestedLog.conflicts < 0

    async def repair(self) -> None:
        return


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    monkeypatch.setattr(service, "SchemaLog", ContestedLog)
    monkeypatch.setattr(service, "CONFLICT_BACKOFF_S_MAX", 0.001)
    return Registry({}, WorkerPool("schemas", DEFAULT_BUDGETS), random_source=Random(1))


def decide(_: RegistryState) -> Decision:
    return Decision((RECORD,), "written")


def test_writer_succeeds_after_many_conflicts(registry: Registry) -> None:
    ContestedLog.conflicts = 40
    assert asyncio.run(registry.write(decide)) == "written"


def test_writer_with_endless_conflicts_times_out(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "WRITE_TIMEOUT_S", 0.05)
    ContestedLog.conflicts = 10**9
    with pytest.raises(Problem, match="timed out"):
        asyncio.run(registry.write(decide))
