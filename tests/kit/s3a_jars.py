"""Programs with Hadoop's S3A: its jars from Maven, of the Hadoop that this PySpark brings, and its settings.

A driver with jars is a process of its own: they are chosen when a JVM starts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from maven_jars import Unavailable, maven_jars
from spark_processes import QUICK, environment

__all__ = ["Unavailable", "run_program", "s3a_jars", "s3a_settings"]

ALREADY_IN_SPARK = (
    *("netty-buffer", "netty-codec", "netty-common", "netty-handler", "netty-resolver", "netty-transport"),
    *("commons-codec", "commons-logging", "slf4j-api", "httpclient", "httpcore"),
)


def s3a_jars(folder: Path) -> list[Path]:
    """Fetch the jars into a folder, and return those that Spark lacks."""
    own = [jar for jar in maven_jars("s3a.pom.xml", folder) if not jar.name.startswith(ALREADY_IN_SPARK)]
    return [*own, *folder.glob("netty-nio-client-*.jar")]


def s3a_settings(jars: Sequence[Path], **options: object) -> dict[str, str]:
    """Return the settings of a session whose `s3a://` is the object store of the environment."""
    own = {
        "endpoint": os.environ["AWS_ENDPOINT_URL"],
        "endpoint.region": "us-east-1",
        "path.style.access": "true",
        "connection.ssl.enabled": "false",
        "access.key": os.environ["AWS_ACCESS_KEY_ID"],
        "secret.key": os.environ["AWS_SECRET_ACCESS_KEY"],
    }
    hadoop = {f"spark.hadoop.fs.s3a.{name}": str(value) for name, value in (own | options).items()}
    return QUICK | hadoop | {"spark.jars": ",".join(map(str, jars))}


def run_program(program: Path, *arguments: str) -> Any:
    """Run a program to its end, and return what it printed as JSON behind `FOUND`."""
    ran = subprocess.run(
        [sys.executable, str(program), *arguments],
        env=os.environ | environment(),
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    lines = [line for line in ran.stdout.splitlines() if line.startswith("FOUND ")]
    assert lines, ran.stdout[-2_000:] + ran.stderr[-4_000:]
    return json.loads(lines[0].removeprefix("FOUND "))
