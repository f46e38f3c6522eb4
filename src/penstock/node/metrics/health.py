"""Whether a node lives, and whether it serves: answers for load balancers, orchestrators and people.

A node lives as long as its event loop answers at all. It is ready when its broker is registered, let in by the
controller and in step with the metadata, and has a data directory that works; a node that is a controller only, when it
knows who leads the quorum. What is not as it should be is said in a sentence.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable
from typing import NamedTuple

from penstock.core.raft.events import Role
from penstock.runtime.raft.driver import RaftDriver
from penstock.server.http import HttpAnswer, HttpHandler, HttpRequest

JSON_TYPE = "application/json"
# A node this far behind the committed end of the metadata log tells its clients old news.
METADATA_LAG_MAX = 1_000


class Check(NamedTuple):
    """One thing that must hold. `reason` says what does not, and is empty when it does."""

    name: str
    ok: bool
    reason: str = ""


Checks = Callable[[], Iterable[Check]]


def health_answer(checks: Iterable[Check]) -> HttpAnswer:
    """200 when all hold, 503 otherwise, and all of them in JSON."""
    found = list(checks)
    ok = all(check.ok for check in found)
    body = {
        "status": "ok" if ok else "unavailable",
        "checks": {
            check.name: {"ok": check.ok, **({"reason": check.reason} if check.reason else {})} for check in found
        },
    }
    return HttpAnswer(json.dumps(body).encode() + b"\n", 200 if ok else 503, JSON_TYPE)


def health_handler(checks: Checks) -> HttpHandler:
    """Serves some checks."""

    def handle(_: HttpRequest) -> Generator[None, None, HttpAnswer]:
        yield
        return health_answer(checks())

    return handle


def known_leader(raft: RaftDriver) -> int:
    """Who leads the metadata quorum as this node has lately heard; -1 when it has not.

    One that asks whether it could win an election still remembers the last leader, and does not hear of it.
    """
    return raft.leader_id if raft.quorum.role in (Role.LEADER, Role.FOLLOWER) else -1


def quorum_checks(raft: RaftDriver | None) -> Iterable[Check]:
    """What every node needs: a metadata log that works, somebody who leads the quorum, and to be in step with it."""
    if raft is None or not hasattr(raft, "quorum"):
        yield Check("metadata log", False, "the metadata log is not open yet")
        return
    yield Check("metadata log", not raft.is_failed, "the metadata log failed; see the log" if raft.is_failed else "")
    knows = known_leader(raft) >= 0
    yield Check("quorum leader", knows, "" if knows else "nobody is known to lead the metadata quorum")
    behind = raft.quorum.high_watermark - raft.applied_offset
    reason = f"{behind} committed records are yet to be applied" if behind > METADATA_LAG_MAX else ""
    yield Check("metadata", not reason, reason)


def alive() -> Iterable[Check]:
    """That it answers says it all."""
    return (Check("event loop", True),)
