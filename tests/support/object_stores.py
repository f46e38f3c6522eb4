"""Object stores that other people wrote, each with the URL and options that a broker needs for it.

Google's protocol is answered by S3Proxy: obstore speaks Google's XML API, which is S3's but for the signatures and the
names of some headers, and the emulators of Google's storage only have the JSON API, or little else.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import hmac
import json
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from email.utils import formatdate
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import NamedTuple

import pytest

from penstock.local.layout import free_ports
from penstock.storage.tier.object_store import RemoteStore

from .kafka_tools import TOOL_FLAGS, find_java
from .maven import fetch_program
from .npm import fetch_package, module_directory
from .spark.object_store import ACCESS, object_store, object_store_missing
from .tools import TOOLS_DIRECTORY, want

S3PROXY_VERSION = "4.1.0"
S3PROXY_DIRECTORY = TOOLS_DIRECTORY / f"s3proxy-{S3PROXY_VERSION}"
AZURITE_VERSION = "3.37.0"
# Every emulator of Azure has this account, with this key.
AZURE_ACCOUNT = "devstoreaccount1"
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
AZURE_API_VERSION = "2021-12-02"
BUCKET = "tier"
START_S, STOP_S = 60, 10
REQUEST_TIMEOUT_MS = 20_000


class Store(NamedTuple):
    """A running store with an empty bucket."""

    url: str
    options: Mapping[str, str]
    # Whether it copies objects when it is asked to.
    has_copy: bool = True

    @property
    def arguments(self) -> list[str]:
        """What `penstock tier` is told."""
        return ["--url", self.url, *(f"--option={name}={text}" for name, text in self.options.items())]

    def open(self) -> RemoteStore:
        """As brokers do."""
        return RemoteStore.open(self.url, self.options, REQUEST_TIMEOUT_MS)


class Kind(NamedTuple):
    """How to have one: why it cannot be had, or None, and what starts it, with files in a directory."""

    missing: Callable[[], str | None]
    start: Callable[[Path], AbstractContextManager[Store]]


@contextmanager
def moto(_: Path) -> Iterator[Store]:
    """moto's S3."""
    with object_store(BUCKET) as (endpoint, _client):
        yield Store(f"s3://{BUCKET}/here", _s3_options(endpoint))


@contextmanager
def s3proxy(directory: Path) -> Iterator[Store]:
    """S3Proxy, which checks signatures."""
    access = {
        "s3proxy.authorization": "aws-v2-or-v4",
        "s3proxy.identity": ACCESS["AWS_ACCESS_KEY_ID"],
        "s3proxy.credential": ACCESS["AWS_SECRET_ACCESS_KEY"],
    }
    with _run_s3proxy(directory, access) as endpoint:
        yield Store(f"s3://{BUCKET}/here", _s3_options(endpoint))


@contextmanager
def google(directory: Path) -> Iterator[Store]:
    """Google's protocol, without signatures."""
    with _run_s3proxy(directory, {"s3proxy.authorization": "none"}) as endpoint:
        account = directory / "account.json"
        unsigned = {"disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}
        account.write_text(json.dumps({"gcs_base_url": endpoint, **unsigned}))
        yield Store(f"gs://{BUCKET}/here", {"service_account": str(account), "allow_http": "true"}, has_copy=False)


@contextmanager
def azurite(directory: Path) -> Iterator[Store]:
    """Azurite, Microsoft's emulator of Azure."""
    (port,) = free_ports(1)
    program = module_directory("azurite") / "dist" / "src" / "blob" / "main.js"
    command = ["node", str(program), "--blobHost", "127.0.0.1", "--blobPort", str(port)]
    command += ["--inMemoryPersistence", "--disableTelemetry", "--silent"]
    with _running(command, directory / "azurite.log", lambda: _create_container(port)):
        endpoint = f"http://127.0.0.1:{port}/{AZURE_ACCOUNT}"
        account = {"account_name": AZURE_ACCOUNT, "account_key": AZURE_KEY}
        yield Store(f"az://{BUCKET}/here", {"endpoint": endpoint, "allow_http": "true", **account})


@functools.cache
def s3proxy_missing() -> str | None:
    """None when S3Proxy can be run, else the reason for the skip. The first call may fetch it."""
    if find_java() is None:
        return want("Java", "install a Java 17 or newer runtime (Debian: default-jre-headless), or set JAVA_HOME")
    return fetch_program(f"org.gaul:s3proxy:{S3PROXY_VERSION}:jar:jar-with-dependencies", S3PROXY_DIRECTORY)


@functools.cache
def azurite_missing() -> str | None:
    """None when Azurite can be run, else the reason for the skip. The first call may fetch it."""
    return fetch_package("azurite", AZURITE_VERSION)


STORES: Mapping[str, Kind] = {
    "moto": Kind(object_store_missing, moto),
    "s3proxy": Kind(s3proxy_missing, s3proxy),
    "azurite": Kind(azurite_missing, azurite),
    "google": Kind(s3proxy_missing, google),
}


def available(name: str) -> Kind:
    """One of them; skips the test where it cannot be had."""
    kind = STORES[name]
    reason = kind.missing()
    if reason is not None:
        pytest.skip(reason)
    return kind


def _s3_options(endpoint: str) -> dict[str, str]:
    return {
        "endpoint": endpoint,
        "allow_http": "true",
        "access_key_id": ACCESS["AWS_ACCESS_KEY_ID"],
        "secret_access_key": ACCESS["AWS_SECRET_ACCESS_KEY"],
        "region": ACCESS["AWS_REGION"],
    }


@contextmanager
def _run_s3proxy(directory: Path, access: Mapping[str, str]) -> Iterator[str]:
    (port,) = free_ports(1)
    (directory / "objects" / BUCKET).mkdir(parents=True)
    settings = {
        "s3proxy.endpoint": f"http://127.0.0.1:{port}",
        "jclouds.provider": "filesystem-nio2",
        "jclouds.filesystem.basedir": str(directory / "objects"),
        **access,
    }
    properties = directory / "s3proxy.properties"
    properties.write_text("".join(f"{name}={text}\n" for name, text in settings.items()))
    (jar,) = S3PROXY_DIRECTORY.glob("*.jar")
    command = [str(find_java()), *TOOL_FLAGS, "-jar", str(jar), "--properties", str(properties)]
    with _running(command, directory / "s3proxy.log", lambda: _request(port, "GET", "/", {}) > 0):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def _running(command: list[str], log: Path, is_ready: Callable[[], bool]) -> Iterator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, cwd=log.parent, start_new_session=True)
    try:
        deadline = time.monotonic() + START_S
        while not is_ready():
            assert process.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < deadline, log.read_text()[-3000:]
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _create_container(port: int) -> bool:
    """Signed as Azure has it ("Shared Key"): the method, eleven headers that are empty here, and what names itself."""
    path = f"/{AZURE_ACCOUNT}/{BUCKET}"
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": AZURE_API_VERSION}
    named = "".join(f"{name}:{text}\n" for name, text in headers.items())
    signed = "PUT\n" + "\n" * 11 + named + f"/{AZURE_ACCOUNT}{path}\nrestype:container"
    digest = hmac.new(base64.b64decode(AZURE_KEY), signed.encode(), hashlib.sha256).digest()
    authorization = f"SharedKey {AZURE_ACCOUNT}:{base64.b64encode(digest).decode()}"
    headers |= {"Authorization": authorization, "Content-Length": "0"}
    return _request(port, "PUT", f"{path}?restype=container", headers) == 201


def _request(port: int, method: str, path: str, headers: Mapping[str, str]) -> int:
    """The status of the answer; 0 without one."""
    connection = HTTPConnection("127.0.0.1", port, timeout=START_S)
    try:
        connection.request(method, path, headers=dict(headers))
        return connection.getresponse().status
    except (OSError, HTTPException):
        return 0
    finally:
        connection.close()
