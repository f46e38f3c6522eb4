"""Single messages over share groups: any gateway takes any acknowledgement, and nothing is lost with a gateway."""

from __future__ import annotations

import socket
import subprocess
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.local.layout import free_ports
from penstock.testing import Cluster
from support.gateway_process import GatewayProcess
from support.round_robin import RoundRobin
from support.share_member import set_group, until
from support.tools import REPOSITORY, nginx_missing
from support.wire_client import WireClient, records_in

SETTINGS = {"group.share.min.record.lock.duration.ms": "1000"}
LOCK_MS = 1_500


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def gateways(cluster: Cluster) -> Iterator[tuple[httpx.Client, httpx.Client]]:
    """Clients of two gateways."""
    with ExitStack() as stack:
        processes = [stack.enter_context(GatewayProcess(cluster.bootstrap_servers)) for _ in range(2)]
        one, two = (stack.enter_context(httpx.Client(base_url=each.rest, timeout=90)) for each in processes)
        yield one, two


@pytest.fixture
def topic(cluster: Cluster) -> str:
    return cluster.create_topic()


@pytest.fixture
def group() -> str:
    return f"workers-{uuid.uuid4().hex[:8]}"


def configure(cluster: Cluster, group: str, **settings: str) -> None:
    with WireClient(cluster.bootstrap_servers) as client:
        set_group(client, group, {name.replace("_", "."): value for name, value in settings.items()})


def publish(gateway: httpx.Client, topic: str, *values: str) -> None:
    for value in values:
        gateway.post(f"/topics/{topic}/publish", json={"key": f"key of {value}", "value": value}).raise_for_status()


def receive(gateway: httpx.Client, topic: str, group: str, timeout_ms: int = 30_000) -> Any:
    answer = gateway.get(f"/topics/{topic}/subscribe", params={"group": group, "timeout": timeout_ms})
    assert answer.status_code in (200, 204), answer.text
    return answer.json() if answer.status_code == 200 else None


def settle(gateway: httpx.Client, topic: str, verb: str, message: Any, **more: Any) -> httpx.Response:
    return gateway.post(f"/topics/{topic}/{verb}", json={"messageId": message["messageId"], **more})


def test_any_gateway_settles_messages_of_another(
    gateways: tuple[httpx.Client, httpx.Client], topic: str, group: str
) -> None:
    one, two = gateways
    publish(one, topic, "a", "b")
    first, second = (receive(one, topic, group) for _ in range(2))
    assert [(each["value"], each["attempt"], each["lockMs"]) for each in (first, second)] == [
        ("a", 1, 30_000),
        ("b", 1, 30_000),
    ]
    assert receive(two, topic, group, 0) is None
    assert settle(two, topic, "ack", first).json() == {"acknowledged": True, "messageId": first["messageId"]}
    assert settle(two, topic, "extend", second).json()["lockMs"] == 30_000
    assert settle(two, topic, "nack", second).json()["deadLetter"] is False
    again = receive(two, topic, group)
    assert (again["value"], again["attempt"]) == ("b", 2)
    # A settled message, and an earlier attempt of a redelivered one, cannot be settled again.
    for gateway in gateways:
        for message, why in ((first, "settled already"), (second, "delivered again")):
            for verb in ("ack", "nack", "extend"):
                refused = settle(gateway, topic, verb, message)
                assert (refused.status_code, refused.json()["error_code"]) == (409, 40905), refused.text
                assert why in refused.json()["message"]
    assert settle(one, topic, "ack", again).status_code == 200
    assert receive(one, topic, group, 300) is None


def test_requests_of_one_client_may_go_to_any_gateway(
    cluster: Cluster, gateways: tuple[httpx.Client, httpx.Client], group: str
) -> None:
    topic = cluster.create_topic(partitions=2)
    backends = [(each.base_url.host, each.base_url.port or 80) for each in gateways]
    with (
        RoundRobin(backends) as balancer,
        httpx.Client(base_url=balancer.url, timeout=90, headers={"Connection": "close"}) as client,
    ):
        seen = set()
        for number in range(10):
            publish(client, topic, str(number))
            message = receive(client, topic, group)
            assert settle(client, topic, "extend", message).status_code == 200
            assert settle(client, topic, "ack", message).status_code == 200
            seen.add(message["value"])
            # An odd number of requests, so that each kind goes to both.
            client.get("/status/alive").raise_for_status()
        assert seen == {str(number) for number in range(10)}
        assert [*balancer.served.values()] == [25, 25]


@pytest.mark.skipif(nginx_missing() is not None, reason=nginx_missing() or "")
def test_the_example_for_nginx_works_as_it_is_on_the_page(
    cluster: Cluster, gateways: tuple[httpx.Client, httpx.Client], group: str, tmp_path: Path
) -> None:
    topic = cluster.create_topic()
    page = (REPOSITORY / "docs" / "rest.md").read_text("utf-8").partition("## Behind a load balancer")[2]
    example = page.split("```")[1]
    (port,) = free_ports(1)
    for host, gateway in zip(("10.0.0.11", "10.0.0.12"), gateways, strict=True):
        example = example.replace(f"{host}:8080", f"127.0.0.1:{gateway.base_url.port}")
    example = example.replace("listen 80;", f"listen 127.0.0.1:{port};")
    places = "".join(f"{name}_temp_path {tmp_path};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    config = tmp_path / "nginx.conf"
    config.write_text(
        f"pid {tmp_path}/nginx.pid;\nerror_log stderr;\nevents {{}}\n"
        f"http {{\naccess_log {tmp_path}/access.log;\n{places}{example}}}\n"
    )
    nginx = subprocess.Popen(["nginx", "-c", str(config), "-g", "daemon off;"])
    try:
        with httpx.Client(base_url=f"http://localhost:{port}", timeout=90) as client:
            until(lambda: answers(client))
            for number in range(4):
                publish(client, topic, str(number))
                message = receive(client, topic, group)
                assert settle(client, topic, "extend", message).status_code == 200
                assert settle(client, topic, "ack", message).status_code == 200
                assert message["value"] == str(number)
                client.get("/status/alive").raise_for_status()
    finally:
        nginx.terminate()
        nginx.wait(30)


def answers(client: httpx.Client) -> bool:
    try:
        return client.get("/status/alive").status_code == 200
    except httpx.TransportError:
        return False


def test_expired_lock_leads_to_another_attempt(
    cluster: Cluster, gateways: tuple[httpx.Client, httpx.Client], topic: str, group: str
) -> None:
    one, two = gateways
    configure(cluster, group, share_record_lock_duration_ms=str(LOCK_MS))
    publish(one, topic, "slow")
    first = receive(one, topic, group)
    assert first["lockMs"] == LOCK_MS
    second = receive(two, topic, group)
    assert (second["value"], second["attempt"]) == ("slow", 2)
    late = settle(one, topic, "ack", first)
    assert late.status_code == 409
    assert "delivered again" in late.json()["message"]
    assert settle(one, topic, "ack", second).status_code == 200


def test_records_locked_by_a_killed_gateway_are_redelivered(
    cluster: Cluster, gateways: tuple[httpx.Client, httpx.Client], topic: str, group: str
) -> None:
    one, _ = gateways
    configure(cluster, group, share_record_lock_duration_ms=str(LOCK_MS))
    publish(one, topic, "a", "b", "c")
    with GatewayProcess(cluster.bootstrap_servers) as third, httpx.Client(base_url=third.rest, timeout=90) as client:
        held = [receive(client, topic, group) for _ in range(3)]
        third.kill()
    # One of them was done: the worker's acknowledgement goes to a gateway that is there.
    acknowledged = settle(one, topic, "ack", held[1])
    back = [receive(one, topic, group) for _ in range(2 if acknowledged.status_code == 200 else 3)]
    expected = {"a", "c"} | ({"b"} if acknowledged.status_code == 409 else set())
    assert {(each["value"], each["attempt"]) for each in back} == {(value, 2) for value in expected}


def test_rejected_message_is_dead_lettered(
    cluster: Cluster, gateways: tuple[httpx.Client, httpx.Client], topic: str, group: str
) -> None:
    one, two = gateways
    letters = f"dlq.{topic}"
    configs = {"errors.deadletterqueue.group.enable": "true"}
    one.post("/topics", json={"name": letters, "partitions": 1, "configs": configs}).raise_for_status()
    configure(
        cluster,
        group,
        errors_deadletterqueue_topic_name=letters,
        errors_deadletterqueue_copy_record_enable="true",
    )
    publish(one, topic, "bad")
    assert settle(two, topic, "nack", receive(one, topic, group), deadLetter=True).json()["deadLetter"] is True

    def letter() -> Any:
        with WireClient(cluster.bootstrap_servers) as client:
            return records_in(client.fetch(letters, 0).records)

    until(letter)
    (found,) = letter()
    assert (found.key, found.value) == (b"key of bad", b"bad")
    assert dict(found.headers)["__dlq.errors.message"] == b"Offset rejected by client."
    # One whose record is not copied into its letter; both come back as they were.
    configure(cluster, group, errors_deadletterqueue_copy_record_enable="false")
    publish(one, topic, "worse")
    assert settle(one, topic, "nack", receive(two, topic, group), deadLetter=True).status_code == 200
    until(lambda: len(letter()) == 2)
    replayed = one.post(f"/api/v1/dead-letters/{letters}/replay", json={"partition": 0, "offset": 0, "count": 2})
    assert [each["topic"] for each in replayed.raise_for_status().json()["replayed"]] == [topic] * 2
    again = [receive(two, topic, group) for _ in range(2)]
    assert [(each["key"], each["value"], each["headers"], each["attempt"]) for each in again] == [
        ("key of bad", "bad", {}, 1),
        ("key of worse", "worse", {}, 1),
    ]


def test_each_waiting_caller_gets_a_different_record(
    cluster: Cluster, gateways: tuple[httpx.Client, httpx.Client], group: str
) -> None:
    topic = cluster.create_topic(partitions=3)
    count = 20
    with ThreadPoolExecutor(count) as pool:
        waiting = [pool.submit(receive, gateways[number % 2], topic, group, 60_000) for number in range(count)]
        # They wait for records that do not exist yet.
        until(lambda: receive(gateways[0], topic, group, 0) is None)
        publish(gateways[0], topic, *(f"{number:02}" for number in range(count)))
        messages = [each.result() for each in waiting]
    assert sorted(each["value"] for each in messages) == [f"{number:02}" for number in range(count)]
    assert {each["attempt"] for each in messages} == {1}
    for number, message in enumerate(messages):
        assert settle(gateways[number % 2], topic, "ack", message).status_code == 200


def test_a_record_arrives_at_once(gateways: tuple[httpx.Client, httpx.Client], topic: str, group: str) -> None:
    one, two = gateways
    waits_s = []
    with ThreadPoolExecutor(1) as pool:
        # A busy machine may be slow now and then; one that polls is slow nearly always.
        while len(waits_s) < 10 and min(waits_s, default=1.0) > 0.3:
            waiting = pool.submit(receive, one, topic, group, 60_000)
            time.sleep(0.3)
            publish(two, topic, "a")
            began = time.monotonic()
            message = waiting.result()
            waits_s.append(time.monotonic() - began)
            assert settle(two, topic, "ack", message).status_code == 200
    assert min(waits_s) <= 0.3


def test_no_record_is_locked_for_a_disconnected_caller(
    gateways: tuple[httpx.Client, httpx.Client], topic: str, group: str
) -> None:
    one, two = gateways
    assert receive(one, topic, group, 0) is None
    with socket.create_connection((one.base_url.host, one.base_url.port or 80)) as gone:
        gone.sendall(
            f"GET /topics/{topic}/subscribe?group={group}&timeout=60000 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        )
        time.sleep(0.5)
    publish(two, topic, "a")
    # The lock would last for 30 s.
    began = time.monotonic()
    message = receive(two, topic, group)
    assert (message["value"], message["attempt"] <= 2) == ("a", True)
    assert time.monotonic() - began < 15


def test_groups_of_another_type_are_refused(
    gateways: tuple[httpx.Client, httpx.Client], topic: str, group: str
) -> None:
    one, _ = gateways
    instance = one.post(f"/consumers/{group}", json={"name": "me", "format": "json"}).raise_for_status().json()
    path = httpx.URL(instance["base_uri"]).path
    one.post(f"{path}/subscription", json={"topics": [topic]}).raise_for_status()

    def refused() -> bool:
        one.get(f"{path}/records", params={"timeout": 200}, headers={"accept": "application/vnd.kafka.json.v2+json"})
        answer = one.get(f"/topics/{topic}/subscribe", params={"group": group, "timeout": 0})
        return answer.status_code == 409 and "consumer group" in answer.json()["message"]

    until(refused)


def test_the_console_shows_share_groups(gateways: tuple[httpx.Client, httpx.Client], topic: str, group: str) -> None:
    one, two = gateways
    publish(one, topic, "a", "b", "c")
    message = receive(one, topic, group)
    assert settle(two, topic, "ack", message).status_code == 200
    (row,) = two.get("/api/v1/consumer-groups", params={"search": group}).raise_for_status().json()["groups"]
    assert row == {"name": group, "state": "stable", "type": "share", "lag": 2}
    detail = two.get(f"/api/v1/consumer-groups/{group}").raise_for_status().json()
    assert (detail["type"], detail["state"], detail["lag"]) == ("share", "stable", 2)
    assert [(each["client_id"], each["partitions"]) for each in detail["members"]] == [("penstock-gateway", 1)]
    assert detail["partitions"] == [
        {"topic": topic, "partition": 0, "committed": 1, "end": 3, "lag": 2, "member": None}
    ]
    assert two.get(f"/api/v1/consumer-groups/{group}-not").status_code == 404


def test_invalid_message_ids_cannot_be_settled(
    gateways: tuple[httpx.Client, httpx.Client], topic: str, group: str
) -> None:
    one, two = gateways
    publish(one, topic, "a")
    message = receive(one, topic, group)
    replayed = one.get(f"/topics/{topic}/subscribe", params={"offset": 0}).json()
    assert (replayed["value"], replayed["messageId"]) == ("a", "0-0")
    held = message["messageId"]
    place, member, of_group = held.split("-", 2)[2].partition(".")[2].split("-")
    wrong = [
        ("0-0", 400),
        ("nonsense", 400),
        (held.replace("0-0-1.", "0-0-99999."), 400),
        (held.replace("0-0-1.", "9-0-1."), 404),
        (held.replace("0-0-1.", "0-7-1."), 409),
        (held.replace("0-0-1.", "0-0-2."), 409),
        (f"0-0-1.{int(place, 16) ^ 1:x}-{member}-{of_group}", 409),
        (f"0-0-1.{place}-{uuid.uuid4().hex}-{of_group}", 409),
    ]
    for message_id, status in wrong:
        answer = two.post(f"/topics/{topic}/ack", json={"messageId": message_id})
        assert answer.status_code == status, (message_id, answer.text)
    assert settle(two, topic, "ack", message).status_code == 200
