"""Reads a cluster's `__remote_log_metadata` from beginning to end."""

from __future__ import annotations

from penstock.cli.failures import CommandFailure
from penstock.cli.options import Connection
from penstock.cli.wire_client import WireClient, check_error
from penstock.core.tier.metadata_records import METADATA_TOPIC, RemotePartitions, decode_record
from penstock.model.ids import Uuid, format_uuid
from penstock.storage.tier.inventory import Expected
from penstock.storage.tier.layout import PartitionLocation
from penstock.wire.messages.describe_cluster import DescribeClusterRequest
from penstock.wire.messages.metadata import MetadataRequest
from penstock.wire.primitives import MalformedMessage

READ_TIMEOUT_S = 30.0


def read_metadata(connection: Connection) -> tuple[str, RemotePartitions]:
    """The cluster's id, and its segments in object storage; raises CommandFailure."""
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    with WireClient(connection) as client:
        response = client.ask(DescribeClusterRequest())
        check_error(response.error_code, response.error_message, "the cluster does not describe itself")
        partitions = client.partitions([METADATA_TOPIC]).get(METADATA_TOPIC, [])
    found = RemotePartitions()
    consumer = Consumer(
        {
            **connection.properties,
            "bootstrap.servers": connection.bootstrap,
            "group.id": "penstock-tier",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        for partition in partitions:
            low, high = consumer.get_watermark_offsets(
                TopicPartition(METADATA_TOPIC, partition), timeout=READ_TIMEOUT_S
            )
            consumer.assign([TopicPartition(METADATA_TOPIC, partition, low)])
            while low < high:
                message = consumer.poll(READ_TIMEOUT_S)
                if message is None:
                    raise CommandFailure(f"{METADATA_TOPIC}-{partition} cannot be read to its end", "run it again")
                error = message.error()
                if error is not None:
                    if error.name() == "_PARTITION_EOF":
                        break
                    continue
                low = (message.offset() or 0) + 1
                value = message.value()
                if value is not None:
                    found.replay(decode_record(value))
    except (KafkaException, MalformedMessage, ValueError) as error:
        raise CommandFailure(f"{METADATA_TOPIC} cannot be read", str(error)) from error
    finally:
        consumer.close()
    return response.cluster_id, found


def read_topic_ids(client: WireClient) -> set[Uuid]:
    """The ids of the cluster's topics; raises CommandFailure."""
    return {topic.topic_id for topic in client.ask(MetadataRequest(None, False)).topics}


def expected_segments(cluster_id: str, partitions: RemotePartitions) -> dict[Uuid, Expected]:
    """Every segment that the metadata knows, by id."""
    return {
        segment.segment_id: Expected(
            PartitionLocation(cluster_id, remote.topic, *key).stem(segment.start_offset, segment.segment_id),
            segment.start_offset,
            segment.end_offset,
            segment.size_bytes,
            segment.is_readable,
            segment.is_sealed,
        )
        for key, remote in partitions.items()
        for segment in remote.segments()
    }


def describe(partitions: RemotePartitions) -> list[dict[str, object]]:
    """One row for each partition."""
    rows = []
    for key, remote in sorted(partitions.items(), key=lambda item: (item[1].topic, item[0].partition)):
        segments = remote.segments()
        readable = [segment for segment in segments if segment.is_readable]
        rows.append(
            {
                "topic": remote.topic,
                "partition": key.partition,
                "topic_id": format_uuid(key.topic_id),
                "segments": len(readable),
                "bytes": sum(segment.size_bytes for segment in readable),
                "first_offset": min((segment.start_offset for segment in readable), default=-1),
                "last_offset": max((segment.end_offset for segment in readable), default=-1),
                "unfinished": len(segments) - len(readable),
            }
        )
    return rows
