"""`penstock tier`: what is there, what is missing or damaged, and orphans."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.testing import Cluster
from support.tier_cluster import TIERED, eventually, fill, local_bytes, tier_missing, tier_settings

MISSING = tier_missing()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(MISSING is not None, reason=MISSING or "")]


@pytest.fixture(scope="module")
def tiered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Path, str]]:
    bucket = tmp_path_factory.mktemp("bucket")
    with Cluster(tier_settings(f"file://{bucket}")) as cluster:
        topic = cluster.create_topic(configs=dict(TIERED))
        fill(cluster.bootstrap_servers, topic, [b"x" * 100] * 1500)
        eventually(lambda: local_bytes(cluster, topic) <= 20_000 + 2 * 16_384)
        yield cluster, bucket, topic


def run(*arguments: str, code: int = 0) -> Any:
    command = [sys.executable, "-m", "penstock", "tier", *arguments, "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout)


def verify(tiered: tuple[Cluster, Path, str], *arguments: str, code: int = 0) -> Any:
    cluster, bucket, _ = tiered
    return run("verify", "-b", cluster.bootstrap_servers, "--url", f"file://{bucket}", *arguments, code=code)


def test_status_and_list_agree(tiered: tuple[Cluster, Path, str]) -> None:
    cluster, bucket, topic = tiered
    (row,) = run("status", "-b", cluster.bootstrap_servers)
    assert (row["topic"], row["partition"], row["first_offset"]) == (topic, 0, 0)
    assert row["last_offset"] > 1000
    listed = [one for one in run("list", "--url", f"file://{bucket}") if one["finished"]]
    assert len(listed) == row["segments"] > 5


def test_a_sound_store_has_no_problems(tiered: tuple[Cluster, Path, str]) -> None:
    found = verify(tiered)
    assert (found["problems"], found["orphans"]) == ([], [])


def test_orphans_are_found_and_cleaned(tiered: tuple[Cluster, Path, str]) -> None:
    _, bucket, topic = tiered
    known = next(bucket.glob(f"*/{topic}/*/0/*.log"))
    orphan = known.with_name("00000000000000000007-AAAAAAAAAAAAAAAAAAAAAQ.log")
    orphan.write_bytes(b"left behind")
    found = verify(tiered)
    assert [stem.rpartition("/")[2] for stem in found["orphans"]] == ["00000000000000000007-AAAAAAAAAAAAAAAAAAAAAQ"]
    # It might belong to a copy that is being made.
    assert verify(tiered, "--clean")["removed"] == 0
    assert orphan.exists()
    assert verify(tiered, "--clean", "--grace", "0")["removed"] == 1
    assert not orphan.exists()
    assert known.exists()
    assert verify(tiered, "--quick")["orphans"] == []
    # A deleted topic, of which a late request wrote the document once more.
    document = next(bucket.glob(f"*/{topic}/*/topic.json"))
    gone = document.parent.with_name("AAAAAAAAAAAAAAAAAAAAAQ") / document.name
    gone.parent.mkdir()
    gone.write_bytes(document.read_bytes())
    assert verify(tiered, "--clean", "--grace", "0")["removed"] == 1
    assert (gone.exists(), document.exists()) == (False, True)


@pytest.mark.parametrize("suffix", ["log", "manifest.json"])
def test_damage_and_loss_are_named(tiered: tuple[Cluster, Path, str], suffix: str) -> None:
    _, bucket, topic = tiered
    path = sorted(bucket.glob(f"*/{topic}/*/0/*.{suffix}"))[1]
    content = path.read_bytes()
    try:
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        assert [problem["path"].endswith(path.name) for problem in verify(tiered, code=1)["problems"]] == [True]
        path.unlink()
        (problem,) = verify(tiered, code=1)["problems"]
        assert path.name.removesuffix(".manifest.json") in problem["path"]
    finally:
        path.write_bytes(content)
