"""What the cores do, in scripts that read like a description of it; what events there are, the players say.

With PENSTOCK_REWRITE_SCENARIOS=1 the scripts are written anew with what happens now. Read the difference before it is
kept: it says what clients will notice.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from consumer_script import ConsumerScript
from group_script import GroupScript
from play import Play
from raft_script import RaftScript
from replica_script import ReplicaScript
from share_script import ShareScript
from streams_script import StreamsScript
from transaction_script import TransactionScript

PLAYERS: dict[str, type[Play]] = {
    "consumer_groups": ConsumerScript,
    "groups": GroupScript,
    "raft": RaftScript,
    "replicas": ReplicaScript,
    "share_groups": ShareScript,
    "streams_groups": StreamsScript,
    "transactions": TransactionScript,
}
SCRIPTS = [
    pytest.param(player, path, id=path.stem)
    for kind, player in PLAYERS.items()
    for path in sorted(Path(__file__).parent.glob(f"{kind}_*.txt"))
]


@pytest.mark.parametrize(("player", "path"), SCRIPTS)
def test_a_script_runs_as_written(player: type[Play], path: Path) -> None:
    written = path.read_text()
    played = player().play(written)
    if os.environ.get("PENSTOCK_REWRITE_SCENARIOS"):
        path.write_text(played)
    else:
        assert played == written


def test_every_script_has_a_player() -> None:
    assert len(SCRIPTS) == len(list(Path(__file__).parent.glob("*.txt")))
