"""Which authorizer a node has."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.config.broker import examine
from penstock.node.failures import CannotStart
from penstock.node.security import NodeSecurity
from penstock.runtime.env import SystemEnv
from penstock.runtime.security.access_control import STANDARD_AUTHORIZER
from support.node_thread import ONE_NODE


def security(data: Path, authorizer: str) -> NodeSecurity:
    listeners = "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0"
    properties = {
        **ONE_NODE,
        "listeners": listeners,
        "log.dirs": str(data),
        "authorizer.class.name": authorizer,
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
