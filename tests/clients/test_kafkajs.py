"""kafkajs, the client of Node.js: admin, producer with each codec it has, offsets, and a consumer in a group."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.testing import Cluster
from support.kafkajs import kafkajs_missing, run_kafkajs
from support.npm import INSTALL_TIMEOUT_S
from support.wire_client import WireClient, records_in

PROGRAM = """
const { Kafka, CompressionTypes, logLevel } = require("kafkajs")
const { broker, topic } = JSON.parse(process.argv[2])
const kafka = new Kafka({ brokers: [broker], logLevel: logLevel.ERROR })

async function main() {
  const admin = kafka.admin()
  await admin.connect()
  const created = await admin.createTopics({ topics: [{ topic, numPartitions: 2 }] })
  const producer = kafka.producer()
  await producer.connect()
  for (const compression of [CompressionTypes.None, CompressionTypes.GZIP]) {
    const messages = [
      { partition: 0, key: "k", value: "größe", headers: { trace: "1" } },
      { partition: 0, key: null, value: "" },
      { partition: 0, key: "gone", value: null },
    ]
    await producer.send({ topic, compression, messages })
  }
  const idempotent = kafka.producer({ idempotent: true, maxInFlightRequests: 1 })
  await idempotent.connect()
  await idempotent.send({ topic, acks: -1, messages: [{ partition: 1, value: "once" }] })
  const offsets = await admin.fetchTopicOffsets(topic)
  const configs = await admin.describeConfigs({ resources: [{ type: 2, name: topic }] })
  const metadata = await admin.fetchTopicMetadata({ topics: [topic] })
  const consumer = kafka.consumer({ groupId: "kafkajs-" + topic })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  const values = []
  await new Promise((resolve) => {
    consumer.run({
      eachMessage: async ({ message }) => {
        values.push(message.value === null ? null : message.value.toString())
        if (values.length === 7) resolve()
      },
    })
  })
  await consumer.disconnect()
  await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: "4" }] })
  const trimmed = await admin.fetchTopicOffsets(topic)
  await Promise.all([producer.disconnect(), idempotent.disconnect(), admin.disconnect()])
  const settings = configs.resources[0].configEntries.length
  const partitions = metadata.topics[0].partitions.length
  console.log(JSON.stringify({ created, offsets, settings, trimmed, partitions, values }))
}

main().catch((error) => { console.error(error); process.exit(1) })
"""


@pytest.mark.timeout(INSTALL_TIMEOUT_S + 90)
def test_kafkajs_produces_administers_and_consumes(penstock_cluster: Cluster, wire: WireClient) -> None:
    missing = kafkajs_missing()
    if missing is not None:
        pytest.skip(missing)
    topic = "from-kafkajs"
    done = run_kafkajs("round_trip", PROGRAM, {"broker": penstock_cluster.bootstrap_servers, "topic": topic})
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert result["created"] is True
    assert result["partitions"] == 2
    assert result["settings"] > 25
    ends = {row["partition"]: (row["low"], row["high"]) for row in result["offsets"]}
    assert ends == {0: ("0", "6"), 1: ("0", "1")}
    assert {row["partition"]: row["low"] for row in result["trimmed"]} == {0: "4", 1: "0"}
    assert sorted(result["values"], key=str) == sorted(["größe", "", None] * 2 + ["once"], key=str)
    kept = records_in(wire.fetch(topic, 4).records)
    assert [(record.key, record.value) for record in kept][-2:] == [(None, b""), (b"gone", None)]
