"""Callers of the gateway sign in, and act as themselves at the brokers."""

from __future__ import annotations

import base64
import json
import ssl
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from websockets.exceptions import ConnectionClosedOK, InvalidStatus
from websockets.sync.client import connect

from support.secure_cluster import ADMIN
from support.secured_gateway import SecuredGateway

PATIENCE_S = 60.0
STRING_SCHEMA = {"schema": '"string"'}


@pytest.fixture(scope="module")
def secured_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredGateway]:
    with SecuredGateway(tmp_path_factory.mktemp("gateway")) as running:
        yield running


@pytest.fixture
def topic(secured_gateway: SecuredGateway) -> str:
    return secured_gateway.topic(f"t-{uuid.uuid4().hex[:10]}")


@pytest.fixture
def user(secured_gateway: SecuredGateway) -> str:
    """A user without rights, whose password is its name and `-secret`."""
    name = f"u-{uuid.uuid4().hex[:10]}"
    secured_gateway.add_user(name, f"{name}-secret")
    return name


def of(running: SecuredGateway, user: str, *, registry: bool = False) -> httpx.Client:
    return running.client(user, f"{user}-secret", registry=registry)


def until(call: Callable[[], httpx.Response], status: int) -> httpx.Response:
    """Repeat a call until it has this status: what controllers decide reaches brokers a moment later."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        answer = call()
        if answer.status_code == status or time.monotonic() > deadline:
            assert answer.status_code == status, answer.text
            return answer
        time.sleep(0.1)


def test_only_public_pages_are_served_without_a_sign_in(secured_gateway: SecuredGateway) -> None:
    with secured_gateway.client() as anonymous:
        for path in ("/", "/docs", "/openapi.json", "/status/alive", "/health/live", "/metrics", "/console/"):
            assert anonymous.get(path).status_code == 200, path
        for path in ("/topics", "//topics", "/docs/../topics", "/v3/clusters", "/api/v1/cluster", "/registry/subjects"):
            assert anonymous.get(secured_gateway.rest + path).status_code in (401, 404), path
        answer = anonymous.get("/topics")
        assert answer.status_code == 401
        assert answer.json()["error_code"] == 40101
        assert answer.headers["WWW-Authenticate"].startswith("Basic realm=")
        assert anonymous.get("/metrics?detail=groups").status_code == 401
        assert anonymous.post("/topics/any/publish", json={"value": "x"}).status_code == 401
    with secured_gateway.client(registry=True) as anonymous:
        assert anonymous.get("/openapi.json").status_code == 200
        answer = anonymous.get("/subjects")
        assert answer.status_code == 401
        assert answer.json()["error_code"] == 40101


def test_a_user_acts_as_itself(secured_gateway: SecuredGateway, topic: str, user: str) -> None:
    publish = {"value": "hello"}
    with of(secured_gateway, user) as caller, secured_gateway.superuser() as admin:
        refused = caller.post(f"/topics/{topic}/publish", json=publish)
        assert refused.status_code == 403
        assert refused.json()["error_code"] == 40301
        assert "TOPIC_AUTHORIZATION_FAILED" in refused.json()["message"]
        assert caller.get("/topics").json() == []
        assert topic in admin.get("/topics").json()
        secured_gateway.allow(user, ["WRITE"], topic)
        until(lambda: caller.post(f"/topics/{topic}/publish", json=publish), 200)
        # The second takes the fast path.
        for _ in range(3):
            assert caller.post(f"/topics/{topic}/publish", json=publish).status_code == 200
        assert caller.get("/topics").json() == [topic]
        v2 = caller.get(f"/topics/{topic}/partitions/0/records?offset=0", headers={"Accept": "application/json"})
        assert (v2.status_code, v2.json()["error_code"]) == (403, 40301)
        v3 = caller.delete(f"/v3/clusters/-/topics/{topic}")
        assert (v3.status_code, v3.json()["error_code"]) == (403, 40301)
        secured_gateway.revoke(user)
        until(lambda: caller.post(f"/topics/{topic}/publish", json=publish), 403)


def test_a_deleted_user_and_a_wrong_password_are_refused(
    secured_gateway: SecuredGateway, topic: str, user: str
) -> None:
    secured_gateway.allow(user, ["READ", "WRITE"], topic)
    with of(secured_gateway, user) as caller:
        until(lambda: caller.get(f"/topics/{topic}/partitions"), 200)
        for password in ("wrong", f"{user}-secre", f"{user}-secret2", ""):
            with secured_gateway.client(user, password) as guesser:
                answer = guesser.get("/topics")
                assert answer.status_code == 401, password
                assert answer.json()["error_code"] == 40101
        with secured_gateway.client(user, "wrong again") as guesser:
            answer = guesser.get("/topics")
            assert answer.status_code == 429
            assert int(answer.headers["Retry-After"]) > 0
        # A client with the password is not locked out by those without it.
        assert caller.get(f"/topics/{topic}/partitions").status_code == 200
        secured_gateway.delete_user(user)
        deadline = time.monotonic() + PATIENCE_S
        while (status := caller.get(f"/topics/{topic}/partitions").status_code) == 200:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert status in (401, 429)


def test_a_bearer_token_has_the_identity_that_the_provider_states(secured_gateway: SecuredGateway, topic: str) -> None:
    name = f"b-{uuid.uuid4().hex[:10]}"
    secured_gateway.allow(name, ["READ", "WRITE"], topic)
    with secured_gateway.client(token=secured_gateway.token(name)) as caller:
        until(lambda: caller.post(f"/topics/{topic}/publish", json={"value": "x"}), 200)
        assert caller.get("/topics").json() == [topic]
        made = caller.post("/consumers/group-of-bearer", json={"name": "one"})
        assert made.status_code == 200
    # A newer token of the same caller finds what the older one has made.
    with secured_gateway.client(token=secured_gateway.token(name, 900)) as caller:
        path = "/consumers/group-of-bearer/instances/one"
        assert caller.get(f"{path}/subscription").status_code == 200
        assert caller.delete(path).status_code == 204
    header, body, _ = secured_gateway.token(ADMIN).split(".")
    unsigned = base64.urlsafe_b64encode(b'{"alg":"none"}').rstrip(b"=").decode()
    forged = [f"{header}.{body}.AAAA", f"{unsigned}.{body}.", secured_gateway.token(ADMIN, -60), "nonsense"]
    forged.append(secured_gateway.token(ADMIN, iss="https://elsewhere.example"))
    for token in forged[:4]:
        with secured_gateway.client(token=token) as caller:
            assert caller.get("/topics").status_code in (401, 429)


def test_a_certificate_is_its_owner(secured_gateway: SecuredGateway, topic: str) -> None:
    name = f"c-{uuid.uuid4().hex[:10]}"
    with secured_gateway.client(certificate=name) as caller:
        assert caller.get("/topics").json() == []
        assert caller.post(f"/topics/{topic}/publish", json={"value": "x"}).status_code == 403
        secured_gateway.allow(name, ["WRITE"], topic)
        until(lambda: caller.post(f"/topics/{topic}/publish", json={"value": "x"}), 200)
        assert caller.get("/topics").json() == [topic]
        # What a browser does with its user's certificate takes the token of a session.
        own = str(caller.base_url).rstrip("/")
        browser = caller.post(f"/topics/{topic}/publish", json={"value": "x"}, headers={"Origin": own})
        assert (browser.status_code, browser.json()["error_code"]) == (403, 40303)


def test_what_a_caller_opened_is_its_own(secured_gateway: SecuredGateway, topic: str, user: str) -> None:
    other = f"{user}-2"
    secured_gateway.add_user(other, f"{other}-secret")
    for name in (user, other):
        secured_gateway.allow(name, ["READ", "WRITE"], topic)
        secured_gateway.allow(name, ["READ"], "shared", "GROUP")
    with of(secured_gateway, user) as one, of(secured_gateway, other) as two:
        until(lambda: one.get(f"/topics/{topic}/partitions"), 200)
        until(lambda: two.get(f"/topics/{topic}/partitions"), 200)
        assert one.post("/consumers/shared", json={"name": "mine"}).status_code == 200
        path = "/consumers/shared/instances/mine"
        assert one.get(f"{path}/subscription").status_code == 200
        for answer in (
            two.get(f"{path}/subscription"),
            two.get(f"{path}/records"),
            two.post(f"{path}/subscription", json={"topics": [topic]}),
            two.delete(path),
        ):
            assert (answer.status_code, answer.json()["error_code"]) == (404, 40403)
        assert one.delete(path).status_code == 204
        # The same Idempotency-Key of two callers is two keys.
        headers = {"Idempotency-Key": "one-key"}
        first = one.post(f"/topics/{topic}/publish", json={"value": "x"}, headers=headers)
        second = two.post(f"/topics/{topic}/publish", json={"value": "y"}, headers=headers)
        assert (first.status_code, second.status_code) == (200, 200)
        assert first.json()["offset"] != second.json()["offset"]
        again = one.post(f"/topics/{topic}/publish", json={"value": "x"}, headers=headers)
        assert again.json()["offset"] == first.json()["offset"]
        # A message is acknowledged by a client that has its id and may read for the group, and by no other.
        given = until(lambda: one.get(f"/topics/{topic}/subscribe?group=shared&offset=earliest&timeout=5000"), 200)
        outsider = f"{user}-3"
        secured_gateway.add_user(outsider, f"{outsider}-secret")
        secured_gateway.allow(outsider, ["READ"], topic)
        with of(secured_gateway, outsider) as three:
            until(lambda: three.get(f"/topics/{topic}/partitions"), 200)
            for verb in ("ack", "nack", "extend"):
                refused = three.post(f"/topics/{topic}/{verb}", json={"messageId": given.json()["messageId"]})
                assert refused.status_code == 403, refused.text
            assert three.get(f"/topics/{topic}/subscribe?group=shared&timeout=0").status_code == 403
        acknowledged = two.post(f"/topics/{topic}/ack", json={"messageId": given.json()["messageId"]})
        assert acknowledged.status_code == 200


def test_names_in_headers_do_not_authenticate(secured_gateway: SecuredGateway) -> None:
    names = {
        "X-Forwarded-User": ADMIN,
        "X-Remote-User": ADMIN,
        "X-SSL-Client-CN": ADMIN,
        "X-Client-Cert": f"CN={ADMIN}",
        "penstock.principal": f"User:{ADMIN}",
        "penstock.certificate": f"User:{ADMIN}",
        "Cookie": f"__Host-penstock={ADMIN}; penstock-session={ADMIN}",
    }
    with secured_gateway.client() as anonymous:
        for name, value in names.items():
            assert anonymous.get("/topics", headers={name: value}).status_code == 401, name
        own = base64.b64encode(b"admin:admin-secret").decode()
        twice = [("Authorization", f"Basic {own}"), ("Authorization", "Bearer x")]
        assert anonymous.get("/topics", headers=twice).status_code == 400
        for odd in ("Basic", "Basic !!!", "Basic YWRtaW4=", f"Digest {own}", "Bearer", f"Basic {own} {own}"):
            assert anonymous.get("/topics", headers={"Authorization": odd}).status_code == 401, odd


def test_subjects_follow_the_access_lists_of_their_topics(
    secured_gateway: SecuredGateway, topic: str, user: str
) -> None:
    subject = f"{topic}-value"
    with of(secured_gateway, user, registry=True) as caller, secured_gateway.superuser(registry=True) as admin:
        refused = caller.post(f"/subjects/{subject}/versions", json=STRING_SCHEMA)
        assert (refused.status_code, refused.json()["error_code"]) == (403, 40301)
        schema_id = admin.post(f"/subjects/{subject}/versions", json=STRING_SCHEMA).json()["id"]
        assert caller.get("/subjects").json() == []
        for path in (f"/subjects/{subject}/versions", f"/subjects/{subject}/versions/1", f"/schemas/ids/{schema_id}"):
            assert caller.get(path).status_code == 403, path
        secured_gateway.allow(user, ["READ"], topic)
        until(lambda: caller.get(f"/schemas/ids/{schema_id}"), 200)
        assert caller.get("/subjects").json() == [subject]
        assert caller.get(f"/contexts/.other/subjects/{subject}/versions").json()["error_code"] == 40401
        assert caller.get(f"/contexts/.other/subjects/x{subject}/versions").json()["error_code"] == 40301
        for refused in (
            caller.post(f"/subjects/{subject}/versions", json=STRING_SCHEMA),
            caller.delete(f"/subjects/{subject}"),
            caller.put(f"/config/{subject}", json={"compatibility": "NONE"}),
            caller.put("/config", json={"compatibility": "NONE"}),
            caller.put("/mode", json={"mode": "READONLY"}),
            caller.post("/subjects/com.example.Order/versions", json=STRING_SCHEMA),
        ):
            assert (refused.status_code, refused.json()["error_code"]) == (403, 40301)
        secured_gateway.allow(user, ["WRITE"], topic)
        until(lambda: caller.post(f"/subjects/{subject}/versions", json=STRING_SCHEMA), 200)
        assert caller.delete(f"/subjects/{subject}").status_code == 403
        # Before a topic exists, its access lists count as well.
        secured_gateway.allow(user, ["WRITE"], f"{topic}-later")
        until(lambda: caller.post(f"/subjects/{topic}-later-key/versions", json=STRING_SCHEMA), 200)
    with of(secured_gateway, user) as caller:
        assert caller.get(f"/registry/subjects/{subject}/versions").status_code == 200
        assert caller.delete(f"/registry/subjects/{subject}").status_code == 403


def test_a_stream_ends_with_its_users_rights(secured_gateway: SecuredGateway, topic: str, user: str) -> None:
    context = ssl.create_default_context(cafile=str(secured_gateway.cluster.ca_path))
    address = secured_gateway.rest.replace("https://", "wss://") + f"/topics/{topic}/tail?offset=earliest"
    with pytest.raises(InvalidStatus) as refused:
        connect(address, ssl=context).close()
    assert refused.value.response.status_code == 401
    secured_gateway.allow(user, ["READ"], topic)
    with of(secured_gateway, user) as caller, secured_gateway.superuser() as admin:
        until(lambda: caller.get(f"/topics/{topic}/partitions"), 200)
        own = base64.b64encode(f"{user}:{user}-secret".encode()).decode()
        with connect(address, ssl=context, additional_headers={"Authorization": f"Basic {own}"}) as socket:
            assert admin.post(f"/topics/{topic}/publish", json={"value": "x"}).status_code == 200
            assert json.loads(socket.recv(PATIENCE_S))["value"] == "x"
            secured_gateway.delete_user(user)
            with pytest.raises(ConnectionClosedOK):
                socket.recv(PATIENCE_S)


def test_records_that_were_fetched_are_not_returned_after_the_right_is_revoked(
    secured_gateway: SecuredGateway, topic: str, user: str
) -> None:
    secured_gateway.allow(user, ["READ"], topic)
    secured_gateway.allow(user, ["READ"], "fetching", "GROUP")
    accept = {"Accept": "application/vnd.kafka.binary.v2+json"}
    with of(secured_gateway, user) as caller, secured_gateway.superuser() as admin:
        for number in range(20):
            assert admin.post(f"/topics/{topic}/publish", json={"value": f"{number}"}).status_code == 200
        body = {"name": "one", "auto.offset.reset": "earliest"}
        until(lambda: caller.get(f"/topics/{topic}/partitions"), 200)
        assert caller.post("/consumers/fetching", json=body).status_code == 200
        path = "/consumers/fetching/instances/one"
        assert caller.post(f"{path}/subscription", json={"topics": [topic]}).status_code == 204
        deadline = time.monotonic() + PATIENCE_S
        while not (first := caller.get(f"{path}/records?max_bytes=1&timeout=2000", headers=accept)).json():
            assert time.monotonic() < deadline, first.text
        secured_gateway.revoke(user)
        until(lambda: caller.get(f"{path}/records?max_bytes=1", headers=accept), 403)


def test_callers_are_limited_one_by_one(tmp_path: Path) -> None:
    limits = ["caller_requests_per_s_max=5", "caller_bytes_per_s_max=20000"]
    arguments = [word for limit in limits for word in ("--limit", limit)]
    with SecuredGateway(tmp_path, *arguments, "--role", "ingress") as running:
        running.add_user("other", "other-secret")
        running.allow("other", ["WRITE"], running.topic("limited"))
        with running.superuser() as one, of(running, "other") as two:
            until(lambda: two.post("/topics/limited/publish", json={"value": "x"}), 200)
            answers = [one.post("/topics/limited/publish", json={"value": "x"}) for _ in range(30)]
            refused = [answer for answer in answers if answer.status_code == 429]
            assert refused
            assert refused[0].json()["error_code"] == 42903
            assert int(refused[0].headers["Retry-After"]) > 0
            until(lambda: two.post("/topics/limited/publish", json={"value": "y" * 60_000}), 200)
            heavy = two.post("/topics/limited/publish", json={"value": "x"})
            assert (heavy.status_code, heavy.json()["error_code"]) == (429, 42903)
            assert "caller_bytes_per_s_max" in heavy.json()["message"]
            elsewhere = until(lambda: one.get("/topics/limited/subscribe?group=g"), 404)
            assert "--role egress" in elsewhere.json()["message"]
            assert one.get("/health/live").status_code == 200
            assert one.get("/metrics").status_code == 200
        with running.superuser(registry=True) as one:
            assert "--role registry" in until(lambda: one.get("/subjects"), 404).json()["message"]


def test_the_brokers_quotas_hold_a_caller_back(secured_gateway: SecuredGateway, topic: str, user: str) -> None:
    secured_gateway.allow(user, ["WRITE"], topic)
    properties = secured_gateway.directory / "quota.properties"
    own = secured_gateway.cluster.librdkafka()
    properties.write_text("".join(f"{name}={value}\n" for name, value in own.items()))
    command = [sys.executable, "-m", "penstock", "security", "quota", "set", "--user", user, "--produce", "20KB/s"]
    subprocess.run([*command, "--command-config", str(properties)], check=True, timeout=60, capture_output=True)
    with of(secured_gateway, user) as caller, secured_gateway.superuser() as admin:
        until(lambda: caller.post(f"/topics/{topic}/publish", json={"value": "x"}), 200)
        large = {"value": "x" * 60_000}
        throttled = until(lambda: caller.post(f"/topics/{topic}/publish", json=large), 429)
        assert throttled.json()["error_code"] == 42905
        assert int(throttled.headers["Retry-After"]) > 0
        assert admin.post(f"/topics/{topic}/publish", json=large).status_code == 200
