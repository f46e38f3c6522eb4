"""Callers learn nothing of schemas that they may not read: not by ids, references, versions or errors."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest

from support.processes import eventually
from support.secured_gateway import SecuredGateway

TARGET = {"name": "acquisitionTarget", "type": {"type": "enum", "name": "Target", "symbols": ["INITECH", "GLOBEX"]}}
SECRET = json.dumps({"type": "record", "name": "Member", "namespace": "merger", "fields": [TARGET]})
RULES = json.dumps(
    {"type": "object", "required": ["acquisitionTarget"], "properties": {"acquisitionTarget": {"enum": ["INITECH"]}}}
)
SHARED = json.dumps({"type": "record", "name": "Shared", "fields": [{"name": "member", "type": "merger.Member"}]})
HIDDEN = ("INITECH", "acquisitionTarget")


class World:
    """`eve` may do everything with the topic eves, and describe the topic shared."""

    def __init__(self, running: SecuredGateway) -> None:
        self.running = running
        for topic in ("eves", "shared", "payroll", "rules"):
            running.topic(topic)
        running.add_user("eve", "eve-secret")
        running.allow("eve", ["READ", "WRITE", "DESCRIBE"], "eves")
        running.allow("eve", ["DESCRIBE"], "shared")
        with running.superuser(registry=True) as admin:
            self.secret_id = self._register(admin, "payroll-value", {"schema": SECRET})
            self.rules_id = self._register(admin, "rules-value", {"schema": RULES, "schemaType": "JSON"})
            reference = {"name": "merger.Member", "subject": "payroll-value", "version": 1}
            self._register(admin, "shared-value", {"schema": SHARED, "references": [reference]})

    @staticmethod
    def _register(admin: httpx.Client, subject: str, body: dict[str, object]) -> int:
        answer = admin.post(f"/subjects/{subject}/versions", json=body)
        assert answer.status_code == 200, answer.text
        return int(answer.json()["id"])

    def registry(self) -> httpx.Client:
        return self.running.client("eve", "eve-secret", registry=True)

    def rest(self) -> httpx.Client:
        return self.running.client("eve", "eve-secret")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with SecuredGateway(tmp_path_factory.mktemp("schema-rights")) as running:
        found = World(running)
        with found.registry() as registry:
            assert eventually(lambda: registry.get("/subjects/shared-value/versions/1").status_code == 200, 30)
        yield found


def check_hidden(answer: httpx.Response) -> None:
    assert answer.status_code >= 400 or "error_code" in answer.text, answer.text
    for word in HIDDEN:
        assert word not in answer.text


def test_a_resolved_schema_takes_the_rights_on_all_that_is_in_it(world: World) -> None:
    with world.registry() as registry:
        for path in ("/subjects/shared-value/versions/1", "/subjects/shared-value/versions/1/schema"):
            assert registry.get(path).status_code == 200
            resolved = registry.get(path, params={"format": "resolved"})
            assert resolved.status_code == 403
            check_hidden(resolved)
    with world.running.superuser(registry=True) as admin:
        assert "INITECH" in admin.get("/subjects/shared-value/versions/1", params={"format": "resolved"}).text


def test_records_are_not_checked_against_schemas_that_the_caller_may_not_read(world: World) -> None:
    with world.rest() as rest:
        cluster = rest.get("/v3/clusters").json()["data"][0]["cluster_id"]
        url = f"/v3/clusters/{cluster}/topics/eves/records"
        for named in (
            {"type": "AVRO", "subject": "payroll-value", "schema_version": 1},
            {"type": "AVRO", "schema_id": world.secret_id},
            {"type": "AVRO", "subject": "payroll-value"},
            {"type": "JSONSCHEMA", "subject": "rules-value"},
            {"type": "JSONSCHEMA", "schema_id": world.rules_id, "subject_name_strategy": "RECORD_NAME"},
        ):
            answer = rest.post(url, json={"value": {**named, "data": {}}})
            assert answer.status_code == 403, (named, answer.text)
            check_hidden(answer)
        for kind, schema_id in (("avro", world.secret_id), ("jsonschema", world.rules_id)):
            answer = rest.post(
                "/topics/eves",
                content=json.dumps({"value_schema_id": schema_id, "records": [{"value": {}}]}),
                headers={"Content-Type": f"application/vnd.kafka.{kind}.v2+json"},
            )
            assert answer.status_code == 403, (kind, answer.text)
            check_hidden(answer)


def test_a_caller_produces_with_schemas_of_its_own_topic(world: World) -> None:
    with world.rest() as rest:
        cluster = rest.get("/v3/clusters").json()["data"][0]["cluster_id"]
        url = f"/v3/clusters/{cluster}/topics/eves/records"
        text = json.dumps({"type": "record", "name": "Own", "fields": [{"name": "a", "type": "int"}]})
        first = rest.post(url, json={"value": {"type": "AVRO", "schema": text, "data": {"a": 1}}})
        assert first.status_code == 200, first.text
        own_id = first.json()["value"]["schema_id"]
        for named in ({"schema_id": own_id}, {"schema_version": 1}, {}):
            answer = rest.post(url, json={"value": {"type": "AVRO", **named, "data": {"a": 2}}})
            assert answer.status_code == 200, answer.text


def test_a_text_that_a_caller_may_not_read_is_found_under_the_subject_that_it_may(world: World) -> None:
    with world.running.superuser(registry=True) as admin, world.registry() as registry:
        text = json.dumps({"type": "string"})
        for number in range(120):
            answer = admin.post(f"/subjects/a.{number:03}-value/versions", json={"schema": text})
            assert answer.status_code == 200
        assert registry.get(f"/schemas/ids/{answer.json()['id']}").status_code == 403
        same = registry.post("/subjects/shared-value/versions", json={"schema": text})
        assert same.status_code == 403
        with world.rest() as rest:
            cluster = rest.get("/v3/clusters").json()["data"][0]["cluster_id"]
            sent = rest.post(
                f"/v3/clusters/{cluster}/topics/eves/records",
                json={"key": {"type": "AVRO", "schema": text, "data": "k"}},
            )
            assert sent.status_code == 200, sent.text
        # It is the last of more subjects than are checked together.
        found = registry.get(f"/schemas/ids/{answer.json()['id']}")
        assert found.status_code == 200
