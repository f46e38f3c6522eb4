"""First programs to copy: each sends a record to a topic and reads the topic back. The tests run the Python ones."""

from __future__ import annotations

import shlex
from pathlib import Path

PENSTOCK = """\
import penstock

with penstock.Producer("%(bootstrap)s") as producer:
    producer.send("%(topic)s", "greeting", "hello from penstock")

with penstock.Consumer("%(bootstrap)s", value=str) as consumer:
    consumer.subscribe(["%(topic)s"])
    for record in consumer.poll_many(timeout_s=5):
        print(record.offset, record.value)
"""

CONFLUENT_KAFKA = """\
from confluent_kafka import Consumer, Producer, TopicPartition

producer = Producer({"bootstrap.servers": "%(bootstrap)s"})
producer.produce("%(topic)s", key="greeting", value="hello from confluent-kafka")
producer.flush()

settings = {"bootstrap.servers": "%(bootstrap)s", "group.id": "first-steps", "enable.auto.commit": False}
consumer = Consumer(settings)
consumer.assign([TopicPartition("%(topic)s", 0, 0)])
for message in consumer.consume(num_messages=10, timeout=2):
    print(message.offset(), message.value())
consumer.close()
"""

KAFKA_PYTHON = """\
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

producer = KafkaProducer(bootstrap_servers="%(bootstrap)s")
producer.send("%(topic)s", key=b"greeting", value=b"hello from kafka-python")
producer.flush()
producer.close()

consumer = KafkaConsumer(bootstrap_servers="%(bootstrap)s", consumer_timeout_ms=2000)
consumer.assign([TopicPartition("%(topic)s", 0)])
consumer.seek_to_beginning()
for message in consumer:
    print(message.offset, message.value)
consumer.close()
"""

KCAT = """\
echo 'hello from kcat' | kcat -b %(bootstrap)s -t %(topic)s -P
kcat -b %(bootstrap)s -t %(topic)s -C -o beginning -e
"""

PYSPARK = """\
import pyspark  # needs Java; version 4 or later
from pyspark.sql import SparkSession

connector = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
spark = SparkSession.builder.config("spark.jars.packages", connector).getOrCreate()
records = (
    spark.read.format("kafka")
    .option("kafka.bootstrap.servers", "%(bootstrap)s")
    .option("subscribe", "%(topic)s")
    .load()
)
records.selectExpr("offset", "CAST(value AS STRING)").show(truncate=False)
"""

# The same for a secured cluster. Settings are read from the files that `up` has written, so that no screen,
# # history or program shows a password.
SECURE_PENSTOCK = """\
import os

import penstock

os.environ["PENSTOCK_COMMAND_CONFIG"] = %(file)r

with penstock.Producer() as producer:
    producer.send("%(topic)s", "greeting", "hello from penstock")

with penstock.Consumer(value=str) as consumer:
    consumer.subscribe(["%(topic)s"])
    for record in consumer.poll_many(timeout_s=5):
        print(record.offset, record.value)
"""

SECURE_CONFLUENT_KAFKA = """\
from confluent_kafka import Consumer, Producer, TopicPartition

with open(%(file)r) as file:
    settings = dict(line.strip().split("=", 1) for line in file if not line.startswith("#"))

producer = Producer(settings)
producer.produce("%(topic)s", key="greeting", value="hello from confluent-kafka")
producer.flush()

consumer = Consumer({**settings, "group.id": "first-steps", "enable.auto.commit": False})
consumer.assign([TopicPartition("%(topic)s", 0, 0)])
for message in consumer.consume(num_messages=10, timeout=2):
    print(message.offset(), message.value())
consumer.close()
"""

SECURE_KAFKA_PYTHON = """\
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

with open(%(file)r) as file:
    known = dict(line.strip().split("=", 1) for line in file if not line.startswith("#"))
settings = {
    "bootstrap_servers": known["bootstrap.servers"],
    "security_protocol": "SASL_SSL",
    "ssl_cafile": known["ssl.ca.location"],
    "sasl_mechanism": "SCRAM-SHA-512",
    "sasl_plain_username": known["sasl.username"],
    "sasl_plain_password": known["sasl.password"],
}

producer = KafkaProducer(**settings)
producer.send("%(topic)s", key=b"greeting", value=b"hello from kafka-python")
producer.flush()
producer.close()

consumer = KafkaConsumer(consumer_timeout_ms=2000, **settings)
consumer.assign([TopicPartition("%(topic)s", 0)])
consumer.seek_to_beginning()
for message in consumer:
    print(message.offset, message.value)
consumer.close()
"""

SECURE_KCAT = """\
# built on librdkafka 2.6.1 or later: the SCRAM of older ones is refused, by Kafka 4 too
echo 'hello from kcat' | kcat -F %(quoted)s -t %(topic)s -P
kcat -F %(quoted)s -t %(topic)s -C -o beginning -e
"""

SECURE_PYSPARK = """\
import pyspark  # needs Java; version 4 or later
from pyspark.sql import SparkSession

with open(%(java_file)r) as file:
    settings = dict(line.strip().split("=", 1) for line in file if not line.startswith("#"))

connector = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
spark = SparkSession.builder.config("spark.jars.packages", connector).getOrCreate()
records = (
    spark.read.format("kafka")
    .options(**{f"kafka.{name}": value for name, value in settings.items()})
    .option("subscribe", "%(topic)s")
    .load()
)
records.selectExpr("offset", "CAST(value AS STRING)").show(truncate=False)
"""

# The name people know the client by, the language to colour it in, and the text.
SNIPPETS = (
    ("penstock", "python", PENSTOCK),
    ("confluent-kafka", "python", CONFLUENT_KAFKA),
    ("kafka-python", "python", KAFKA_PYTHON),
    ("kcat", "bash", KCAT),
    ("PySpark", "python", PYSPARK),
)
SECURE_SNIPPETS = (
    ("penstock", "python", SECURE_PENSTOCK),
    ("confluent-kafka", "python", SECURE_CONFLUENT_KAFKA),
    ("kafka-python", "python", SECURE_KAFKA_PYTHON),
    ("kcat", "bash", SECURE_KCAT),
    ("PySpark", "python", SECURE_PYSPARK),
)


def fill(snippet: str, bootstrap: str, topic: str, **files: Path) -> str:
    """A snippet for one cluster and topic; those of secured clusters name the files of clients' settings."""
    named = {name: str(path) for name, path in files.items()}
    return snippet % {"bootstrap": bootstrap, "topic": topic, "quoted": shlex.quote(named.get("file", "")), **named}
