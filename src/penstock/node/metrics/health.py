"""Liveness and readiness of a node, for load balancers, orchestrators and people.

A node is alive as long as its event loop answers. It is ready when its broker is registered, unfenced and in step with
the metadata, and has a working data directory; a node that is only a controller, when it knows the leader of the
quorum. Each check that fails has a sentence with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable
from typing import NamedTuple

from penstock.core.raft.events import Role
from penstock.runtime.raft.driver import RaftDriver
from penstock.server.http import HttpAnswer, HttpHandler, HttpRequest

JSON_TYPE = "application/json"
# A node this far behind the committed end of the metadata log gives its clients outdated metadata.
METADATA_LAG_MAX = 1_000


class Check(NamedTuple):
    """One condition. `reason` is why it is not met, and is empty when it is."""

    name: str
    ok: bool
    reason: str = ""


Checks = Callable[[], Iterable[Check]]


def health_answer(checks: Iterable[Check]) -> HttpAnswer:
    """200 when all checks pass, 503 otherwise, with all of them in JSON."""
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
    """The leader of the metadata quorum that this node is in contact with; -1 for none.

    A prospective candidate still remembers the last leader, but is not in contact with it.
    """
    return raft.leader_id if raft.quorum.role in (Role.LEADER, Role.FOLLOWER) else -1


def quorum_checks(raft: RaftDriver | None) -> Iterable[Check]:
    """What every node needs: a working metadata log, a leader of the quorum, and to be in step with it."""
    if raft is None or not hasattr(raft, "quorum"):
        yield Check("metadata log", False, "the metadata log is not open yet")
        return
    yield Check("metadata log", not raft.is_failed, "the metadata log failed; see the log" if raft.is_failed else "")
    knows = known_leader(raft) >= 0
    yield Check("quorum leader", knows, "" if knows else "the metadata quorum has no known leader")
    behind = raft.quorum.high_watermark - raft.applied_offset
    reason = f"{behind} committed records are yet to be applied" if behind > METADATA_LAG_MAX else ""
    yield Check("metadata", not reason, reason)


def alive() -> Iterable[Check]:
    """An answer is all it takes."""
    return (Check("event loop", True),)
