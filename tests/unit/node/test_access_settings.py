"""Which authorizer a node has."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from penstock.config.broker import examine
from penstock.core.security import scram
from penstock.node.failures import CannotStart
from penstock.node.security import NodeSecurity
from penstock.runtime.env import SystemEnv
from penstock.runtime.security.access_control import STANDARD_AUTHORIZER
from penstock.wire.messages.metadata_records import RemoveDelegationTokenRecord
from support.node_thread import ONE_NODE


def security(data: Path, authorizer: str, more: Mapping[str, str] | None = None) -> NodeSecurity:
    listeners = "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0"
    properties = {
        **ONE_NODE,
        "listeners": listeners,
        "log.dirs": str(data),
        "authorizer.class.name": authorizer,
        **(more or {}),
    }
    settings = examine(properties).settings
    assert settings is not None
    return NodeSecurity(SystemEnv(), settings)


def test_access_lists_are_on_by_the_name_of_kafkas_authorizer(tmp_path: Path) -> None:
    assert security(tmp_path, STANDARD_AUTHORIZER).access.is_on
    assert not security(tmp_path, "").access.is_on


def test_no_other_authorizer_is_taken_for_it(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="is not supported"):
        security(tmp_path, "com.example.LetsEverybodyIn")


def test_what_is_remembered_of_a_removed_token_is_forgotten(tmp_path: Path) -> None:
    made = security(tmp_path, "", {"delegation.token.secret.key": "secret"})
    made.tokens.credential(scram.MECHANISMS["SCRAM-SHA-256"], "token", b"salt")
    made.tokens.credential(scram.MECHANISMS["SCRAM-SHA-256"], "other", b"salt")
    made.committed([RemoveDelegationTokenRecord("token")])
    assert [token for token, _ in made.tokens._credentials] == ["other"]
