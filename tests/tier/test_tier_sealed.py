"""Segments that are encrypted and compressed for the store: read, checked and restored with their keys."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.testing import Cluster
from support.tier_cluster import TIERED, eventually, fill, local_bytes, read_all, tier_missing, tier_settings

MISSING = tier_missing()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=MISSING or "")

LOCAL_BYTES_MAX = 20_000 + 2 * 16_384


def value(number: int) -> bytes:
    return f"{number:08d}".encode() * 12


def add_key(path: Path, name: str) -> None:
    with path.open("a") as file:
        file.write(f"{name}={base64.b64encode(os.urandom(32)).decode()}\n")


def key_ids(bucket: Path, topic: str) -> set[str]:
    manifests = bucket.glob(f"*/{topic}/*/0/*.manifest.json")
    return {json.loads(path.read_text())["encoding"]["key_id"] for path in manifests}


def test_encrypted_segments_are_read_while_keys_rotate(tmp_path: Path) -> None:
    bucket, keys = tmp_path / "bucket", tmp_path / "keys"
    add_key(keys, "first")
    settings = {
        **tier_settings(f"file://{bucket}"),
        "penstock.tier.compression": "zstd",
        "penstock.tier.encryption.keys.file": str(keys),
    }
    with Cluster(settings) as cluster:
        servers = cluster.bootstrap_servers
        topic = cluster.create_topic(configs=dict(TIERED))
        fill(servers, topic, [value(number) for number in range(1000)])
        eventually(lambda: local_bytes(cluster, topic) <= LOCAL_BYTES_MAX)
        add_key(keys, "second")
        fill(servers, topic, [value(number) for number in range(1000, 2000)])
        eventually(lambda: key_ids(bucket, topic) == {"first", "second"})
        eventually(lambda: local_bytes(cluster, topic) <= LOCAL_BYTES_MAX)
        expected = [(number, value(number)) for number in range(2000)]
        assert read_all(servers, topic, 2000) == expected
        assert read_all(servers, topic, 2000, 777) == expected[777:]
        assert not any(value(5) in path.read_bytes() for path in bucket.rglob("*.log"))
        command = [sys.executable, "-m", "penstock", "tier"]
        arguments = ["-b", servers, "--url", f"file://{bucket}", "-o", "json"]
        verified = subprocess.run([*command, "verify", *arguments], capture_output=True, text=True, timeout=60)
        assert verified.stdout, verified.stderr
        assert json.loads(verified.stdout)["problems"] == [], verified.stderr
        # The plan reads what lies beside the last segment.
        planned = [*command, "restore", *arguments, "--dry-run"]
        without = subprocess.run(planned, capture_output=True, text=True, timeout=60)
        assert (without.returncode, "the key 'second'" in without.stderr) == (1, True)
        found = subprocess.run([*planned, "--keys-file", str(keys)], capture_output=True, text=True, timeout=60)
        assert found.returncode == 0, found.stderr
        assert json.loads(found.stdout)[0]["problems"] == []
