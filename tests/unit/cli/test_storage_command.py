"""`penstock storage`: directories are claimed once, for the right cluster, in Kafka's formats."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from penstock.cli.failures import CommandFailure
from penstock.cli.main import penstock
from penstock.cli.storage.format import parse_initial_controllers, random_uuid, voters_snapshot
from penstock.local.formatting import format_nodes
from penstock.local.layout import node_layouts
from penstock.model.ids import format_uuid, parse_uuid
from penstock.storage.files import OsFilesystem
from penstock.storage.metadata_files import MetaProperties, read_meta_properties
from penstock.wire import codec
from penstock.wire.messages.control_records import KRaftVersionRecord, VotersRecord
from penstock.wire.records import ControlType, control_type, read_header, read_records

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
DIRECTORY_ID = "JEXY6aqzQY-32P5TStzaFg"
SNAPSHOT = Path("__cluster_metadata-0") / "00000000000000000000-0000000000.checkpoint"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return write_config(tmp_path)


def write_config(directory: Path, **changes: str) -> Path:
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
        "log.dirs": f"{directory}/one,{directory}/two",
        **{name.replace("_", "."): value for name, value in changes.items()},
    }
    path = directory / "server.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return path


def storage(*arguments: object) -> Result:
    return CliRunner().invoke(penstock, ["storage", *map(str, arguments)])


def owner(directory: Path) -> MetaProperties:
    found = read_meta_properties(OsFilesystem(), directory)
    assert found is not None
    return found


def voters(snapshot: Path) -> VotersRecord:
    data = snapshot.read_bytes()
    records = read_records(data[: read_header(data, 0).size_bytes], 1 << 20)
    kinds = [control_type(record.key) for record in records]
    assert kinds == [ControlType.SNAPSHOT_HEADER, ControlType.KRAFT_VERSION, ControlType.KRAFT_VOTERS]
    assert codec.decode(KRaftVersionRecord, 0, records[1].value or b"").kraft_version == 1
    found: VotersRecord = codec.decode(VotersRecord, 0, records[2].value or b"")
    return found


def test_the_first_controller_of_a_quorum_that_can_grow(config: Path, tmp_path: Path) -> None:
    result = storage("format", "-c", config, "-t", CLUSTER_ID, "--standalone")
    assert result.exit_code == 0, result.output
    first, second = owner(tmp_path / "one"), owner(tmp_path / "two")
    assert (first.cluster_id, first.node_id) == (second.cluster_id, second.node_id) == (CLUSTER_ID, 1)
    assert first.directory_id != second.directory_id
    (voter,) = voters(tmp_path / "one" / SNAPSHOT).voters
    assert (voter.voter_id, voter.voter_directory_id) == (1, first.directory_id)
    assert [tuple(endpoint) for endpoint in voter.endpoints] == [("CONTROLLER", "127.0.0.1", 9093)]
    assert not (tmp_path / "two" / SNAPSHOT).exists()


def test_several_first_controllers_have_the_directory_ids_of_the_list(config: Path, tmp_path: Path) -> None:
    listed = f"2@two:9093:{format_uuid(random_uuid())},1@127.0.0.1:9093:{DIRECTORY_ID}"
    result = storage("format", "-c", config, "-t", CLUSTER_ID, "--initial-controllers", listed)
    assert result.exit_code == 0, result.output
    assert owner(tmp_path / "one").directory_id == parse_uuid(DIRECTORY_ID)
    assert [voter.voter_id for voter in voters(tmp_path / "one" / SNAPSHOT).voters] == [1, 2]


def test_a_node_of_a_fixed_quorum_and_one_that_joins_later_get_no_voters(tmp_path: Path) -> None:
    fixed = write_config(tmp_path, controller_quorum_voters="1@127.0.0.1:9093", controller_quorum_bootstrap_servers="")
    assert storage("format", "-c", fixed, "-t", CLUSTER_ID).exit_code == 0
    assert owner(tmp_path / "one").cluster_id == CLUSTER_ID
    assert not (tmp_path / "one" / SNAPSHOT).exists()
    (tmp_path / "later").mkdir()
    later = write_config(tmp_path / "later", node_id="4")
    assert storage("format", "-c", later, "-t", CLUSTER_ID, "--no-initial-controllers").exit_code == 0
    assert not (tmp_path / "later" / "one" / SNAPSHOT).exists()


def test_formatting_again_needs_a_word_and_never_changes_the_owner(config: Path, tmp_path: Path) -> None:
    assert storage("format", "-c", config, "-t", CLUSTER_ID, "-s").exit_code == 0
    before = owner(tmp_path / "one")
    again = storage("format", "-c", config, "-t", CLUSTER_ID, "-s")
    assert again.exit_code == 1
    assert "--ignore-formatted" in again.output
    assert storage("format", "-c", config, "-t", CLUSTER_ID, "-s", "-g").exit_code == 0
    other = storage("format", "-c", config, "-t", "another", "-s", "-g")
    assert other.exit_code == 1
    assert f"belongs to node 1 of cluster {CLUSTER_ID}" in other.output
    assert owner(tmp_path / "one") == before


@pytest.mark.parametrize(
    ("arguments", "sentence", "code"),
    [
        ([], "quorum of this controller is not configured", 1),
        (["-s", "-N"], "Use one of", 2),
        (["-I", "1@127.0.0.1:9093"], "is not a controller", 1),
        (["-I", f"x@127.0.0.1:9093:{DIRECTORY_ID}"], "is not a controller", 1),
        (["-I", f"1@127.0.0.1:70000:{DIRECTORY_ID}"], "is not a controller", 1),
        (["-I", "1@127.0.0.1:9093:AAAAAAAAAAAAAAAAAAAAAA"], "is not a controller", 1),
        (["-I", f"1@a:9093:{DIRECTORY_ID},1@b:9093:{DIRECTORY_ID}"], "names a node twice", 1),
        (["-s", "-t", "not an id"], "is not a cluster id", 1),
    ],
)
def test_what_makes_no_sense_formats_nothing(config: Path, arguments: list[str], sentence: str, code: int) -> None:
    result = storage("format", "-c", config, "-t", CLUSTER_ID, *arguments)
    assert result.exit_code == code
    assert sentence in result.output
    assert not (config.parent / "one").exists()


def test_a_fixed_list_and_a_first_list_contradict_each_other(tmp_path: Path) -> None:
    config = write_config(tmp_path, controller_quorum_voters="1@127.0.0.1:9093")
    result = storage("format", "-c", config, "-t", CLUSTER_ID, "--standalone")
    assert "named twice" in result.output
    assert result.exit_code == 1


def test_a_broker_is_never_standalone(tmp_path: Path) -> None:
    config = write_config(tmp_path, process_roles="broker", listeners="PLAINTEXT://127.0.0.1:9092")
    assert "which this node is not" in storage("format", "-c", config, "-t", CLUSTER_ID, "-s").output
    assert storage("format", "-c", config, "-t", CLUSTER_ID).exit_code == 0


def test_info_shows_whose_the_directories_are(config: Path) -> None:
    empty = storage("info", "-c", config, "-o", "json")
    assert empty.exit_code == 1
    assert len(json.loads(empty.stdout)["problems"]) == 2
    storage("format", "-c", config, "-t", CLUSTER_ID, "-s")
    found = storage("info", "-c", config, "-o", "json")
    assert found.exit_code == 0
    described = json.loads(found.stdout)
    assert described["problems"] == []
    assert {row["cluster_id"] for row in described["directories"]} == {CLUSTER_ID}
    other = storage("info", "-c", config, "--override", "node.id=2")
    assert other.exit_code == 1
    assert "belongs to another node than 2" in other.output


def test_random_ids_are_different_and_no_options() -> None:
    found = {storage("random-uuid").output.strip() for _ in range(5)}
    assert len(found) == 5
    assert all(len(parse_uuid(text)) == 16 for text in found)
    assert not any(format_uuid(random_uuid()).startswith("-") for _ in range(500))


def test_the_voters_snapshot_ends_with_its_footer() -> None:
    (one,) = parse_initial_controllers(f"3@[::1]:9093:{DIRECTORY_ID}")
    assert (one.host, one.port) == ("::1", 9093)
    data = voters_snapshot([one], "CONTROLLER", 1000)
    header = read_header(data, 0)
    footer = read_records(data[header.size_bytes :], 1 << 20)
    assert [control_type(record.key) for record in footer] == [ControlType.SNAPSHOT_FOOTER]
    assert footer[0].offset == 3
    with pytest.raises(CommandFailure):
        parse_initial_controllers("")


def test_the_nodes_of_a_cluster_here_get_one_id(tmp_path: Path) -> None:
    found = node_layouts(tmp_path, "127.0.0.1", [1, 2, 3], [4, 5, 6])
    cluster_id = format_nodes(found[:2])
    assert format_nodes(found) == cluster_id
    owners = [owner(place.data) for place in found]
    assert [one.node_id for one in owners] == [1, 2, 3]
    assert {one.cluster_id for one in owners} == {cluster_id}
    assert len({one.directory_id for one in owners}) == 3
