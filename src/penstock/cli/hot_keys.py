"""Asks the brokers of a cluster for the hot keys of a topic."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.cli.failures import CommandFailure
from penstock.cli.wire_client import WireClient, check_error
from penstock.client.failures import NoAnswer
from penstock.client.view import brokers_of
from penstock.core.hot_keys.merged import MergedHotKeys, merge
from penstock.wire.messages.describe_cluster import DescribeClusterRequest
from penstock.wire.messages.describe_hot_keys import DescribeHotKeysRequest, DescribeHotKeysResponse, HotPartition


def find_hot_keys(
    client: WireClient, topic: str, partitions: Sequence[int], records_max: int, keys_max: int
) -> MergedHotKeys:
    """The hot keys of a topic, or of some of its partitions; raises CommandFailure.

    `records_max` are looked at for each broker that leads some of them.
    """
    present = client.partitions([topic]).get(topic, [])
    unknown = sorted(set(partitions) - set(present))
    if unknown:
        raise CommandFailure(f"topic {topic} has no partition {unknown[0]}", f"it has {len(present)}")
    rows: list[HotPartition] = []
    silent: list[str] = []
    for broker in brokers_of(client.ask(DescribeClusterRequest())).values():
        try:
            request = DescribeHotKeysRequest(topic, sorted(set(partitions)) or None, records_max, keys_max)
            response: DescribeHotKeysResponse = client.ask_at(broker.address, request)
        except NoAnswer as error:
            silent.append(f"broker {broker.node_id}: {error}")
            continue
        check_error(response.error_code, response.error_message, f"the keys of {topic} cannot be counted")
        # Others lead the rest.
        rows += [row for row in response.partitions if not row.error_code]
    if not rows:
        raise CommandFailure(f"no broker counted keys of {topic}", "; ".join(silent) or "no partition has a leader")
    return merge(rows)
