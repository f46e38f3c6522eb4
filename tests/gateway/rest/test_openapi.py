"""The OpenAPI documents, and that no request generated from them leads to a 5xx."""

from __future__ import annotations

import os

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import Failure, FailureGroup
from schemathesis.specs.openapi.checks import response_schema_conformance

from support.gateway_process import GatewayProcess

# The same requests at every run. For others, set these variables.
SEED = int(os.environ.get("PENSTOCK_OPENAPI_SEED", "1"))
EXAMPLES = int(os.environ.get("PENSTOCK_OPENAPI_EXAMPLES", "5"))


@pytest.mark.parametrize("part", ["rest", "registry"])
def test_the_document_is_openapi_3_1(part: str, gateway: GatewayProcess) -> None:
    document = httpx.get(f"{getattr(gateway, part)}/openapi.json", timeout=30).json()
    assert document["openapi"] == "3.1.0"
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert operation["summary"].endswith("."), f"{method} {path}"
            named = {each["name"] for each in operation.get("parameters", []) if each["in"] == "path"}
            assert named == {word[1:-1] for word in path.replace(":", "/").split("/") if word.startswith("{")}


def test_the_documentation_page_is_self_contained(rest: httpx.Client) -> None:
    page = rest.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "/topics/{topic}/publish" in page.text
    for word in ("<script src", "<link", "@import", "url("):
        assert word not in page.text


def test_the_root_redirects_browsers_and_lists_entry_points_for_programs(rest: httpx.Client) -> None:
    led = rest.get("/", headers={"Accept": "text/html,application/xhtml+xml"}, follow_redirects=True)
    assert led.url.path == "/console/"
    assert led.headers["content-type"].startswith("text/html")
    front = rest.get("/").json()
    assert rest.get(front["api"]).status_code == 200
    # Clients of the REST Proxy check with this request that it is up.
    assert rest.get("/", headers={"Accept": "application/vnd.kafka.v2+json"}).json() == {}


CHECKS = [not_a_server_error, response_schema_conformance]


@pytest.mark.parametrize("part", ["rest", "registry"])
@pytest.mark.slow
@pytest.mark.timeout(60 * EXAMPLES)
def test_generated_requests_get_no_5xx(part: str, gateway: GatewayProcess) -> None:
    """Schemathesis makes requests up from the document: such as it allows, and such as it does not."""
    # Among the schemas that ids made up at random may name, one whose text is not JSON.
    written = {"schemaType": "PROTOBUF", "schema": 'syntax = "proto3"; message Made { int32 up = 1; }'}
    httpx.post(f"{gateway.registry}/subjects/made-up/versions", json=written, timeout=60).raise_for_status()
    schema = schemathesis.openapi.from_url(f"{getattr(gateway, part)}/openapi.json")
    tried, complaints = 0, []
    for result in schema.exclude(path_regex="/tail|/subscribe").get_all_operations():
        operation = result.ok()
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):

            @seed(SEED)
            @given(case=operation.as_strategy(generation_mode=mode))
            @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
            def ask(case: Case) -> None:
                make_cheap(case)
                case.call_and_validate(checks=CHECKS, timeout=30)

            try:
                ask()
                tried += 1
            except Unsatisfiable:
                continue
            except (FailureGroup, Failure) as failure:
                complaints.append(f"{operation.label}: {failure}\n{getattr(failure, 'exceptions', '')}")
    assert complaints == [], gateway.log()[-3000:]
    assert tried > 40


def make_cheap(case: Case) -> None:
    """Avoid waits of a minute for a record that does not come, and ten thousand partitions."""
    if "timeout" in (case.query or {}):
        case.query["timeout"] = 0
    for name in ("partitions", "partitions_count"):
        if isinstance(case.body, dict) and isinstance(case.body.get(name), int):
            case.body[name] = min(case.body[name], 2)
