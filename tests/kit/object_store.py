"""An object store for tests: moto's S3, in this process, with one bucket."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

BUCKET = "lake"


@contextlib.contextmanager
def object_store() -> Iterator[str]:
    """Start it, and point the environment's clients at it. Yields the address of its bucket, as `s3://lake`."""
    moto: Any = pytest.importorskip("moto.server", reason="needs pip install 'moto[server]'")
    boto3: Any = pytest.importorskip("boto3")
    server = moto.ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", endpoint)
        patch.setenv("AWS_ACCESS_KEY_ID", "testing")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        boto3.client("s3").create_bucket(Bucket=BUCKET)
        try:
            yield f"s3://{BUCKET}"
        finally:
            server.stop()
