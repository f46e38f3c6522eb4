"""`penstock cluster …` against a cluster that is only answers: what is asked, what is shown, what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from fake_cluster import FakeCluster, FakePartition, spread

from penstock.cli.main import penstock
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition, format_uuid
from penstock.wire.messages.list_partition_reassignments import ListPartitionReassignmentsResponse


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.cli.cluster.reassignment_watch.time.sleep", lambda _: None)


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    brokers: dict[int, tuple[str | None, bool]] = {1: (None, False), 2: (None, False), 3: (None, False)}
    with FakeCluster(brokers, spread("orders", 6, [1, 2, 3], 2)) as running:
        yield running


def run(cluster: FakeCluster, *arguments: str, code: int = 0, stdin: str | None = None) -> Result:
    result = CliRunner().invoke(penstock, ["-b", cluster.bootstrap, "cluster", *arguments], input=stdin)
    assert result.exit_code == code, result.output + str(result.exception)
    return result


def answer(cluster: FakeCluster, *arguments: str) -> Any:
    return json.loads(run(cluster, *arguments, "-o", "json").stdout)


def test_quorum_shows_leader_epoch_voters_and_lag(cluster: FakeCluster) -> None:
    cluster.voters = {1: bytes([1]) * 16, 2: bytes([2]) * 16}
    described = answer(cluster, "quorum")
    assert (described["leader"], described["epoch"], described["high_watermark"]) == (1, 7, 98)
    assert [(node["node_id"], node["role"], node["lag"]) for node in described["nodes"]] == [
        (1, "leader", 0),
        (2, "voter", 1),
        (3, "observer", 9),
    ]
    assert described["nodes"][0]["address"] == "ctl:9093"
    shown = run(cluster, "quorum").output
    assert "leader" in shown
    assert "observer" in shown


def test_leaders_shows_imbalance_and_elects(cluster: FakeCluster) -> None:
    name = TopicPartition("orders", 0)
    cluster.partitions[name] = FakePartition((1, 2), leader=2)
    described = answer(cluster, "leaders")
    assert described["not_preferred"] == [{"topic": "orders", "partition": 0}]
    assert {row["node_id"]: row["difference"] for row in described["brokers"]} == {1: -1, 2: 1, 3: 0}
    assert "--elect" in run(cluster, "leaders").output
    elected = answer(cluster, "leaders", "--elect")
    assert elected["elected"] == [{"topic": "orders", "partition": 0}]
    assert elected["not_preferred"] == []
    (request,) = cluster.asked("ElectLeaders")
    assert request.election_type == 0


def test_an_unclean_election_prompts_first(cluster: FakeCluster) -> None:
    assert "may miss" in run(cluster, "leaders", "--unclean", "orders:1", code=1).output
    assert cluster.asked("ElectLeaders") == []
    run(cluster, "leaders", "--unclean", "orders:1", "--yes")
    (request,) = cluster.asked("ElectLeaders")
    assert request.election_type == 1
    assert run(cluster, "leaders", "--unclean", "orders", code=2)


def plan_file(path: Path, **targets: list[int]) -> str:
    rows = [
        {"topic": "orders", "partition": int(number.strip("p")), "replicas": replicas, "log_dirs": ["any"] * 2}
        for number, replicas in targets.items()
    ]
    path.write_text(json.dumps({"version": 1, "partitions": rows}))
    return str(path)


def test_reassign_moves_by_kafka_s_json_and_waits(cluster: FakeCluster, tmp_path: Path) -> None:
    plan = plan_file(tmp_path / "plan.json", p0=[3, 2], p1=[2, 3])
    back = tmp_path / "back.json"
    result = run(cluster, "reassign", plan, "--yes", "--save-current", str(back))
    assert "1 partition change, 1 replica copied, about 1000 B" in result.output
    assert "done: 1 of 1 partition moved" in result.output
    assert cluster.partitions[TopicPartition("orders", 0)].replicas == (3, 2)
    (request,) = cluster.asked("AlterPartitionReassignments")
    assert [[row.partition_index for row in topic.partitions] for topic in request.topics] == [[0]]
    assert json.loads(back.read_text())["partitions"][0] == {"topic": "orders", "partition": 0, "replicas": [1, 2]}
    assert "where it should be" in run(cluster, "reassign", plan).output
    run(cluster, "reassign", str(back), "--yes")
    assert cluster.partitions[TopicPartition("orders", 0)].replicas == (1, 2)


def test_a_throttle_is_set_before_and_lifted_after(cluster: FakeCluster, tmp_path: Path) -> None:
    seen: list[dict[tuple[int, str], dict[str, str]]] = []

    def note(request: Any) -> None:
        if type(request).__name__ == "AlterPartitionReassignmentsRequest":
            seen.append({key: dict(values) for key, values in cluster.configs.items()})

    cluster.on_request = note
    run(cluster, "reassign", plan_file(tmp_path / "plan.json", p0=[3, 2]), "--yes", "--throttle", "10MB")
    (during,) = seen
    assert during[4, "1"] == {
        "leader.replication.throttled.rate": "10000000",
        "follower.replication.throttled.rate": "10000000",
    }
    assert during[2, "orders"] == {
        "leader.replication.throttled.replicas": "0:1,0:2",
        "follower.replication.throttled.replicas": "0:3",
    }
    assert all(values == {} for values in cluster.configs.values())
    assert run(cluster, "reassign", "--throttle", "fast", code=2)


def test_reassign_without_a_plan_shows_what_moves_and_stays_until_it_is_there(cluster: FakeCluster) -> None:
    assert "nothing is being moved" in run(cluster, "reassign").output
    name = TopicPartition("orders", 0)
    cluster.partitions[name] = FakePartition((3, 2, 1), 1, adding=(3,), removing=(1,))
    assert answer(cluster, "reassign") == [
        {"topic": "orders", "partition": 0, "replicas": [3, 2, 1], "adding": [3], "removing": [1]}
    ]
    cluster.configs[4, "2"] = {"leader.replication.throttled.rate": "5"}
    assert "done: 1 of 1 partition moved, 1000 B of 1000 B" in run(cluster, "reassign").output
    assert cluster.partitions[name].replicas == (3, 2)
    assert cluster.configs[4, "2"] == {}


def test_a_throttle_that_was_left_behind_is_lifted_and_nothing_else_is_touched(cluster: FakeCluster) -> None:
    name = TopicPartition("orders", 0)
    cluster.partitions[name] = FakePartition((1, 2), leader=2)
    assert "lifted" not in run(cluster, "reassign").output
    assert cluster.asked("IncrementalAlterConfigs") == []
    assert cluster.asked("ElectLeaders") == []
    cluster.partitions |= spread("other", 1, [1, 2, 3], 2)
    cluster.configs[4, "3"] = {"follower.replication.throttled.rate": "5"}
    cluster.configs[2, "orders"] = {"follower.replication.throttled.replicas": "0:3"}
    assert "removed a throttle" in run(cluster, "reassign").output
    assert all(values == {} for values in cluster.configs.values())
    assert (2, "other") not in cluster.configs


def test_a_wait_outlasts_a_controller_that_is_being_elected(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.partitions[TopicPartition("orders", 0)] = FakePartition((3, 2, 1), 1, adding=(3,), removing=(1,))
    refused = ListPartitionReassignmentsResponse(error_code=ErrorCode.NOT_CONTROLLER, error_message="being elected")
    served = FakeCluster._list_partition_reassignments

    def sometimes(fake: FakeCluster, request: Any, broker: int) -> Any:
        asked = len(fake.asked("ListPartitionReassignments"))
        return refused if asked in (2, 3, 5) else served(fake, request, broker)

    monkeypatch.setattr(FakeCluster, "_list_partition_reassignments", sometimes)
    assert "done: 1 of 1 partition moved" in run(cluster, "reassign").output


def test_reassign_cancels(cluster: FakeCluster) -> None:
    name = TopicPartition("orders", 0)
    cluster.partitions[name] = FakePartition((3, 2, 1), 1, adding=(3,), removing=(1,))
    assert "add --yes" in run(cluster, "reassign", "--cancel", code=1).output
    assert "cancelled: 1 partition" in run(cluster, "reassign", "--cancel", "--yes").output
    assert cluster.partitions[name].replicas == (2, 1)
    assert "nothing is being moved" in run(cluster, "reassign", "--cancel", "--yes").output


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "it is not valid JSON"),
        ("[]", '"version": 1'),
        ('{"version":2}', '"version": 1'),
        ('{"version":1,"partitions":{}}', "must be a list"),
        ('{"version":1,"partitions":[{"topic":"orders"}]}', "lacks a topic"),
        ('{"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[]}]}', "at least one replica"),
        (
            '{"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[1,1]}]}',
            "two replicas on one broker",
        ),
        ('{"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[true]}]}', "at least one replica"),
        (
            '{"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[1],"log_dirs":["/data"]}]}',
            "sets log_dirs",
        ),
        ('{"version":1,"partitions":[{"topic":"orders","partition":9,"replicas":[1]}]}', "no partition orders-9"),
        ('{"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[8]}]}', "no broker 8 is registered"),
    ],
)
def test_a_plan_that_makes_no_sense_changes_nothing(cluster: FakeCluster, text: str, sentence: str) -> None:
    assert sentence in run(cluster, "reassign", "-", "--yes", code=1, stdin=text).output
    assert cluster.asked("AlterPartitionReassignments") == []


def test_rebalance_gives_a_new_broker_its_share(cluster: FakeCluster) -> None:
    cluster.brokers[4] = (None, False)
    shown = run(cluster, "rebalance", "--dry-run").output
    assert "0 → 3" in shown
    assert cluster.asked("AlterPartitionReassignments") == []
    plan = answer(cluster, "rebalance", "--dry-run")
    assert plan["version"] == 1
    assert {row["topic"] for row in plan["partitions"]} == {"orders"}
    run(cluster, "rebalance", "--yes")
    assert cluster.holders() == {1: 3, 2: 3, 3: 3, 4: 3}
    assert all(state.leader == state.replicas[0] for state in cluster.partitions.values())
    assert "nothing to do" in run(cluster, "rebalance").output


def test_rebalance_gives_leadership_back_where_nothing_has_to_move(cluster: FakeCluster) -> None:
    name = TopicPartition("orders", 0)
    cluster.partitions[name] = FakePartition((1, 2), leader=2)
    run(cluster, "rebalance")
    assert cluster.partitions[name].leader == 1
    assert cluster.asked("AlterPartitionReassignments") == []


def test_rebalance_waits_for_brokers_that_are_down(cluster: FakeCluster) -> None:
    cluster.brokers[3] = (None, True)
    assert "broker 3 is down" in run(cluster, "rebalance", "--yes", code=1).output


def test_decommission_empties_waits_for_the_stop_and_forgets(cluster: FakeCluster) -> None:
    def stop_when_told(request: Any) -> None:
        if cluster.holders().get(3) == 0 and type(request).__name__ == "DescribeClusterRequest":
            cluster.brokers[3] = (None, True)

    cluster.on_request = stop_when_told
    result = run(cluster, "decommission", "3", "--yes")
    assert "broker 3 is removed from the cluster" in result.output
    assert 3 not in cluster.brokers
    assert all(3 not in state.replicas for state in cluster.partitions.values())
    assert "there is no broker 3" in run(cluster, "decommission", "3", "--yes", code=1).output


def test_decommission_resumes_where_an_earlier_run_was_stopped(cluster: FakeCluster) -> None:
    for name, state in cluster.partitions.items():
        if 3 in state.replicas:
            left = next(replica for replica in state.replicas if replica != 3)
            other = 1 if left == 2 else 2
            cluster.partitions[name] = FakePartition((left, other, 3), left, adding=(other,), removing=(3,))
    cluster.brokers[3] = (None, True)
    run(cluster, "decommission", "3", "--yes")
    assert cluster.asked("AlterPartitionReassignments") == []
    assert 3 not in cluster.brokers


def test_decommission_refuses_when_replicas_have_nowhere_to_go(cluster: FakeCluster) -> None:
    cluster.partitions |= spread("wide", 2, [1, 2, 3], 3)
    result = run(cluster, "decommission", "2", "--yes", code=1)
    assert "nowhere to go; nothing was changed" in result.output
    assert "2 partitions such as wide-0, wide-1 need 3 brokers, and 2 would be left" in result.output
    assert cluster.asked("AlterPartitionReassignments") == []


def test_decommission_reports_a_controller_and_a_broker_that_keeps_running(cluster: FakeCluster) -> None:
    result = run(cluster, "decommission", "1", "--yes", "--timeout", "0", code=1)
    assert "node 1 is also a controller" in result.output
    assert "broker 1 is still running" in result.output
    assert 1 in cluster.brokers


def test_decommission_dry_run_changes_nothing(cluster: FakeCluster) -> None:
    assert "4 → 0" in run(cluster, "decommission", "2", "--dry-run").output
    assert cluster.asked("AlterPartitionReassignments") == []


def test_add_prints_what_to_do_waits_and_offers_to_move(cluster: FakeCluster) -> None:
    def appear(request: Any) -> None:
        assert request is not None
        if len(cluster.asked("DescribeCluster")) == 3:
            cluster.brokers[4] = (None, False)

    cluster.on_request = appear
    shown = run(cluster, "add", "--host", "four.example", "--rack", "b").output
    for line in (
        "node.id=4",
        "advertised.listeners=PLAINTEXT://four.example:9092",
        "controller.quorum.bootstrap.servers=ctl:9093",
        "broker.rack=b",
        "--cluster-id fake-cluster",
        "broker 4 has joined",
        "`penstock cluster rebalance` does it later",
    ):
        assert line in shown
    assert cluster.asked("AlterPartitionReassignments") == []


def test_add_gives_up_after_a_while_and_takes_no_number_twice(cluster: FakeCluster) -> None:
    assert "has not registered within 0 seconds" in run(cluster, "add", "--timeout", "0", code=1).output
    assert "already a node 2" in run(cluster, "add", "--node-id", "2", code=1).output
    assert "node.id=9" in run(cluster, "add", "--node-id", "9", "--no-wait").output


def controller_config(directory: Path) -> str:
    path = directory / "controller.properties"
    path.write_text(
        "process.roles=controller\nnode.id=5\nlisteners=CONTROLLER://five.example:9093\n"
        "controller.listener.names=CONTROLLER\ncontroller.quorum.bootstrap.servers=ctl:9093\n"
        f"log.dirs={directory}/data\n"
    )
    return str(path)


def test_a_controller_joins_with_the_directory_it_was_formatted_with(cluster: FakeCluster, tmp_path: Path) -> None:
    config = controller_config(tmp_path)
    assert "is not formatted" in run(cluster, "add-controller", "-c", config, code=1).output
    formatted = CliRunner().invoke(penstock, ["storage", "format", "-c", config, "-t", "fake-cluster", "-N"])
    assert formatted.exit_code == 0
    assert "node 5 is a voter now" in run(cluster, "add-controller", "-c", config).output
    (request,) = cluster.asked("AddRaftVoter")
    assert [tuple(listener) for listener in request.listeners] == [("CONTROLLER", "five.example", 9093)]
    assert f"directory.id={format_uuid(request.voter_directory_id)}" in (tmp_path / "data/meta.properties").read_text()
    assert "is already a voter" in run(cluster, "add-controller", "-c", config).output


def test_a_controller_leaves(cluster: FakeCluster) -> None:
    assert "the only voter" in run(cluster, "remove-controller", "1", "--yes", code=1).output
    cluster.voters[2] = bytes([2]) * 16
    assert "is not a voter" in run(cluster, "remove-controller", "3", "--yes", code=1).output
    wrong = format_uuid(bytes([9]) * 16)
    assert "VOTER_NOT_FOUND" in run(cluster, "remove-controller", "2", "--yes", "--directory-id", wrong, code=1).output
    run(cluster, "remove-controller", "2", "--yes")
    assert list(cluster.voters) == [1]


def test_what_a_cluster_does_not_serve_is_said(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(FakeCluster, "_describe_quorum")
    assert "supports no version of DescribeQuorum" in run(cluster, "quorum", code=1).output


def test_no_broker_and_a_sign_in_that_only_librdkafka_can_do_are_said(cluster: FakeCluster) -> None:
    silent = CliRunner().invoke(penstock, ["-b", "127.0.0.1:1", "cluster", "quorum"])
    assert silent.exit_code == 1
    assert "no broker of 127.0.0.1:1 answers" in silent.output
    secured = run(cluster, "quorum", "-X", "security.protocol=sasl_ssl", "-X", "sasl.mechanisms=GSSAPI", code=1)
    assert "sasl.mechanism is GSSAPI: use one of PLAIN" in secured.output


def test_the_next_broker_is_queried_when_one_is_gone(cluster: FakeCluster) -> None:
    result = CliRunner().invoke(penstock, ["-b", f"127.0.0.1:1,{cluster.bootstrap}", "cluster", "quorum"])
    assert result.exit_code == 0, result.output
