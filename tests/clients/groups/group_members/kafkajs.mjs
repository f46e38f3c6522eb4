// A member on kafkajs: the orders and the log are those of member.py. The path of kafkajs is the second argument.

import fs from "node:fs";
import { createRequire } from "node:module";

const orders = JSON.parse(process.argv[2]);
const { Kafka, logLevel, PartitionAssigners } = createRequire(import.meta.url)(process.argv[3]);
const log = fs.openSync(orders.log, "a");
const write = (event, fields = {}) =>
  fs.writeSync(log, JSON.stringify({ time: Date.now() / 1000, event, ...fields }) + "\n");

let owned = [];
let generation = null;
const sessionTimeout = orders.session_timeout_ms ?? 3000;

// The generation is only in the debug log, in the answer to JoinGroup.
const readGeneration = () => ({ log: line }) => {
  if (line.message?.startsWith("Response JoinGroup") && line.data?.errorCode === 0) generation = line.data.generationId;
};

const kafka = new Kafka({
  clientId: orders.name,
  brokers: [orders.servers],
  logLevel: logLevel.DEBUG,
  logCreator: readGeneration,
  retry: { initialRetryTime: 50, maxRetryTime: 500 },
});
const consumer = kafka.consumer({
  groupId: orders.group,
  sessionTimeout,
  heartbeatInterval: Math.floor(sessionTimeout / 8),
  rebalanceTimeout: 20000,
  maxWaitTimeInMs: 100,
  partitionAssigners: [PartitionAssigners.roundRobin],
});
const release = (event) => {
  if (owned.length > 0) write(event, { partitions: owned });
  owned = [];
};
consumer.on(consumer.events.REBALANCING, () => release("revoked"));
consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
  release("revoked");
  owned = payload.memberAssignment[orders.topic] ?? [];
  write("assigned", { partitions: owned, generation });
});
consumer.on(consumer.events.CRASH, ({ payload }) => write("error", { error: String(payload.error) }));

process.on("SIGINT", () => {});
process.on("SIGTERM", async () => {
  await consumer.disconnect();
  write("closed");
  process.exit(0);
});

await consumer.connect();
await consumer.subscribe({ topic: orders.topic, fromBeginning: true });
await consumer.run({
  autoCommit: false,
  partitionsConsumedConcurrently: 1,
  eachBatch: async ({ batch, heartbeat, isStale, isRunning }) => {
    const offsets = batch.messages.map((message) => Number(message.offset));
    if (offsets.length === 0 || isStale() || !isRunning()) return;
    const [first, last] = [offsets[0], offsets[offsets.length - 1]];
    write("processed", { partition: batch.partition, first, last });
    try {
      const offset = String(last + 1);
      await consumer.commitOffsets([{ topic: orders.topic, partition: batch.partition, offset }]);
      write("committed", { offsets: { [batch.partition]: last + 1 } });
    } catch (error) {
      // Whoever was put out learns it, with the proper kind of error, from the heartbeat.
      write("refused", { error: error.type ?? String(error) });
    }
    await heartbeat();
  },
});
