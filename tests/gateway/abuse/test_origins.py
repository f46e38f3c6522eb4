"""Access to a gateway: for programs, its own pages and those of allowed origins, but no other web page."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from penstock.gateway.web.access import Access, is_origin
from penstock.testing import Cluster
from support.gateway_process import GatewayProcess
from support.raw_http import RawConnection, get, post

EVIL = "http://evil.example"


def verdict(method: str = "GET", path: str = "/topics", kind: str = "http", **headers: str) -> int:
    """The status of a refusal; 0 where there is none."""
    named = {name.replace("_", "-"): value for name, value in {"host": "localhost:8080", **headers}.items()}
    sent = [(name.encode(), value.encode()) for name, value in named.items()]
    scope = {"type": kind, "method": method, "path": path, "http_version": "1.1", "headers": sent}
    access = Access(["gateway.example", ".inner.example"], ["https://app.example"])
    problem = access.refusal(scope)
    assert problem is None or problem.fix
    return problem.status if problem is not None else 0


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 0),
        ("LocalHost:8080", 0),
        ("localhost.", 0),
        ("anything.localhost:1", 0),
        ("127.0.0.1:8080", 0),
        ("192.168.7.9", 0),
        ("[::1]:8080", 0),
        ("[fe80::1]", 0),
        ("gateway.example:80", 0),
        ("a.inner.example", 0),
        ("inner.example", 421),
        ("evilinner.example", 421),
        ("evil.example:8080", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("evil", 421),
        ("", 400),
        ("localhost:8080, evil.example", 400),
        ("evil@localhost", 400),
        ("localhost:port", 400),
        ("[::1", 400),
    ],
)
def test_known_host_names(host: str, status: int) -> None:
    assert verdict(host=host) == status


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("localhost:8080", "http://localhost:8080", 0),
        ("localhost:8080", "http://localhost:8081", 403),
        ("localhost:8080", "http://127.0.0.1:8080", 403),
        ("localhost:8080", "null", 403),
        ("localhost:8080", "", 403),
        ("localhost:8080", "file://", 403),
        ("localhost:8080", EVIL, 403),
        ("localhost:8080", "https://app.example", 0),
        ("localhost:8080", "http://app.example", 403),
        ("localhost:8080", "https://app.example.evil.example", 403),
        # Behind a balancer that terminates TLS, and ports that a scheme implies.
        ("gateway.example", "https://gateway.example", 0),
        ("gateway.example:443", "https://gateway.example", 0),
        ("gateway.example:80", "http://gateway.example", 0),
        ("gateway.example:8443", "https://gateway.example", 403),
    ],
)
def test_allowed_origins(host: str, origin: str, status: int) -> None:
    for method, kind in (("POST", "http"), ("GET", "http"), ("OPTIONS", "http"), ("GET", "websocket")):
        assert verdict(method, "/topics/t/tail", kind, host=host, origin=origin) == status


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_other_sites_may_only_navigate_to_pages(site: str) -> None:
    for mode, target in itertools.product(("navigate", "no-cors", "cors"), ("document", "iframe", "image", "object")):
        sent = {"sec_fetch_site": site, "sec_fetch_mode": mode, "sec_fetch_dest": target}
        is_link = (mode, target) == ("navigate", "document")
        for path in ("/", "/console", "/console/", "/console/index.js", "/docs"):
            assert verdict("GET", path, **sent) == (0 if is_link else 403)
            assert verdict("POST", path, **sent) == 403
        # A GET takes a record from a group, so it is no page.
        assert verdict("GET", "/topics/t/subscribe", **sent) == 403
        assert verdict("GET", "/metrics", **sent) == 403
    for own in ("none", "same-origin"):
        assert verdict("GET", "/topics/t/subscribe", sec_fetch_site=own) == 0


@pytest.mark.parametrize(
    "kind", ["application/x-www-form-urlencoded", "text/plain; charset=utf-8", "multipart/form-data", ""]
)
def test_form_bodies_are_accepted_from_programs_only(kind: str) -> None:
    body = {"content_length": "5", **({"content_type": kind} if kind else {})}
    assert verdict("POST", **body) == 0
    assert verdict("POST", origin="http://localhost:8080", **body) == 415
    assert verdict("POST", origin="http://localhost:8080", **{**body, "content_length": "0"}) == 0
    assert verdict("POST", origin="http://localhost:8080", content_length="5", content_type="application/json") == 0


def test_valid_origins() -> None:
    assert all(map(is_origin, ("http://a", "https://a.example:8443", "http://[::1]:80")))
    assert not any(map(is_origin, ("*", "a.example", "http://a/", "http://a/b", "ftp://a", "null", "http://")))


@pytest.fixture
def topic(rest: httpx.Client, penstock_topic: str) -> str:
    rest.post(f"/topics/{penstock_topic}/publish", json={"value": "first"}).raise_for_status()
    return penstock_topic


def end_offset(rest: httpx.Client, topic: str) -> int:
    found = rest.get(f"/topics/{topic}/partitions/0/offsets")
    found.raise_for_status()
    return int(found.json()["end_offset"])


def test_pages_of_other_origins_can_neither_write_nor_read(
    gateway: GatewayProcess, rest: httpx.Client, registry: httpx.Client, topic: str
) -> None:
    record = b'{"value": "evil"}'
    v2 = b'{"records": [{"value": "evil"}]}'
    attacks = [
        post(f"/topics/{topic}/publish", record),
        post(f"/topics/{topic}/publish", record, "Content-Type: application/json"),
        post(f"/topics/{topic}/publish", record, "Content-Type: text/plain"),
        post(f"/api/v1/topics/{topic}/messages", record),
        post(f"/topics/{topic}", v2, "Content-Type: application/vnd.kafka.json.v2+json"),
        post("/topics", b'{"name": "evil-topic"}'),
        f"DELETE /topics/{topic} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode(),
        get(f"/topics/{topic}/subscribe?group=evil"),
        get("/metrics"),
        get("/health/ready"),
    ]
    before = end_offset(rest, topic)
    for attack, sign in itertools.product(attacks, (f"Origin: {EVIL}", "Sec-Fetch-Site: cross-site", "Origin: null")):
        head, _, body = attack.partition(b"\r\n\r\n")
        with RawConnection(gateway.rest) as connection:
            # A harmless request first, so that the second one meets a warm connection.
            connection.send(post(f"/topics/{topic}/publish", b"{"))
            assert connection.answer().status == 400
            connection.send(b"%b\r\n%b\r\n\r\n%b" % (head, sign.encode(), body))
            answer = connection.answer()
            assert answer.status == 403
            assert "access-control-allow-origin" not in answer.headers
            assert answer.json()["fix"]
    assert end_offset(rest, topic) == before
    refused = registry.post("/subjects/evil/versions", json={"schema": '"string"'}, headers={"Origin": EVIL})
    assert refused.status_code == 403
    assert "evil" not in registry.get("/subjects").json()


def test_an_unknown_host_name_is_rejected(gateway: GatewayProcess, rest: httpx.Client, topic: str) -> None:
    before = end_offset(rest, topic)
    for address, request in (
        (gateway.rest, post(f"/topics/{topic}/publish", b'{"value": "evil"}', host="evil.example:8080")),
        (gateway.rest, get("/topics", "Origin: http://evil.example:8080", host="evil.example:8080")),
        (gateway.rest, get("/metrics", host="evil.example")),
        (gateway.registry, get("/subjects", host="evil.example")),
    ):
        with RawConnection(address) as connection:
            connection.send(request)
            answer = connection.answer()
            assert answer.status == 421
            assert "--allow-host evil.example" in answer.json()["fix"]
    assert end_offset(rest, topic) == before


@pytest.mark.parametrize("path", ["/status/alive", "/topics/t/publish", "/health/live"])
def test_a_request_has_one_host(gateway: GatewayProcess, path: str) -> None:
    for lines in ("", "Host: localhost\r\nHost: localhost\r\n", "Host: localhost\r\nhost: evil.example\r\n"):
        for method in ("GET", "POST"):
            with RawConnection(gateway.rest) as connection:
                connection.send(f"{method} {path} HTTP/1.1\r\n{lines}Content-Length: 0\r\n\r\n".encode())
                answer = connection.answer()
                assert (answer.status, "Host header" in answer.json()["message"]) == (400, True)
    with RawConnection(gateway.rest) as connection:
        connection.send(b"GET /status/alive HTTP/1.0\r\n\r\n")
        assert connection.answer().status == 200


def test_websockets_are_opened_by_own_pages_and_programs(gateway: GatewayProcess, topic: str) -> None:
    address = f"{gateway.rest.replace('http', 'ws')}/topics/{topic}/tail?offset=earliest"
    for origin in (EVIL, "null", "http://localhost:1"):
        with pytest.raises(InvalidStatus) as refused, connect(address, additional_headers={"Origin": origin}):
            pass
        assert refused.value.response.status_code == 403
        assert json.loads(refused.value.response.body or b"{}")["error_code"] == 40301
    for headers in ({}, {"Origin": gateway.rest}):
        with connect(address, additional_headers=headers) as socket:
            assert json.loads(socket.recv(30))["value"] == "first"


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_readme_works_with_curl(gateway: GatewayProcess, rest: httpx.Client, topic: str) -> None:
    port = gateway.rest.rpartition(":")[2]
    before = end_offset(rest, topic)
    address = f"localhost:{port}/topics/{topic}/publish"
    done = subprocess.run(
        ["curl", "-sS", "-4", "-X", "POST", address, "-d", '{"value": "by curl"}'],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert json.loads(done.stdout)["offset"] == before


@pytest.fixture(scope="module")
def friendly(penstock_cluster: Cluster) -> Iterator[GatewayProcess]:
    """A gateway with allowed hosts and origins."""
    options = (
        "--allow-origin",
        "https://app.example",
        "--allow-host",
        "gateway.example",
        "--trusted-proxy",
        "127.0.0.0/8",
    )
    with GatewayProcess(penstock_cluster.bootstrap_servers, *options) as process:
        yield process


def test_pages_of_allowed_origins(friendly: GatewayProcess, topic: str) -> None:
    preflight = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
    path = f"{friendly.rest}/topics/{topic}/publish"
    allowed = httpx.options(path, headers={"Origin": "https://app.example", **preflight})
    assert allowed.status_code == 200
    assert allowed.headers["access-control-allow-origin"] == "https://app.example"
    assert "POST" in allowed.headers["access-control-allow-methods"]
    assert "content-type" in allowed.headers["access-control-allow-headers"].lower()
    done = httpx.post(path, json={"value": "of a friend"}, headers={"Origin": "https://app.example"})
    assert done.status_code == 200
    assert done.headers["access-control-allow-origin"] == "https://app.example"
    assert "origin" in done.headers["vary"].lower()
    refused = httpx.options(path, headers={"Origin": EVIL, **preflight})
    assert refused.status_code == 403
    assert not [name for name in refused.headers if name.startswith("access-control")]


def test_a_gateway_behind_a_balancer(friendly: GatewayProcess) -> None:
    headers = {"Host": "gateway.example", "X-Forwarded-Proto": "https", "X-Forwarded-For": "203.0.113.7"}
    made = httpx.post(f"{friendly.rest}/consumers/balanced", json={"format": "json"}, headers=headers)
    assert made.json()["base_uri"].startswith("https://gateway.example/consumers/balanced/")
    httpx.delete(
        made.json()["base_uri"].replace("https://gateway.example", friendly.rest), headers=headers
    ).raise_for_status()
    own = {**headers, "Origin": "https://gateway.example"}
    assert httpx.get(f"{friendly.rest}/topics", headers=own).status_code == 200


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--allow-origin", "*", "is not an origin"),
        ("--allow-origin", "https://app.example/", "without a path"),
        ("--allow-host", "*", "is not a host name"),
        ("--allow-host", "a.example:80", "without port"),
        ("--trusted-proxy", "balancer", "is not an address"),
        ("--limit", "everything=1", "there is no limit 'everything'"),
        ("--limit", "tails_max=many", "must be an integer"),
        ("--limit", "head_timeout_s=0", "above 0"),
        ("--limit", "tails_max", "NAME=VALUE"),
    ],
)
def test_invalid_settings(option: str, value: str, message: str) -> None:
    from click.testing import CliRunner

    from penstock.cli.gateway import command

    done: Any = CliRunner().invoke(command, ["-b", "127.0.0.1:1", option, value])
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())
