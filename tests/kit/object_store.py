"""Object stores for tests: two S3 servers, each with one bucket.

moto runs in this process. gofakes3 is a Go program in a process of its own (`s3_server/`), built once for a run: what
must be atomic, as the conditional writes of a lock, is not tested on one server's idea of it.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

BUCKET = "lake"

BOTH = [
    pytest.param("moto", id="moto"),
    pytest.param("gofakes3", id="gofakes3", marks=pytest.mark.complete),
]
"""The names of both, as parameters of a fixture."""


@contextlib.contextmanager
def object_store(name: str = "moto") -> Iterator[str]:
    """Start it, and point the environment's clients at it. Yields the address of its bucket, as `s3://lake`."""
    boto3: Any = pytest.importorskip("boto3")
    with _SERVERS[name]() as endpoint, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", endpoint)
        patch.setenv("AWS_ACCESS_KEY_ID", "testing")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("AWS_ALLOW_HTTP", "true")  # deltalake's word
        boto3.client("s3").create_bucket(Bucket=BUCKET)
        yield f"s3://{BUCKET}"


@contextlib.contextmanager
def _moto() -> Iterator[str]:
    moto: Any = pytest.importorskip("moto.server", reason="needs pip install 'moto[server]'")
    server = moto.ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
    finally:
        server.stop()


@contextlib.contextmanager
def _gofakes3() -> Iterator[str]:
    try:
        from foreign_client import Unavailable, built_go
    except ImportError as error:
        pytest.skip(f"needs gofakes3, and the repository's tools, which the sdist has not: {error}")

    try:
        program = built_go(Path(__file__).parent / "s3_server") / "s3server"
    except Unavailable as error:
        pytest.skip(f"needs gofakes3: {error}")
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            yield f"http://{server.stdout.readline().strip()}"
        finally:
            server.stdin.close()


_SERVERS = {"moto": _moto, "gofakes3": _gofakes3}
