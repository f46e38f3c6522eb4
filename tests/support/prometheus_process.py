"""A real Prometheus that scrapes what a test runs, with its rules evaluated every second."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 10.0


def eventually(what: str, holds: Callable[[], Any], timeout_s: float = 30.0) -> Any:
    """Wait until something holds, and return it."""
    deadline = time.monotonic() + timeout_s
    while not (found := holds()):
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s:g} s"
        time.sleep(0.2)
    return found


class Prometheus:
    """Scrapes `jobs`: by name, the path and the targets. The alerts in the file `rules` need hold for a second only."""

    def __init__(self, port: int, jobs: Mapping[str, tuple[str, Sequence[str]]], rules: Path) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="prometheus-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._log = self._directory / "log"
        self._port = port
        hasty = re.sub(r"for: \d+[smh]", "for: 1s", rules.read_text())
        (self._directory / "alerts.yml").write_text(hasty)
        (self._directory / "prometheus.yml").write_text(_configuration(jobs))
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=10)

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series that an expression gives now; fails where it is none."""
        answer = self.client.get("/api/v1/query", params={"query": expression}).json()
        assert answer["status"] == "success", f"{expression}: {answer.get('error')}"
        found: list[dict[str, Any]] = answer["data"]["result"]
        return found

    def firing(self) -> dict[str, list[dict[str, str]]]:
        """Labels of the alerts that fire, by name."""
        alerts = self.client.get("/api/v1/alerts").json()["data"]["alerts"]
        found: dict[str, list[dict[str, str]]] = {}
        for alert in alerts:
            if alert["state"] == "firing":
                found.setdefault(alert["labels"]["alertname"], []).append(alert["labels"])
        return found

    def rules(self) -> list[dict[str, Any]]:
        """All rules, each with how its last evaluation went."""
        groups = self.client.get("/api/v1/rules").json()["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def __enter__(self) -> Self:
        command = [
            "prometheus",
            f"--config.file={self._directory / 'prometheus.yml'}",
            f"--storage.tsdb.path={self._directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{self._port}",
        ]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:
            eventually("Prometheus is ready", self._is_ready, START_TIMEOUT_S)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self._log.read_text()[-3000:]}") from None
        return self

    def _is_ready(self) -> bool:
        try:
            return self.client.get("/-/ready").status_code == 200
        except httpx.TransportError:
            return False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.client.close()
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)


def _configuration(jobs: Mapping[str, tuple[str, Sequence[str]]]) -> str:
    lines = ["global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}", "rule_files: [alerts.yml]"]
    lines.append("scrape_configs:")
    for name, (path, targets) in jobs.items():
        listed = ", ".join(f'"{target}"' for target in targets)
        lines += [
            f"  - job_name: {name}",
            f"    metrics_path: {path}",
            f"    static_configs: [{{targets: [{listed}]}}]",
        ]
    return "\n".join(lines) + "\n"
