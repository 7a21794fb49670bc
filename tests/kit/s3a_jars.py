"""The jars of Hadoop's S3A from Maven, of the Hadoop that this PySpark brings."""

from __future__ import annotations

from pathlib import Path

from maven_jars import Unavailable, maven_jars

__all__ = ["Unavailable", "s3a_jars"]

ALREADY_IN_SPARK = (
    *("netty-buffer", "netty-codec", "netty-common", "netty-handler", "netty-resolver", "netty-transport"),
    *("commons-codec", "commons-logging", "slf4j-api", "httpclient", "httpcore"),
)


def s3a_jars(folder: Path) -> list[Path]:
    """Fetch the jars into a folder, and return those that Spark lacks."""
    own = [jar for jar in maven_jars("s3a.pom.xml", folder) if not jar.name.startswith(ALREADY_IN_SPARK)]
    return [*own, *folder.glob("netty-nio-client-*.jar")]
