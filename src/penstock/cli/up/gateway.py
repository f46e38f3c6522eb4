"""The gateway that `penstock up` starts beside the nodes: console, REST and schema registry, in its own process."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.cli.doctor.ports import describe_use, is_free
from penstock.cli.up.nodes import FAILED_STARTS_MAX, RESTART_PAUSE_S, START_TIMEOUT_S
from penstock.local.layout import free_ports
from penstock.local.process import BrokerFailed, BrokerProcess

REST_PORT = 8080
REGISTRY_PORT = 8081
METRICS_PORT = 9644
NEXT_PORTS_MAX = 100
STOP_TIMEOUT_S = 10.0
# The modules of the extra `gateway`, by the names they are imported by.
MODULES = ("avro", "fastavro", "httptools", "jsonschema", "google.protobuf", "starlette", "uvicorn", "websockets")
COMMAND = (sys.executable, "-m", "penstock", "gateway")


def missing_module() -> str | None:
    """The first module of the extra `gateway` that is not installed."""
    for name in MODULES:
        try:
            found = importlib.util.find_spec(name)
        except ModuleNotFoundError:
            found = None
        if found is None:
            return name
    return None


@dataclass(frozen=True, slots=True)
class HttpPorts:
    """The ports of a cluster's HTTP side, and what there is to say about them."""

    rest: int
    registry: int
    metrics: Sequence[int]
    notes: Sequence[str]


def http_ports(
    host: str, nodes: int, *, rest: int | None, registry: int | None, metrics: int | None, any_port: bool, gateway: bool
) -> HttpPorts:
    """Ports for the gateway and for each node's metrics; those that were not named are the usual ones, or any."""
    wanted = [("the console", REST_PORT if rest is None else rest)]
    wanted += [("the schema registry", REGISTRY_PORT if registry is None else registry)]
    first = METRICS_PORT if metrics is None else metrics
    wanted = wanted if gateway else []
    wanted += [(f"node {each + 1}'s metrics", first + each if first else 0) for each in range(nodes)]
    named = {port for port in (rest, registry, metrics) if port is not None}
    if any_port:
        wanted = [(what, port if port in named else 0) for what, port in wanted]
    ports, notes = pick_ports(host, wanted)
    rest_port, registry_port = ports[:2] if gateway else (0, 0)
    return HttpPorts(rest_port, registry_port, ports[-nodes:], notes)


def pick_ports(host: str, wanted: Sequence[tuple[str, int]]) -> tuple[list[int], list[str]]:
    """A port for each (what it is for, port); and a sentence for each that was taken, so that another is used.

    Port 0 is any free one. Of ports that are taken the next free one is used: unlike the brokers' port, nothing but
    people's browsers knows these by heart.
    """
    ports: list[int] = []
    sentences = []
    for what, port in wanted:
        if port == 0:
            ports.append(next(each for each in free_ports(len(wanted), host) if each not in ports))
            continue
        others = {number for _, number in wanted} - {port}
        candidates = range(port, min(port + NEXT_PORTS_MAX, 65536))
        free = next((each for each in candidates if each not in ports and _free(host, each, port, others)), None)
        if free is None:
            free = free_ports(1, host)[0]
        if free != port:
            sentences.append(f"port {port} is taken: {describe_use(port)}; {what}: port {free}")
        ports.append(free)
    return ports, sentences


def _free(host: str, candidate: int, wanted: int, others: set[int]) -> bool:
    """A port that something else here wants is left to it."""
    return (candidate == wanted or candidate not in others) and is_free(host, candidate)


@dataclass(slots=True)
class Gateway:
    """One gateway: started once the brokers serve, started again when it dies, given up when it cannot start.

    It is never a reason to stop the brokers.
    """

    host: str
    rest_port: int
    registry_port: int
    log: Path
    command: Sequence[str] = COMMAND
    # More of its options, with which it serves HTTPS.
    tls_options: Sequence[str] = ()
    process: BrokerProcess | None = None
    serves: bool = False
    given_up: bool = False
    failed_starts: int = 0
    launched_at: float = 0.0
    restart_at: float | None = None

    @property
    def scheme(self) -> str:
        """Of its addresses."""
        return "https" if self.tls_options else "http"

    @property
    def rest(self) -> str:
        """Where the console and REST are."""
        return f"{self.scheme}://{url_host(self.host)}:{self.rest_port}"

    @property
    def registry(self) -> str:
        """Where the schema registry is."""
        return f"{self.scheme}://{url_host(self.host)}:{self.registry_port}"

    def launch(self, bootstrap_servers: str, client_file: Path | None = None) -> None:
        """Start it without waiting for it; `client_file` has the settings with which it signs in to the brokers."""
        command = [*self.command, "-b", bootstrap_servers, "--host", self.host]
        command += [] if client_file is None else ["--command-config", str(client_file)]
        command += self.tls_options
        command += ["--port", str(self.rest_port), "--registry-port", str(self.registry_port)]
        self.process = BrokerProcess(None, self.log, command, "the gateway")
        self._launch()

    def look(self) -> Iterator[str]:
        """Notice what happened since the last look, start it again where it died, and say so."""
        if self.process is None or self.given_up:
            return
        if self.restart_at is not None:
            if time.monotonic() >= self.restart_at:
                self._launch()
        elif not self.serves:
            yield from self._look_at_start(self.process)
        elif self.process.pid is None:
            self.serves = False
            self.restart_at = time.monotonic()
            yield f"the gateway ended ({self.process.describe_exit()}); starting it again"

    def wait(self, timeout_s: float = START_TIMEOUT_S) -> Iterator[str]:
        """Look until it serves or is given up."""
        deadline = time.monotonic() + timeout_s
        while self.process is not None and not self.serves and not self.given_up and time.monotonic() < deadline:
            yield from self.look()
            time.sleep(0.02)

    def stop(self) -> None:
        """Stop it; one that does not stop in time is killed."""
        if self.process is not None:
            self.process.stop(STOP_TIMEOUT_S)

    def kill(self) -> None:
        """End it at once."""
        if self.process is not None:
            self.process.kill()

    def _launch(self) -> None:
        assert self.process is not None
        self.restart_at = None
        self.launched_at = time.monotonic()
        self.process.launch()

    def _look_at_start(self, process: BrokerProcess) -> Iterator[str]:
        try:
            if not process.poll_ready():
                if time.monotonic() - self.launched_at > START_TIMEOUT_S:
                    process.kill()
                    raise BrokerFailed(f"the gateway was not ready within {START_TIMEOUT_S:g} seconds", "")
                return
        except BrokerFailed as error:
            self.failed_starts += 1
            self.given_up = self.failed_starts >= FAILED_STARTS_MAX
            self.restart_at = time.monotonic() + RESTART_PAUSE_S
            what = "the brokers continue without it" if self.given_up else "trying again"
            yield f"{error.what}: {what}; its log is {self.log}"
            return
        self.serves = True
        self.failed_starts = 0
        took_ms = (time.monotonic() - self.launched_at) * 1000
        yield f"the gateway serves after {took_ms:.0f} ms: console {self.rest}, schema registry {self.registry}"


def url_host(host: str) -> str:
    """The host as people write it in a browser."""
    if host in ("0.0.0.0", "::"):
        return "localhost"
    return f"[{host}]" if ":" in host else host
