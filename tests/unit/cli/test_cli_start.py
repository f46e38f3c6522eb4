"""Starting is cheap, help is complete, and mistakes are answered with a sentence."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from penstock import __version__
from penstock.cli.main import COMMANDS, penstock

HEAVY = ("confluent_kafka", "rich", "typer", "asyncio", "pydantic", "penstock.wire", "penstock.storage")


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstock", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=60,
        check=False,
    )


def test_help_names_every_command_and_loads_nothing_heavy() -> None:
    program = (
        "import sys\n"
        "from penstock.cli.main import penstock\n"
        "penstock(sys.argv[1:], standalone_mode=False)\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])\n"
    )
    for arguments in (["--help"], ["topic", "create", "--help"], ["consume", "--help"], ["up", "--help"]):
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=60, check=True
        )
        assert done.stdout.splitlines()[-1] == "[]", arguments
    assert all(name in run("--help").stdout for name in COMMANDS)


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_explains_itself(name: str) -> None:
    result = CliRunner().invoke(penstock, [name, "--help"])
    assert result.exit_code == 0
    assert "Usage: penstock " + name in result.output
    assert COMMANDS[name][1].split(" ")[0].rstrip(",.") in result.output


def test_an_unknown_command_gets_a_suggestion() -> None:
    done = run("topc", "list")
    assert done.returncode == 2
    assert "Did you mean 'topic'?" in done.stderr


def test_no_broker_is_a_sentence_and_exit_code_1() -> None:
    done = run("topic", "list", PENSTOCK_BOOTSTRAP="127.0.0.1:1")
    assert done.returncode == 1
    assert "cannot reach a broker at 127.0.0.1:1" in done.stderr
    assert "connection refused" in done.stderr
    assert "penstock up" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_option_nearest_the_command_wins() -> None:
    done = run("-b", "127.0.0.1:2", "topic", "list", "-b", "127.0.0.1:1", PENSTOCK_BOOTSTRAP="127.0.0.1:3")
    assert "at 127.0.0.1:1" in done.stderr
    assert "at 127.0.0.1:2" in run("-b", "127.0.0.1:2", "topic", "list").stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["topic", "alter", "t"],
        ["topic", "create", "t", "-c", "nonsense"],
        ["topic", "trim", "t"],
        ["topic", "trim", "t", "--all", "--offset", "3"],
        ["topic", "add-partitions", "t"],
        ["produce", "t", "-k", ":", "-f", "%v"],
        ["produce", "t", "-H", "x"],
        ["consume", "t", "-J", "-f", "%v"],
        ["consume", "t", "-o", "soon"],
        ["-X", "nonsense", "topic", "list"],
        ["up", "--data", "x", "--ephemeral"],
    ],
)
def test_wrong_usage_is_exit_code_2_before_anything_is_touched(arguments: list[str]) -> None:
    result = CliRunner().invoke(penstock, ["-b", "127.0.0.1:1", *arguments])
    assert result.exit_code == 2, result.output
    assert "Error: " in result.output


def test_a_bug_is_reported_without_a_traceback() -> None:
    program = "import sys; from penstock.cli.failures import report_unexpected; sys.excepthook = report_unexpected; 1/0"
    quiet = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert quiet.returncode == 1
    assert "unexpected ZeroDivisionError" in quiet.stderr
    assert "Traceback" not in quiet.stderr
    loud = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PENSTOCK_TRACEBACK": "1"},
    )
    assert "Traceback" in loud.stderr


def test_version_for_people_and_machines() -> None:
    assert __version__ in CliRunner().invoke(penstock, ["--version"]).output
    versions = json.loads(CliRunner().invoke(penstock, ["version", "-o", "json"]).output)
    assert versions["penstock"] == __version__
    assert versions["confluent-kafka"] != "missing"


@pytest.mark.parametrize(
    ("shell", "mark"), [("bash", "complete -o"), ("zsh", "#compdef penstock"), ("fish", "complete ")]
)
def test_completion_scripts(shell: str, mark: str) -> None:
    assert mark in CliRunner().invoke(penstock, ["completion", shell], prog_name="penstock").output


def test_completion_completes() -> None:
    done = run(_PENSTOCK_COMPLETE="bash_complete", COMP_WORDS="penstock topic ", COMP_CWORD="2")
    assert "plain,describe" in done.stdout.splitlines()


ABORTS_AT_THE_END = """
import atexit, os, sys
from types import ModuleType

class Thread:
    def __del__(self, abort=os.abort):
        abort()

obstore = sys.modules["obstore"] = ModuleType("obstore")
obstore.thread = Thread()
atexit.register(print, "registered", flush=True)
from penstock.cli.main import main
sys.argv[1:] = %r
main()
"""


@pytest.mark.parametrize(("arguments", "code"), [(["version"], 0), (["no-such-command"], 2)])
def test_a_command_that_used_obstore_ends_with_its_own_code(arguments: list[str], code: int) -> None:
    """A thread of that library aborts a process whose interpreter is taken down at the wrong moment."""
    done = subprocess.run(
        [sys.executable, "-c", ABORTS_AT_THE_END % arguments], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == code
    assert done.stdout.endswith("registered\n")
