"""The jars of Hadoop's S3A from Maven, of the Hadoop that this PySpark brings."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pyspark

POM = Path(__file__).with_name("s3a.pom.xml")
ALREADY_IN_SPARK = (
    *("netty-buffer", "netty-codec", "netty-common", "netty-handler", "netty-resolver", "netty-transport"),
    *("commons-codec", "commons-logging", "slf4j-api", "httpclient", "httpcore"),
)


class Unavailable(Exception):
    """The jars cannot be had here; the message says why."""


def s3a_jars(folder: Path) -> list[Path]:
    """Fetch the jars into a folder, and return those that Spark lacks."""
    if shutil.which("mvn") is None:
        raise Unavailable("needs Maven (mvn), for the jars of Hadoop's S3A")
    (client,) = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    command = ["mvn", "-q", "-B", "-f", str(POM), f"-Dhadoop.version={client.stem.rpartition('-')[2]}"]
    command += ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if ran.returncode:
        raise Unavailable(f"needs the jars of Hadoop's S3A from Maven Central: {ran.stdout[-300:]}")
    own = [jar for jar in folder.glob("*.jar") if not jar.name.startswith(ALREADY_IN_SPARK)]
    return [*own, *folder.glob("netty-nio-client-*.jar")]
