"""kafkajs, Kafka's Java client and `penstock` by every mechanism over TLS; each fails as it should, with a reason."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.runtime.security.access_control import STANDARD_AUTHORIZER
from support import identity_provider
from support.identity_provider import IdentityProvider
from support.kafka_tools import TOOL_FLAGS, java_command, java_missing, libraries_of
from support.kafkajs import kafkajs_missing, run_kafkajs
from support.npm import INSTALL_TIMEOUT_S
from support.secure_cluster import ADMIN, PASSWORD, PLAIN_USERS, SecureCluster, java_properties

pytestmark = [pytest.mark.slow, pytest.mark.timeout(INSTALL_TIMEOUT_S + 180)]

KAFKA_VERSION = "4.3.1"
OAUTHBEARER = "OAUTHBEARER"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTHBEARER)
TOPIC = "from-every-client"
SECURITY = "org.apache.kafka.common.security"
LOGINS = {"PLAIN": "plain.PlainLoginModule", OAUTHBEARER: "oauthbearer.OAuthBearerLoginModule"}
OTHER_HOST = "127.0.0.2"
# The id and secret by which the identity provider knows a client that fetches its token.
APPLICATION = ("application", "its secret")

KAFKAJS = """
const fs = require("fs")
const { Kafka, logLevel } = require("kafkajs")
const told = JSON.parse(process.argv[2])
const sasl = told.mechanism === "oauthbearer"
  ? { mechanism: "oauthbearer", oauthBearerProvider: async () => ({ value: told.secret }) }
  : { mechanism: told.mechanism, username: told.user, password: told.secret }
const kafka = new Kafka({
  brokers: [told.server], ssl: { ca: [fs.readFileSync(told.ca)] }, sasl, logLevel: logLevel.NOTHING,
  connectionTimeout: 20000, authenticationTimeout: 20000, retry: { retries: 1 },
})
const producer = kafka.producer({ allowAutoTopicCreation: false })
producer.connect()
  .then(() => producer.send({ topic: told.topic, messages: [{ value: "hello" }] }))
  .then(() => producer.disconnect())
  .catch((error) => { console.error(String(error.cause || error), String(error)); process.exit(1) })
"""


class Caller(NamedTuple):
    """Who signs in, how, and where."""

    server: str
    ca: Path
    mechanism: str
    user: str
    secret: str
    tokens_url: str = ""


class Outcome(NamedTuple):
    worked: bool
    said: str


def by_kafkajs(caller: Caller, directory: Path) -> Outcome:
    del directory
    told = caller._asdict() | {"ca": str(caller.ca), "mechanism": caller.mechanism.lower(), "topic": TOPIC}
    done = run_kafkajs("sign_in", KAFKAJS, told)
    return Outcome(done.returncode == 0, done.stdout + done.stderr)


def by_java(caller: Caller, directory: Path) -> Outcome:
    login = f"{SECURITY}.{LOGINS.get(caller.mechanism, 'scram.ScramLoginModule')} required"
    jaas = f'{login} username="{caller.user}" password="{caller.secret}";'
    extra, flags = ["request.timeout.ms=15000", "max.block.ms=20000", "delivery.timeout.ms=20000"], list(TOOL_FLAGS)
    if caller.mechanism == OAUTHBEARER:
        token = directory / "token"
        token.write_text(caller.secret)
        jaas = f"{login};"
        extra += [
            f"sasl.oauthbearer.token.endpoint.url={token.as_uri()}",
            f"sasl.login.callback.handler.class={SECURITY}.oauthbearer.OAuthBearerLoginCallbackHandler",
        ]
        flags += [
            f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={token.as_uri()}",
            f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.files={token}",
        ]
    settings = {"security.protocol": "SASL_SSL", "sasl.mechanism": caller.mechanism, "ssl.ca.location": str(caller.ca)}
    config = directory / "java.properties"
    config.write_text(java_properties(settings, jaas, extra))
    options = ["--bootstrap-server", caller.server, "--topic", TOPIC, "--command-config", str(config)]
    command = java_command(
        "kafka-console-producer", *options, libraries=libraries_of(KAFKA_VERSION), flags=tuple(flags)
    )
    done = subprocess.run(command, input="hello\n", capture_output=True, text=True, timeout=150, check=False)
    said = done.stdout + done.stderr
    return Outcome(done.returncode == 0 and "xception" not in said, said)


def by_penstock(caller: Caller, directory: Path) -> Outcome:
    lines = {
        "bootstrap.servers": caller.server,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(caller.ca),
        "sasl.mechanism": caller.mechanism,
        "sasl.username": caller.user,
        "sasl.password": caller.secret,
        "message.timeout.ms": "15000",
    }
    if caller.mechanism == OAUTHBEARER:
        lines |= {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": caller.tokens_url,
            "sasl.oauthbearer.client.id": APPLICATION[0],
            "sasl.oauthbearer.client.secret": APPLICATION[1],
        }
    config = directory / "client.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    command = [sys.executable, "-m", "penstock", "produce", TOPIC, "--command-config", str(config)]
    done = subprocess.run(command, input="hello\n", capture_output=True, text=True, timeout=150, check=False)
    return Outcome(done.returncode == 0, done.stdout + done.stderr)


CLIENTS: dict[str, Callable[[Caller, Path], Outcome]] = {
    "kafkajs": by_kafkajs,
    "java": by_java,
    "penstock": by_penstock,
}
# What each of them reports about a sign-in that was refused, a certificate that it does not trust, and a missing right.
REFUSED = {"kafkajs": "uthentication", "java": "uthentication", "penstock": "uthenticat"}
UNTRUSTED = {"kafkajs": "certificate", "java": "SSL", "penstock": "ertificate"}
DENIED = {"kafkajs": "Not authorized", "java": "Not authorized", "penstock": "uthoriz"}


@pytest.fixture(scope="module")
def cluster(provider: IdentityProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    settings = {
        **identity_provider.trusting(provider),
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": f"User:{ADMIN}",
    }
    with SecureCluster(tmp_path_factory.mktemp("every-client"), settings=settings) as cluster:
        admin = AdminClient(cluster.librdkafka())
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(30)
        yield cluster


@pytest.fixture(params=["kafkajs", pytest.param("java", marks=pytest.mark.java), "penstock"])
def client(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    missing = {"kafkajs": kafkajs_missing, "java": lambda: java_missing(KAFKA_VERSION)}.get(name, lambda: None)()
    if missing is not None:
        pytest.skip(missing)
    return name


def caller_of(cluster: SecureCluster, mechanism: str, secret: str = PASSWORD, user: str = ADMIN) -> Caller:
    return Caller(cluster.servers(), cluster.ca_path, mechanism, user, secret)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_it_signs_in(
    cluster: SecureCluster, provider: IdentityProvider, client: str, mechanism: str, tmp_path: Path
) -> None:
    secret = provider.token(ADMIN) if mechanism == OAUTHBEARER else PASSWORD
    provider.clients[APPLICATION] = secret
    caller = caller_of(cluster, mechanism, secret)._replace(tokens_url=provider.tokens_url)
    outcome = CLIENTS[client](caller, tmp_path)
    assert outcome.worked, outcome.said


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_wrong_secrets_are_refused(
    cluster: SecureCluster, provider: IdentityProvider, client: str, mechanism: str, tmp_path: Path
) -> None:
    # Java refuses to send an expired token, so it is one for another audience.
    secret = provider.token(ADMIN, aud="somebody-else") if mechanism == OAUTHBEARER else "wrong"
    provider.clients[APPLICATION] = secret
    caller = caller_of(cluster, mechanism, secret)._replace(tokens_url=provider.tokens_url)
    outcome = CLIENTS[client](caller, tmp_path)
    assert not outcome.worked
    # kafkajs takes the answer to a bad token for a success, and its next request ends the connection.
    unheard = (client, mechanism) == ("kafkajs", OAUTHBEARER)
    assert ("Closed connection" if unheard else REFUSED[client]) in outcome.said


def test_an_unknown_authority_is_not_trusted(cluster: SecureCluster, client: str, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    caller = caller_of(cluster, "SCRAM-SHA-256")._replace(ca=SecureCluster(other).ca_path)
    outcome = CLIENTS[client](caller, tmp_path)
    assert not outcome.worked
    assert UNTRUSTED[client] in outcome.said


def _pipe(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


@pytest.fixture
def elsewhere(cluster: SecureCluster) -> Iterator[str]:
    """The broker at an address that is not in its certificate."""
    port = int(cluster.servers().rpartition(":")[2])
    opened: list[socket.socket] = []
    with socket.create_server((OTHER_HOST, port)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    near, _ = listener.accept()
                    far = socket.create_connection(("localhost", port))
                    opened.extend((near, far))
                    for pair in ((near, far), (far, near)):
                        threading.Thread(target=_pipe, args=pair, daemon=True).start()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"{OTHER_HOST}:{port}"
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(10)
    for one in opened:
        one.close()


def test_another_host_name_is_not_trusted(cluster: SecureCluster, client: str, elsewhere: str, tmp_path: Path) -> None:
    outcome = CLIENTS[client](caller_of(cluster, "SCRAM-SHA-256")._replace(server=elsewhere), tmp_path)
    assert not outcome.worked
    assert UNTRUSTED[client] in outcome.said


def test_a_missing_right_is_reported(cluster: SecureCluster, client: str, tmp_path: Path) -> None:
    outcome = CLIENTS[client](caller_of(cluster, "PLAIN", PLAIN_USERS["alice"], "alice"), tmp_path)
    assert not outcome.worked
    assert DENIED[client] in outcome.said
