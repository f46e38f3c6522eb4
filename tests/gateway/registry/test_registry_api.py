"""The registry's API call by call: responses and error codes."""

from __future__ import annotations

import json
import uuid
from typing import Any

import httpx
import pytest

ONE = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
TWO = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"b","type":"int","default":0}]}'
BROKEN = '{"type":"record","name":"R","fields":[{"name":"a","type":"string"}]}'


def register(registry: httpx.Client, subject: str, text: str, **more: Any) -> httpx.Response:
    return registry.post(f"/subjects/{subject}/versions", json={"schema": text, **more})


def unique(text: str) -> str:
    """The same schema under a name of its own, so that it gets an id of its own."""
    return text.replace('"R"', f'"R{uuid.uuid4().hex[:8]}"')


def problem(response: httpx.Response, status: int, code: int) -> str:
    body = response.json()
    assert (response.status_code, body["error_code"]) == (status, code), body
    assert body["message"]
    return str(body["message"])


def test_versions_count_up_and_the_same_schema_stays_the_same_version(registry: httpx.Client, subject: str) -> None:
    first = register(registry, subject, ONE).json()
    second = register(registry, subject, TWO).json()
    assert (first["version"], second["version"]) == (1, 2)
    assert register(registry, subject, ONE).json() == first
    assert registry.get(f"/subjects/{subject}/versions").json() == [1, 2]
    latest = registry.get(f"/subjects/{subject}/versions/latest").json()
    assert (latest["subject"], latest["version"], latest["id"], latest["schema"]) == (subject, 2, second["id"], TWO)
    assert registry.get(f"/subjects/{subject}/versions/1/schema").json() == json.loads(ONE)


@pytest.mark.parametrize(
    ("form", "text", "kind"),
    [
        ("AVRO", ONE, "application/vnd.schemaregistry.v1+json"),
        ("PROTOBUF", 'syntax = "proto3";\n\nmessage M {\n  int32 a = 1;\n}\n', "text/plain"),
    ],
)
def test_content_type_of_schema_texts(registry: httpx.Client, subject: str, form: str, text: str, kind: str) -> None:
    schema_id = register(registry, subject, text, schemaType=form).json()["id"]
    for path in (f"/schemas/ids/{schema_id}/schema", f"/subjects/{subject}/versions/1/schema"):
        answer = registry.get(path)
        assert (answer.headers["content-type"].partition(";")[0], answer.text) == (kind, text)


def test_one_schema_has_one_id_under_all_subjects(registry: httpx.Client, subject: str) -> None:
    text = unique(ONE)
    first = register(registry, subject, text).json()["id"]
    second = register(registry, f"{subject}-too", text).json()["id"]
    assert first == second
    assert registry.get(f"/schemas/ids/{first}").json()["schema"] == text
    assert registry.get(f"/schemas/ids/{first}/subjects").json() == [subject, f"{subject}-too"]
    versions = registry.get(f"/schemas/ids/{first}/versions").json()
    assert versions == [{"subject": subject, "version": 1}, {"subject": f"{subject}-too", "version": 1}]


def test_guids_find_their_schema(registry: httpx.Client, subject: str) -> None:
    registered = register(registry, subject, unique(ONE)).json()
    guid = registered["guid"]
    assert registry.get(f"/schemas/guids/{guid}").json()["guid"] == guid
    assert registry.get(f"/schemas/guids/{guid}/ids").json() == [{"context": ".", "id": registered["id"]}]
    problem(registry.get(f"/schemas/guids/{uuid.uuid4()}"), 404, 40403)


def test_incompatible_schema_is_rejected_with_the_reason(registry: httpx.Client, subject: str) -> None:
    register(registry, subject, ONE)
    message = problem(register(registry, subject, BROKEN), 409, 409)
    assert "version 1" in message
    assert "TYPE_MISMATCH" in message
    assert registry.get(f"/subjects/{subject}/versions").json() == [1]


def test_compatibility_can_be_checked_before_registering(registry: httpx.Client, subject: str) -> None:
    register(registry, subject, ONE)
    path = f"/compatibility/subjects/{subject}/versions"
    assert registry.post(f"{path}/latest", json={"schema": TWO}).json() == {"is_compatible": True}
    answer = registry.post(f"{path}/1", params={"verbose": "true"}, json={"schema": BROKEN}).json()
    assert answer["is_compatible"] is False
    assert "TYPE_MISMATCH" in answer["messages"][0]
    assert registry.post(path, json={"schema": BROKEN}).json() == {"is_compatible": False}
    problem(registry.post(f"{path}/9", json={"schema": TWO}), 404, 40402)
    unknown = registry.post("/compatibility/subjects/none-such/versions/latest", json={"schema": TWO})
    assert unknown.json() == {"is_compatible": True}


def test_subject_level_takes_precedence_over_the_global_level(registry: httpx.Client, subject: str) -> None:
    register(registry, subject, ONE)
    problem(registry.get(f"/config/{subject}"), 404, 40408)
    shown = registry.get(f"/config/{subject}", params={"defaultToGlobal": "true"}).json()
    assert shown["compatibilityLevel"] == "BACKWARD"
    assert registry.put(f"/config/{subject}", json={"compatibility": "none"}).json() == {"compatibility": "NONE"}
    assert registry.get(f"/config/{subject}").json() == {"compatibilityLevel": "NONE"}
    assert register(registry, subject, BROKEN).status_code == 200
    assert registry.delete(f"/config/{subject}").json() == {"compatibilityLevel": "NONE"}
    problem(registry.get(f"/config/{subject}"), 404, 40408)
    problem(registry.put(f"/config/{subject}", json={"compatibility": "SIDEWAYS"}), 422, 42203)


def test_subjects_are_deleted_softly_and_then_permanently(registry: httpx.Client, subject: str) -> None:
    text = unique(ONE)
    schema_id = register(registry, subject, text).json()["id"]
    problem(registry.delete(f"/subjects/{subject}", params={"permanent": "true"}), 404, 40405)
    assert registry.delete(f"/subjects/{subject}").json() == [1]
    problem(registry.delete(f"/subjects/{subject}"), 404, 40404)
    problem(registry.get(f"/subjects/{subject}/versions"), 404, 40401)
    assert subject not in registry.get("/subjects").json()
    assert subject in registry.get("/subjects", params={"deleted": "true"}).json()
    assert subject in registry.get("/subjects", params={"deletedOnly": "true"}).json()
    assert registry.get(f"/subjects/{subject}/versions", params={"deleted": "true"}).json() == [1]
    assert registry.get(f"/schemas/ids/{schema_id}").json()["schema"] == text
    assert registry.delete(f"/subjects/{subject}", params={"permanent": "true"}).json() == [1]
    problem(registry.delete(f"/subjects/{subject}"), 404, 40401)
    problem(registry.get(f"/schemas/ids/{schema_id}"), 404, 40403)


def test_versions_are_deleted_softly_and_then_permanently(registry: httpx.Client, subject: str) -> None:
    register(registry, subject, ONE)
    register(registry, subject, TWO)
    path = f"/subjects/{subject}/versions"
    problem(registry.delete(f"{path}/2", params={"permanent": "true"}), 404, 40407)
    assert registry.delete(f"{path}/latest").json() == 2
    problem(registry.delete(f"{path}/2"), 404, 40406)
    problem(registry.get(f"{path}/2"), 404, 40402)
    assert registry.get(f"{path}/2", params={"deleted": "true"}).json()["deleted"] is True
    assert registry.delete(f"{path}/2", params={"permanent": "true"}).json() == 2
    assert registry.get(path, params={"deleted": "true"}).json() == [1]
    assert register(registry, subject, TWO).json()["version"] == 2


def test_version_numbers_are_not_reused_after_deletion(registry: httpx.Client, subject: str) -> None:
    register(registry, subject, ONE)
    registry.delete(f"/subjects/{subject}/versions/1")
    assert register(registry, subject, TWO).json()["version"] == 2


def test_referenced_schemas_cannot_be_deleted(registry: httpx.Client, subject: str) -> None:
    inner = f"{subject}-inner"
    register(registry, inner, '{"type":"record","name":"n.Inner","fields":[]}')
    text = '{"type":"record","name":"Outer","fields":[{"name":"i","type":"n.Inner"}]}'
    reference = {"name": "n.Inner", "subject": inner, "version": -1}
    registered = register(registry, subject, text, references=[reference])
    schema_id = registered.json()["id"]
    shown = registry.get(f"/schemas/ids/{schema_id}").json()
    assert shown["references"] == [{"name": "n.Inner", "subject": inner, "version": 1}]
    assert registry.get(f"/subjects/{inner}/versions/1/referencedby").json() == [schema_id]
    problem(registry.delete(f"/subjects/{inner}"), 422, 42206)
    problem(registry.delete(f"/subjects/{inner}/versions/1"), 422, 42206)
    resolved = registry.get(f"/schemas/ids/{schema_id}", params={"format": "resolved"}).json()["schema"]
    assert '"fields":[]' in resolved
    missing = {"name": "n.Inner", "subject": inner, "version": 9}
    problem(register(registry, subject, text, references=[missing]), 422, 42201)


def test_read_only_subjects_stay_as_they_are(registry: httpx.Client, subject: str) -> None:
    register(registry, subject, ONE)
    problem(registry.get(f"/mode/{subject}"), 404, 40409)
    assert registry.put(f"/mode/{subject}", json={"mode": "READONLY"}).json() == {"mode": "READONLY"}
    problem(register(registry, subject, TWO), 422, 42205)
    problem(registry.delete(f"/subjects/{subject}"), 422, 42205)
    assert registry.delete(f"/mode/{subject}").json() == {"mode": "READONLY"}
    assert register(registry, subject, TWO).status_code == 200
    problem(registry.put(f"/mode/{subject}", json={"mode": "WRITEONLY"}), 422, 42204)


def test_imports_bring_ids_and_versions(registry: httpx.Client, subject: str) -> None:
    text = unique(ONE)
    problem(register(registry, subject, text, id=77_001), 422, 42205)
    assert registry.put(f"/mode/{subject}", json={"mode": "IMPORT"}).json() == {"mode": "IMPORT"}
    imported = register(registry, subject, text, id=77_001, version=5).json()
    assert (imported["id"], imported["version"]) == (77_001, 5)
    problem(register(registry, subject, unique(ONE), id=77_001, version=6), 422, 42207)
    problem(register(registry, subject, unique(ONE)), 422, 42205)
    other = f"{subject}-other"
    register(registry, other, ONE)
    problem(registry.put(f"/mode/{other}", json={"mode": "IMPORT"}), 422, 42205)
    assert registry.put(f"/mode/{other}", params={"force": "true"}, json={"mode": "IMPORT"}).status_code == 200


def test_schemas_registered_after_an_import_of_the_last_id_are_stored(registry: httpx.Client, subject: str) -> None:
    importing, other = f":.{subject}:mine", f":.{subject}:other"
    assert registry.put(f"/mode/{importing}", json={"mode": "IMPORT"}).status_code == 200
    assert register(registry, importing, unique(ONE), id=2**31 - 1).status_code == 200
    stored = register(registry, other, unique(ONE)).json()
    found = registry.get(f"/schemas/ids/{stored['id']}", params={"subject": other}).json()
    assert found["guid"] == stored["guid"]


def test_unreadable_registry_settings_are_rejected(registry: httpx.Client, subject: str) -> None:
    deep: dict[str, Any] = {}
    for _ in range(150):
        deep = {"a": deep}
    body = {"compatibility": "NONE", "defaultMetadata": {"properties": deep}}
    assert registry.put(f"/config/{subject}", json=body).status_code in (400, 422)
    assert register(registry, subject, ONE, metadata={"properties": deep}).status_code in (400, 422)
    problem(registry.get(f"/subjects/{subject}/versions"), 404, 40401)


def test_contexts_have_ids_of_their_own(registry: httpx.Client, subject: str) -> None:
    context = f".{subject}"
    qualified = f":{context}:thing"
    registered = register(registry, qualified, unique(ONE)).json()
    assert registered["id"] == 1
    assert context in registry.get("/contexts").json()
    assert registry.get(f"/contexts/{context}/subjects").json() == [qualified]
    assert registry.get(f"/contexts/{context}/subjects/thing/versions").json() == [1]
    assert registry.get(f"/contexts/{context}/schemas/ids/1").status_code == 200
    assert registry.get("/schemas/ids/1", params={"subject": qualified}).json()["guid"] == registered["guid"]
    assert registry.put(f"/contexts/{context}/config", json={"compatibility": "NONE"}).status_code == 200
    shown = registry.get(f"/config/{qualified}", params={"defaultToGlobal": "true"}).json()
    assert shown["compatibilityLevel"] == "NONE"


def test_names_with_slashes_are_names(registry: httpx.Client, subject: str) -> None:
    name = f"{subject}%2Fwith%2Fslashes"
    assert register(registry, name, ONE).status_code == 200
    assert f"{subject}/with/slashes" in registry.get("/subjects").json()


def test_equivalent_schemas_are_equal_when_normalized(registry: httpx.Client, subject: str) -> None:
    json_schema = {"schemaType": "JSON", "schema": '{"type":"object","title":"x"}'}
    first = registry.post(f"/subjects/{subject}/versions", params={"normalize": "true"}, json=json_schema).json()
    turned = {"schemaType": "JSON", "schema": '{"title":"x","type":"object"}'}
    second = registry.post(f"/subjects/{subject}/versions", params={"normalize": "true"}, json=turned).json()
    assert first == second
    found = registry.post(f"/subjects/{subject}", params={"normalize": "true"}, json=json_schema)
    assert found.json()["version"] == 1


def test_metadata_finds_versions(registry: httpx.Client, subject: str) -> None:
    register(registry, subject, ONE, metadata={"properties": {"owner": "shop"}})
    register(registry, subject, TWO, metadata={"properties": {"owner": "bank"}})
    found = registry.get(f"/subjects/{subject}/metadata", params={"key": "owner", "value": "shop"}).json()
    assert (found["version"], found["metadata"]) == (1, {"properties": {"owner": "shop"}})
    problem(registry.get(f"/subjects/{subject}/metadata", params={"key": "owner", "value": "x"}), 404, 40403)


def test_lists_are_paged(registry: httpx.Client, subject: str) -> None:
    for number in range(4):
        register(registry, f"{subject}-{number}", ONE)
    page = registry.get("/subjects", params={"subjectPrefix": subject, "offset": 1, "limit": 2}).json()
    assert page == [f"{subject}-1", f"{subject}-2"]
    listed = registry.get("/schemas", params={"subjectPrefix": subject, "latestOnly": "true"}).json()
    assert [each["subject"] for each in listed] == [f"{subject}-{number}" for number in range(4)]


def test_server_metadata(registry: httpx.Client) -> None:
    assert registry.get("/").json() == {}
    assert registry.get("/schemas/types").json() == ["AVRO", "JSON", "PROTOBUF"]
    assert registry.get("/v1/metadata/id").json()["scope"]["clusters"]["kafka-cluster"]
    assert registry.get("/v1/metadata/version").json()["version"]
    assert registry.get("/openapi.json").json()["openapi"] == "3.1.0"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"schema": "{"}, 422, 42201),
        ({"schema": '"no such type"'}, 422, 42201),
        ({"schema": "message M {}", "schemaType": "PROTOBUF"}, 200, 0),
        ({"schema": "message M { x }", "schemaType": "PROTOBUF"}, 422, 42201),
        ({"schema": "{}", "schemaType": "XML"}, 422, 422),
        ({"schema": 5}, 422, 422),
        ({}, 422, 422),
        ([], 422, 422),
        ({"schema": ONE, "references": [{"name": "x"}]}, 422, 422),
        ({"schema": " " * 1_100_000}, 422, 42209),
    ],
)
def test_errors_of_bad_schemas_name_the_problem(
    registry: httpx.Client, subject: str, body: Any, status: int, code: int
) -> None:
    response = registry.post(f"/subjects/{subject}/versions", json=body)
    if status == 200:
        assert response.status_code == 200
    else:
        problem(response, status, code)


def nested(opening: str, inner: str, closing: str, depth: int) -> str:
    return opening * depth + inner + closing * depth


@pytest.mark.parametrize("depth", [60, 200, 320, 480, 900])
@pytest.mark.parametrize(
    ("schema_type", "opening", "inner", "closing"),
    [
        ("AVRO", '{"type":"array","items":', '"%s"', "}"),
        ("AVRO", "[", '"%s"', "]"),
        ("JSON", '{"type":"array","items":', '{"type":"%s"}', "}"),
        ("JSON", '{"properties":{"a":', '{"type":"%s"}', "}}"),
    ],
)
def test_deeply_nested_schemas_are_accepted_or_rejected(
    registry: httpx.Client, subject: str, schema_type: str, opening: str, inner: str, closing: str, depth: int
) -> None:
    for kind in ("string", "boolean"):
        text = nested(opening, inner % kind, closing, depth)
        answer = register(registry, subject, text, schemaType=schema_type)
        assert answer.status_code in (200, 409, 422), answer.text[:300]
        if answer.status_code == 422:
            problem(answer, 422, 42201)


def test_chains_of_messages_are_compared_or_refused(registry: httpx.Client, subject: str) -> None:
    for kind in ("string", "int32"):
        chain = "".join(f"message M{n} {{ M{n + 1} next = 1; }} " for n in range(600))
        text = f'syntax = "proto3"; {chain} message M600 {{ {kind} end = 1; }}'
        answer = register(registry, subject, text, schemaType="PROTOBUF")
        assert answer.status_code in (200, 409, 422), answer.text[:300]


def test_errors_of_bad_requests_name_the_problem(registry: httpx.Client, subject: str) -> None:
    register(registry, subject, ONE)
    problem(registry.post(f"/subjects/{subject}/versions", content=b"{nonsense"), 422, 422)
    problem(registry.post(f"/subjects/{subject}/versions", content=b""), 422, 422)
    for version in ("0", "-2", "first", "99999999999", "1.5"):
        problem(registry.get(f"/subjects/{subject}/versions/{version}"), 422, 42202)
    problem(registry.get("/schemas/ids/abc"), 400, 40001)
    problem(registry.get("/subjects", params={"limit": "many"}), 400, 40001)
    problem(registry.get("/subjects", params={"deleted": "perhaps"}), 400, 40001)
    problem(registry.get("/no/such/path"), 404, 404)
    problem(registry.patch("/subjects"), 405, 405)
    problem(registry.get("/subjects/never-registered/versions"), 404, 40401)
    problem(registry.get("/subjects/a%00b/versions"), 422, 42208)
    problem(registry.post(f"/subjects/{subject}", json={"schema": TWO}), 404, 40403)
    problem(registry.post(f"/subjects/{subject}", content=b"<x/>", headers={"content-type": "text/xml"}), 415, 415)
