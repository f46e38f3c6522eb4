"""What the APIs say of themselves, and that nothing a machine makes up from it leads to a 5xx."""

from __future__ import annotations

import httpx
import pytest
import schemathesis
from gateway_process import GatewayProcess
from hypothesis import HealthCheck, settings
from schemathesis import Case
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance

EXAMPLES = 6


@pytest.mark.parametrize("part", ["rest", "registry"])
def test_the_document_is_openapi_3_1(part: str, gateway: GatewayProcess) -> None:
    document = httpx.get(f"{getattr(gateway, part)}/openapi.json", timeout=30).json()
    assert document["openapi"] == "3.1.0"
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert operation["summary"].endswith("."), f"{method} {path}"
            named = {each["name"] for each in operation.get("parameters", []) if each["in"] == "path"}
            assert named == {word[1:-1] for word in path.replace(":", "/").split("/") if word.startswith("{")}


def test_the_page_for_people_needs_nothing_from_elsewhere(rest: httpx.Client) -> None:
    page = rest.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "/topics/{topic}/publish" in page.text
    for word in ("<script src", "<link", "@import", "url("):
        assert word not in page.text


rest_schema = schemathesis.pytest.from_fixture("rest_document")
registry_schema = schemathesis.pytest.from_fixture("registry_document")


@pytest.fixture(scope="session")
def rest_document(gateway: GatewayProcess) -> object:
    return schemathesis.openapi.from_url(f"{gateway.rest}/openapi.json")


@pytest.fixture(scope="session")
def registry_document(gateway: GatewayProcess) -> object:
    return schemathesis.openapi.from_url(f"{gateway.registry}/openapi.json")


CHECKS = [not_a_server_error, content_type_conformance, response_schema_conformance]


@rest_schema.exclude(path_regex="/tail|/subscribe").parametrize()
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
def test_made_up_rest_requests_get_no_5xx(case: Case) -> None:
    case.call_and_validate(checks=CHECKS, timeout=30, params=_short(case))


@registry_schema.parametrize()
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
def test_made_up_registry_requests_get_no_5xx(case: Case) -> None:
    case.call_and_validate(checks=CHECKS, timeout=30)


def _short(case: Case) -> dict[str, str]:
    """Nobody needs to wait a minute for a record that does not come."""
    return {"timeout": "0"} if case.path.endswith(("/records", "/messages")) and case.method == "GET" else {}
