"""Every operation of the gateway, from its own documents, requested by a user who may do nothing.

What others have, and what does not exist, must look the same: whatever is asked, and however it is answered.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx
import pytest
from confluent_kafka import Consumer

from support.secured_gateway import SecuredGateway

TIMEOUT_S = 30.0
RECORDS = 3
SECRET = "secret"
SCHEMA = json.dumps({"type": "record", "name": "Order", "fields": [{"name": f"a_{SECRET}_field", "type": "string"}]})
# What paths and queries have besides names.
SAMPLES = {
    "cluster_id": "-",
    "partition": "0",
    "partition_id": "0",
    "broker_id": "1",
    "id": "1",
    "version": "1",
    "name": "retention.ms",
    "instance": "instance",
    "consumer_id": "consumer",
    "tenant": "tenant",
    "client": "A" * 22,
}
QUERIES = {"timeout": "100", "offset": "0", "resource_type": "TOPIC", "principal": "User:eve", "operation": "READ"}


class Names(NamedTuple):
    """A topic and a group; both tellings have names of the same length."""

    topic: str
    group: str

    def fill(self, text: str) -> str:
        """A path with names and samples in it."""
        named = {"topic": self.topic, "topic_name": self.topic, "subject": f"{self.topic}-value"}
        named |= {"group": self.group, "consumer_group_id": self.group, **SAMPLES}
        return re.sub(r"\{(\w+)\}", lambda found: named[found[1]], text)

    def hide(self, text: str) -> str:
        """An answer without names, times and random ids."""
        return re.sub(
            r"\d{10,}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
            "#",
            text.replace(self.topic, "?").replace(self.group, "?"),
        )


HIDDEN, INVENTED = Names("hidden.orders", "hidden.billing"), Names("hidden.nobody", "hidden.nothing")


class World(NamedTuple):
    running: SecuredGateway
    message_id: str
    documents: dict[bool, dict[str, Any]]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with SecuredGateway(tmp_path_factory.mktemp("gateway-rights")) as running:
        for topic in (HIDDEN.topic, f"dlq.{HIDDEN.topic}"):
            running.topic(topic)
        with running.superuser() as admin, running.superuser(registry=True) as registry:
            for _ in range(RECORDS):
                published = admin.post(
                    f"/topics/{HIDDEN.topic}/publish", json={"key": f"{SECRET}-key", "value": f"{SECRET}-value"}
                )
                assert published.status_code == 200, published.text
            subject = f"{HIDDEN.topic}-value"
            assert registry.post(f"/subjects/{subject}/versions", json={"schema": SCHEMA}).json()["id"] == 1
            registry.post(f"/subjects/:.{SECRET}:{subject}/versions", json={"schema": SCHEMA})
            SAMPLES["guid"] = registry.get(f"/subjects/{subject}/versions/1").json()["guid"]
            held = admin.get(f"/topics/{HIDDEN.topic}/subscribe?group={HIDDEN.group}.shared")
            documents = {True: registry.get("/openapi.json").json(), False: admin.get("/openapi.json").json()}
        read(running)
        running.add_user("eve", "eve-knows")
        yield World(running, held.json()["messageId"], documents)


def read(running: SecuredGateway) -> None:
    """Have the hidden group commit something."""
    settings = running.cluster.librdkafka() | {"group.id": HIDDEN.group, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe([HIDDEN.topic])
    assert len(consumer.consume(RECORDS, TIMEOUT_S)) == RECORDS
    consumer.commit(asynchronous=False)
    consumer.close()


def sample(schema: dict[str, Any]) -> Any:
    """A value that a schema allows, as far as it defines that."""
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type", "string")
    match kind[0] if isinstance(kind, list) else kind:
        case "object":
            known = schema.get("properties", {})
            return {name: sample(known.get(name, {})) for name in schema.get("required", ())}
        case "array":
            return [sample(schema.get("items", {}))]
        case "integer" | "number":
            return max(0, schema.get("minimum", 0))
        case "boolean":
            return True
    return "{topic}"


def ask(client: httpx.Client, method: str, path: str, operation: dict[str, Any], names: Names, held: str) -> str:
    """The answer's status and text, without names."""
    body, kinds = None, operation.get("requestBody", {}).get("content", {})
    headers = {}
    if kinds:
        kind = "application/json" if "application/json" in kinds else next(iter(kinds))
        headers["Content-Type"] = kind
        body = json.dumps(kinds[kind].get("example") or sample(kinds[kind].get("schema", {})))
        body = re.sub(r"\{topic\}|\borders\b", names.topic, body)
        if "messageId" in body:
            body = json.dumps({"messageId": held})
    query = {
        each["name"]: QUERIES.get(each["name"]) for each in operation.get("parameters", []) if each["in"] == "query"
    }
    if "group" in query:
        query["group"] = f"{names.group}.shared"
    wanted = {name: value for name, value in query.items() if value is not None}
    with client.stream(method, names.fill(path), content=body, params=wanted, headers=headers) as response:
        streams = "event-stream" in response.headers.get("Content-Type", "")
        text = next(response.iter_text(), "") if streams else response.read().decode()
    return f"{response.status_code} {names.hide(text)}"


def ask_everything(world: World, *, is_registry: bool) -> int:
    """Ask about what is hidden and about what is not there; how many operations there were."""
    asked = 0
    with world.running.client("eve", "eve-knows", registry=is_registry) as eve:
        for path, methods in world.documents[is_registry]["paths"].items():
            for method, operation in methods.items():
                hidden, invented = (
                    ask(eve, method.upper(), path, operation, names, world.message_id) for names in (HIDDEN, INVENTED)
                )
                what = f"{method} {path}: {hidden}"
                assert hidden == invented, what
                assert SECRET not in hidden, what
                assert not hidden.startswith("5"), what
                asked += 1
    return asked


def test_resources_of_others_look_absent_and_stay_unchanged(world: World) -> None:
    assert ask_everything(world, is_registry=False) > 90
    assert ask_everything(world, is_registry=True) > 25
    with world.running.superuser() as admin, world.running.superuser(registry=True) as registry:
        offsets = admin.get(f"/v3/clusters/-/topics/{HIDDEN.topic}/partitions/0/offset").json()
        assert (offsets["earliest_offset"], offsets["latest_offset"]) == (0, RECORDS)
        assert registry.get(f"/subjects/{HIDDEN.topic}-value/versions").json() == [1]
        groups = [group["consumer_group_id"] for group in admin.get("/v3/clusters/-/consumer-groups").json()["data"]]
        assert HIDDEN.group in groups
        # The holder of the message can still settle it, which no other client has done meanwhile.
        settled = admin.post(f"/topics/{HIDDEN.topic}/ack", json={"messageId": world.message_id})
        assert settled.status_code == 200, settled.text
