"""The process side of the testing kit, against a stand-in for the server that behaves well or badly on request."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.local.process import BrokerProcess
from penstock.testing import BrokerFailed

STAND_IN = """
import json, os, signal, sys, time
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
mode = open(options["--config"]).read().strip()
print("stand-in:", mode, flush=True)
if mode == "refuse":
    print("no such luck", file=sys.stderr)
    sys.exit(3)
if mode == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
else:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
if mode != "silent":
    line = json.dumps({"listeners": {"PLAINTEXT": "127.0.0.1:4242"}, "node_id": 1}) + "\\n"
    os.write(int(options["--ready-fd"]), line[:9].encode())
    time.sleep(0.05)
    os.write(int(options["--ready-fd"]), line[9:].encode())
while os.read(int(options["--lifeline-fd"]), 1):
    pass
"""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    script = tmp_path / "stand_in.py"
    script.write_text(STAND_IN)
    process = BrokerProcess(tmp_path / "mode", tmp_path / "log", command=(sys.executable, str(script)))
    yield process
    process.kill()


def test_start_returns_the_addresses_and_stop_is_clean(broker: BrokerProcess) -> None:
    broker.properties_path.write_text("good")
    assert broker.start(10) == {"PLAINTEXT": "127.0.0.1:4242"}
    assert broker.pid is not None
    assert broker.exit_code is None
    assert broker.stop(10)
    assert broker.pid is None
    assert broker.describe_exit() == "exit code 0"
    assert "stand-in: good" in broker.log_tail()


def test_a_broker_can_be_started_again(broker: BrokerProcess) -> None:
    broker.properties_path.write_text("good")
    broker.start(10)
    broker.kill()
    assert broker.describe_exit() == "killed by SIGKILL"
    broker.start(10)
    assert broker.stop(10)
    assert broker.log_tail().count("stand-in") == 2


def test_a_failed_start_shows_the_log(broker: BrokerProcess) -> None:
    broker.properties_path.write_text("refuse")
    with pytest.raises(BrokerFailed) as caught:
        broker.start(10)
    assert "exit code 3" in str(caught.value)
    assert "no such luck" in str(caught.value)
    assert broker.pid is None


def test_a_start_that_takes_too_long_leaves_nothing_behind(broker: BrokerProcess) -> None:
    broker.properties_path.write_text("silent")
    with pytest.raises(BrokerFailed, match=r"not ready within 0\.5 seconds"):
        broker.start(0.5)
    assert broker.pid is None


def test_a_paused_broker_can_be_resumed_and_still_hears_that_it_should_stop(broker: BrokerProcess) -> None:
    broker.properties_path.write_text("good")
    broker.start(10)
    broker.pause()
    assert state(broker) == "T"
    broker.resume()
    assert state(broker) in "SR"
    broker.pause()
    assert broker.stop(10)


def state(broker: BrokerProcess) -> str:
    deadline = time.monotonic() + 5
    while True:
        letter = Path(f"/proc/{broker.pid}/stat").read_text().rpartition(")")[2].split()[0]
        if letter != "R" or time.monotonic() > deadline:
            return letter
        time.sleep(0.01)


def test_a_launched_broker_is_polled(broker: BrokerProcess) -> None:
    broker.properties_path.write_text("silent")
    broker.launch()
    assert not broker.poll_ready(0.1)
    broker.kill()
    broker.properties_path.write_text("good")
    broker.launch()
    while not broker.poll_ready(0.1):
        pass
    assert broker.listeners == {"PLAINTEXT": "127.0.0.1:4242"}


def test_a_stubborn_broker_is_killed(broker: BrokerProcess) -> None:
    broker.properties_path.write_text("stubborn")
    broker.start(10)
    assert not broker.stop(0.3)
    assert broker.exit_code == -signal.SIGKILL


def test_the_broker_does_not_outlive_its_parent(tmp_path: Path) -> None:
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    (tmp_path / "mode").write_text("good")
    program = (
        "import sys, os, signal\n"
        "from pathlib import Path\n"
        "from penstock.local.process import BrokerProcess\n"
        "here = Path(sys.argv[1])\n"
        "broker = BrokerProcess(here / 'mode', here / 'log', command=(sys.executable, str(here / 'stand_in.py')))\n"
        "broker.start(10)\n"
        "print(broker.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    parent = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, timeout=30, check=False
    )
    assert parent.returncode == -signal.SIGKILL
    pid = int(parent.stdout)
    deadline = time.monotonic() + 10
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not is_alive(pid)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        # An orphan that was not waited for yet still has its id, but is a zombie.
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (ProcessLookupError, FileNotFoundError):
        return False
