"""The commands that the documentation shows exist, with these options; the files it refers to are right."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

import click
import pytest

from penstock.cli.main import penstock
from penstock.config.load import load_node_settings

REPOSITORY = Path(__file__).resolve().parents[3]
# What the pages name as if it were there.
FILES = ("offsets.json", "cat.jpg", "DATA/orders-0/00000000000000000000.log", "DATA/__cluster_metadata-0")
PAGES = (
    "README.md",
    "docs/operations.md",
    "docs/cli.md",
    "docs/links.md",
    "docs/security.md",
    "docs/tenants.md",
    "docs/queues.md",
)


def shown_commands(pages: Sequence[str] = PAGES) -> list[str]:
    """Every line of a console block that runs penstock, continuations joined, comments and pipes cut off."""
    found = []
    for page in pages:
        text = (REPOSITORY / page).read_text("utf-8")
        for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                match = re.match(r"(?:\$ )?(?:sudo -u penstock )?penstock (?P<rest>.*)", line)
                if match is not None:
                    found.append(match["rest"])
    return found


def parse(command: click.Command, name: str, words: list[str], parent: click.Context | None) -> list[str]:
    """What click does before it runs a command: unknown options and missing arguments raise UsageError.

    Returns the names of the command and those it is in.
    """
    with command.make_context(name, words, parent=parent) as context:
        if not isinstance(command, click.Group):
            return [name]
        rest = [*context._protected_args, *context.args]
        sub_name, sub_command, remaining = command.resolve_command(context, rest)
        assert sub_command is not None
        return [name, *parse(sub_command, sub_name or "", remaining, context)]


@pytest.mark.parametrize("line", shown_commands())
def test_a_shown_command_is_one_that_can_be_run(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    words = shlex.split(line.split(" > ")[0], comments=True)
    if words[-1] == "--help":
        with pytest.raises(click.exceptions.Exit):
            parse(penstock, "penstock", words, None)
        return
    _, *names = parse(penstock, "penstock", words, None)
    assert names == words[: len(names)]


@pytest.mark.parametrize("page", PAGES)
def test_every_page_shows_commands(page: str) -> None:
    assert shown_commands([page])


def test_a_command_that_does_not_exist_would_be_found() -> None:
    with pytest.raises(click.UsageError):
        parse(penstock, "penstock", ["cluster", "rebalance", "--unheard-of"], None)
    with pytest.raises(click.UsageError):
        parse(penstock, "penstock", ["cluster", "decommission"], None)


@pytest.mark.parametrize("node_id", ["1", "2", "3"])
def test_the_example_settings_are_those_of_a_cluster(tmp_path: Path, node_id: str) -> None:
    text = (REPOSITORY / "deploy" / "server.properties").read_text("utf-8")
    path = tmp_path / "server.properties"
    path.write_text(text.replace("node.id=1", f"node.id={node_id}").replace("host1.example:9092", "other:9092"))
    settings, warnings = load_node_settings(path)
    assert warnings == []
    assert settings.node_id == int(node_id)
    assert settings.is_broker
    assert settings.is_controller


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        path = REPOSITORY / page
        text = path.read_text("utf-8")
        anchors = {re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-") for title in _titles(text)}
        for target in re.findall(r"\]\(([^)]+)\)", text):
            if target.startswith("http"):
                continue
            file, _, anchor = target.partition("#")
            assert not file or (path.parent / file).exists(), f"{page}: {target}"
            assert file or anchor in anchors, f"{page}: {target}"


def _titles(text: str) -> list[str]:
    return re.findall(r"^#+ (.+)$", text, re.MULTILINE)
