"""Requests with an upgrade, and requests of ambiguous length: request smuggling is not possible."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import httpx
import pytest
from websockets.sync.client import connect

from support.gateway_process import GatewayProcess
from support.raw_http import RawConnection, get, post

H2C = (
    "Connection: Upgrade, HTTP2-Settings",
    "Upgrade: h2c",
    "HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA",
)
JAVA = """
import java.net.URI;
import java.net.http.*;

public class Post {
    public static void main(String[] arguments) throws Exception {
        HttpClient client = HttpClient.newHttpClient();
        for (int i = 0; i < 3; i++) {
            HttpRequest request = HttpRequest.newBuilder(URI.create(arguments[0]))
                .header("Content-Type", "application/json")
                .POST(HttpRequest.BodyPublishers.ofString("{\\"value\\": \\"by Java " + i + "\\"}")).build();
            HttpResponse<String> answer = client.send(request, HttpResponse.BodyHandlers.ofString());
            System.out.println(answer.statusCode() + " " + answer.version() + " " + answer.body());
        }
    }
}
"""


@pytest.fixture
def topic(rest: httpx.Client, penstock_topic: str) -> str:
    # A gateway learns of a topic with the first request for it.
    rest.get(f"/topics/{penstock_topic}/partitions").raise_for_status()
    return penstock_topic


@pytest.mark.parametrize("pieces", ["at once", "body apart", "byte by byte"])
def test_an_upgrade_to_h2c_is_ignored_and_the_body_read(
    gateway: GatewayProcess, rest: httpx.Client, topic: str, pieces: str
) -> None:
    # The body is a whole request, which must not be carried out.
    hidden = post(f"/topics/{topic}/publish", b'{"value": "smuggled"}')
    path = f"/api/v1/topics/{topic}/messages"
    whole = post(path, hidden, *H2C, "Content-Type: application/octet-stream")
    head, _, body = whole.partition(b"\r\n\r\n")
    cuts = {"at once": [whole], "body apart": [head + b"\r\n\r\n", body], "byte by byte": [bytes([b]) for b in whole]}
    with RawConnection(gateway.rest) as connection:
        for _ in range(2):
            for piece in cuts[pieces]:
                connection.send(piece)
            answer = connection.answer()
            assert (answer.status, answer.json()["topic"]) == (200, topic)
            assert "upgrade" not in answer.headers
        # The connection continues as HTTP/1.1, and nothing else was answered.
        connection.send(get("/status/alive"))
        assert connection.answer().json() == {"status": "alive"}
        assert connection.is_silent(0.3)
    found = rest.get(f"/topics/{topic}/partitions/0/offsets").json()
    assert found["end_offset"] == 2


@pytest.mark.parametrize(
    "upgrade",
    [
        ("Connection: upgrade", "Upgrade: h2c"),
        ("Connection: Upgrade", "Upgrade: h2c, websocket"),
        ("Connection: keep-alive, Upgrade", "Upgrade: TLS/1.0"),
        # WebSockets are opened by a GET without a body.
        ("Connection: Upgrade", "Upgrade: websocket"),
    ],
)
def test_any_upgrade_of_a_request_with_a_body_is_ignored(
    gateway: GatewayProcess, topic: str, upgrade: tuple[str]
) -> None:
    body = b'{"value": "v"}'
    chunked = f"POST /topics/{topic}/publish HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
    chunked += "\r\n".join([*upgrade, "", f"{len(body):x}", body.decode(), "0", "", ""])
    with RawConnection(gateway.rest) as connection:
        connection.send(post(f"/topics/{topic}/publish", body, *upgrade) + chunked.encode())
        assert [connection.answer().status for _ in range(2)] == [200, 200]
        connection.send(get("/status/alive", *upgrade[:-1], "Upgrade: h2c", "Connection: close"))
        answer = connection.answer()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert connection.rest() == b""


def test_the_registry_reads_bodies_too(gateway: GatewayProcess, subject: str) -> None:
    with RawConnection(gateway.registry) as connection:
        connection.send(post(f"/subjects/{subject}/versions", b'{"schema": "\\"string\\""}', *H2C))
        answer = connection.answer()
        assert answer.status == 200
        assert answer.json()["id"] > 0


def test_connect_requests_are_rejected(gateway: GatewayProcess) -> None:
    with RawConnection(gateway.rest) as connection:
        connection.send(b"CONNECT evil.example:443 HTTP/1.1\r\nHost: localhost\r\n\r\n" + get("/status/alive"))
        assert connection.answer().status in (400, 405)
        assert connection.rest() == b""


def test_websockets_still_work(gateway: GatewayProcess, rest: httpx.Client, topic: str) -> None:
    rest.post(f"/topics/{topic}/publish", json={"value": "v"}).raise_for_status()
    with connect(f"{gateway.rest.replace('http', 'ws')}/topics/{topic}/tail?offset=earliest") as socket:
        assert json.loads(socket.recv(30))["value"] == "v"


@pytest.mark.parametrize(
    "headers",
    [
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 5",
        "Content-Length: 5\r\nContent-Length: 6",
        "Content-Length: 5\r\nContent-Length: 5",
        "Content-Length: 5, 5",
        "Content-Length: +5",
        "Content-Length: -5",
        "Content-Length: 0x5",
        "Content-Length: 5 5",
        "Content-Length: 99999999999999999999",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: identity",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        "Transfer-Encoding : chunked",
        " Transfer-Encoding: chunked",
        "Transfer-Encoding:\x0bchunked",
        "Folded: a\r\n b\r\nContent-Length: 5",
        "Content-Length: 5\nX: y",
        "X: a\rContent-Length: 5",
        "X: a\x00b\r\nContent-Length: 5",
        "Content-Length",
    ],
)
def test_a_request_with_an_ambiguous_length_is_rejected(
    gateway: GatewayProcess, rest: httpx.Client, topic: str, headers: str
) -> None:
    hidden = post(f"/topics/{topic}/publish", b'{"value": "smuggled"}')
    head = f"POST /topics/{topic}/publish HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n\r\n"
    with RawConnection(gateway.rest) as connection:
        connection.send(head.encode("latin-1") + b"0\r\n\r\n" + hidden)
        answer = connection.answer()
        assert (answer.status, answer.headers["connection"]) == (400, "close")
        assert connection.rest() == b""
    assert rest.get(f"/topics/{topic}/partitions/0/offsets").json()["end_offset"] == 0


@pytest.mark.parametrize(
    "body",
    [
        "5\n12345\r\n0\r\n\r\n",
        "5\r\n12345\n0\n\n",
        "5\r\n1234567\r\n0\r\n\r\n",
        "-5\r\n12345\r\n0\r\n\r\n",
        "0x5\r\n12345\r\n0\r\n\r\n",
        "5 \r\n12345\r\n0\r\n\r\n",
        "ffffffffffffffffff\r\n12345\r\n0\r\n\r\n",
        "5;a\nb\r\n12345\r\n0\r\n\r\n",
    ],
)
def test_ambiguous_chunks_are_rejected(gateway: GatewayProcess, topic: str, body: str) -> None:
    head = f"POST /topics/{topic}/publish HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    with RawConnection(gateway.rest) as connection:
        connection.send((head + body).encode() + get("/status/alive"))
        assert connection.answer().status == 400
        assert connection.rest() == b""


def test_chunk_extensions_and_trailers_are_ignored(gateway: GatewayProcess, rest: httpx.Client, topic: str) -> None:
    body = '{"value": "v"}'
    head = f"POST /topics/{topic}/publish HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunks = f'{len(body):x};a="b"\r\n{body}\r\n0\r\nIdempotency-Key: k\r\nHost: evil.example\r\nOrigin: null\r\n\r\n'
    with RawConnection(gateway.rest) as connection:
        for _ in range(2):
            connection.send((head + chunks).encode())
            answer = connection.answer()
            assert answer.status == 200
            assert "idempotent-replayed" not in answer.headers
    assert rest.get(f"/topics/{topic}/partitions/0/offsets").json()["end_offset"] == 2


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_with_http2_upgrade_posts(gateway: GatewayProcess, rest: httpx.Client, topic: str) -> None:
    features = subprocess.run(["curl", "--version"], capture_output=True, text=True, timeout=60, check=True).stdout
    if "HTTP2" not in features:
        pytest.skip("this curl has no HTTP/2")
    address = f"{gateway.rest}/topics/{topic}/publish"
    words = ["curl", "-sS", "--http2", "-d", '{"value": "by curl"}', address]
    # Twice on one connection: the second is read from where the first has ended.
    done = subprocess.run([*words, "--next", *words[1:]], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.count('"messageId"') == 2
    assert rest.get(f"/topics/{topic}/partitions/0/offsets").json()["end_offset"] == 2


@pytest.mark.skipif(shutil.which("java") is None, reason="Java is not installed")
def test_java_posts_with_its_own_client(gateway: GatewayProcess, topic: str, tmp_path: Path) -> None:
    source = tmp_path / "Post.java"
    source.write_text(JAVA)
    done = subprocess.run(
        ["java", "-Xmx64m", str(source), f"{gateway.rest}/topics/{topic}/publish"],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    if "error: compiler not found" in done.stderr.lower() or "jdk.compiler" in done.stderr:
        pytest.skip("this Java has no compiler")
    lines = done.stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [["200", "HTTP_1_1"]] * 3, done.stderr
    assert [json.loads(line.split(maxsplit=2)[2])["offset"] for line in lines] == [0, 1, 2]
