"""The gateway needs only the packages of the extra `gateway`: others of this environment are hidden."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).parents[2]
NAME = re.compile(r"^[A-Za-z0-9._-]+")
IMPORTED = [
    "google/protobuf/timestamp.proto",
    "google/type/calendar_period.proto",
    "google/type/date.proto",
    "google/type/latlng.proto",
    "google/type/money.proto",
    "google/type/timeofday.proto",
    "confluent/meta.proto",
    "confluent/type/decimal.proto",
    "confluent/type/variant.proto",
]
HIDE = """
import importlib.abc, json, sys
hidden = set(json.loads(sys.argv[1]))

class Hide(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if any(name == each or name.startswith(each + ".") for each in hidden):
            raise ModuleNotFoundError(f"{name} is not installed by the extra gateway")

sys.meta_path.insert(0, Hide())
"""
RESOLVE = (
    HIDE
    + """
import penstock.gateway.gateway
from penstock.gateway.registry.formats.proto_format import ProtobufSchema
for name in sys.argv[2:]:
    ProtobufSchema(f'syntax = "proto3"; import "{name}"; message M {{ string s = 1; }}')
"""
)


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def installed_by_the_extra() -> set[str]:
    """The distributions that `pip install penstock[gateway]` brings, from this tree's own pyproject.toml."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    waiting = [*project["dependencies"], *project["optional-dependencies"]["gateway"]]
    found: set[str] = set()
    while waiting:
        requirement = waiting.pop()
        matched = NAME.match(requirement)
        assert matched is not None
        name = plain(matched[0])
        if name in found or "extra ==" in requirement:
            continue
        found.add(name)
        try:
            waiting += metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
    return found


@pytest.fixture(scope="module")
def hidden() -> list[str]:
    """Modules of distributions that the extra does not bring."""
    kept = installed_by_the_extra()
    owners: dict[str, set[str]] = {}
    for distribution in metadata.distributions():
        for file in distribution.files or ():
            if file.suffix == ".py" and ".." not in file.parts:
                module = ".".join(file.with_suffix("").parts).removesuffix(".__init__")
                # A namespace such as `google` belongs to several distributions, so modules below it are distinguished.
                word = ".".join(module.split(".")[: 2 if module.startswith("google.") else 1])
                owners.setdefault(word, set()).add(plain(distribution.metadata["Name"]))
    return sorted(word for word, names in owners.items() if not names & {*kept, "penstock"})


def test_well_known_imports_resolve_with_the_extra_alone(hidden: list[str]) -> None:
    # The dependencies of confluent-kafka's registry client come with an extra of its own.
    assert "httpx" in hidden
    done = subprocess.run(
        [sys.executable, "-c", RESOLVE, json.dumps(hidden), *IMPORTED],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
