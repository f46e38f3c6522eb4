"""What a follower counts."""

from __future__ import annotations

from pathlib import Path

from replication_world import Cluster, in_cluster, until


def test_a_follower_counts_the_bytes_that_it_has_replicated(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one, two = await cluster.start(1), await cluster.start(2)
        cluster.create((1, 2))
        for number in range(3):
            await one.send(b"%d" % number)
        await until(lambda: two.partition.log.end_offset == 3)
        assert two.partition.counters.replicated_bytes_in == two.partition.log.size_bytes
        assert two.partition.appended_bytes == two.partition.log.size_bytes
        assert one.partition.counters.replicated_bytes_in == 0

    in_cluster(tmp_path, story)
