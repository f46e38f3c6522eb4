"""An S3 of a test's own: moto's server, in this process."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any
from urllib.request import Request, urlopen

from ..tools import want

ACCESS = {"AWS_ACCESS_KEY_ID": "tester", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
RESET_S = 30


def object_store_missing() -> str | None:
    """None when the server can be started, else the reason for the skip."""
    missing = [name for name in ("moto", "flask", "flask_cors", "boto3") if find_spec(name) is None]
    return want("moto", f"install {', '.join(missing)} with .venv/bin/pip install -e '.[dev]'") if missing else None


@contextmanager
def object_store(bucket: str) -> Iterator[tuple[str, Any]]:
    """A server with one bucket: its address, and boto3's client for it."""
    import boto3
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        client = boto3.client(
            "s3",
            endpoint_url=f"http://{host}:{port}",
            aws_access_key_id=ACCESS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=ACCESS["AWS_SECRET_ACCESS_KEY"],
            region_name=ACCESS["AWS_REGION"],
        )
        client.create_bucket(Bucket=bucket)
        yield f"http://{host}:{port}", client
        client.close()
    finally:
        # What it holds is kept by the process, not by the server: the next one would start with it.
        urlopen(Request(f"http://{host}:{port}/moto-api/reset", method="POST"), timeout=RESET_S).close()
        server.stop()
