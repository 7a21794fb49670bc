"""Jars from Maven Central: those of Hadoop are of the Hadoop that this PySpark brings."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pyspark

SPARK_JARS = Path(pyspark.__file__).parent / "jars"

_FETCH_S = 300


class Unavailable(Exception):
    """The jars cannot be had here; the message says why."""


def maven_jars(pom: str, folder: Path) -> list[Path]:
    """Fetch what a `*.pom.xml` of this folder names, and return the files."""
    if shutil.which("mvn") is None:
        raise Unavailable(f"needs Maven (mvn), for the jars of {pom}")
    (client,) = SPARK_JARS.glob("hadoop-client-api-*.jar")
    command = ["mvn", "-q", "-B", "-f", str(Path(__file__).with_name(pom))]
    command += [f"-Dhadoop.version={client.stem.rpartition('-')[2]}", f"-DoutputDirectory={folder}"]
    command += ["dependency:copy-dependencies", "-DincludeScope=runtime"]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_S, check=False)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"needs the jars of {pom} from Maven Central: mvn did not end in {_FETCH_S} s") from None
    if ran.returncode:
        raise Unavailable(f"needs the jars of {pom} from Maven Central: {ran.stdout[-300:]}")
    return list(folder.glob("*.jar"))
