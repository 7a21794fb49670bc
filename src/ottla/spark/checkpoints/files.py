"""The small files beside a checkpoint, wherever it is: local disk, HDFS, an object store.

- A path, or `file:`: this machine's files.
- Any other address where there is a Spark session: Hadoop's file systems, with the jars and rights of the session.
- Any other address without a session (the command line, `Pipeline.lag()`): `pyarrow.fs`, for `s3a://`, `s3://`, `gs://`
  and what else Arrow knows, with the credentials of the environment.

A file is replaced as a whole: whoever reads it finds the old or the new content. `LocalFiles` raises OSError. The
others raise `ConfigError` with the address when their store refuses or cannot be reached.
"""

from __future__ import annotations

import shutil
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import unquote, urlsplit

from ottla.errors import ConfigError

LARGEST: Final = 64 * 2**20
"""The largest file that is read, in bytes: offsets of 100,000 partitions are 1 MB."""


class Files(Protocol):
    """Small files, by their full address."""

    @property
    def is_create_conditional(self) -> bool:
        """Return whether `create` is one step: of two calls at the same moment, one returns False."""

    def read(self, path: str) -> bytes | None:
        """Return the content; None where there is no file."""

    def names(self, folder: str) -> list[str]:
        """Return the names of what is in a folder, sorted; none where there is no folder."""

    def write(self, path: str, content: bytes) -> None:
        """Write or replace the file, and make its folder."""

    def create(self, path: str, content: bytes) -> bool:
        """Write the file if there is none, and return whether this call did."""

    def delete(self, path: str) -> None:
        """Delete a file, or a folder with all that is in it; nothing where there is none."""

    def move(self, source: str, target: str) -> None:
        """Move a folder. On an object store each of its files is copied, then deleted."""


def files_of(location: str) -> Files:
    """Return what reads and writes at this address. Raises `ConfigError` where nothing does."""
    if is_local(location):
        return LocalFiles()
    from ottla.spark.checkpoints.foreign_files import ArrowFiles, HadoopFiles

    session = _session()
    return ArrowFiles(location) if session is None else HadoopFiles(session, location)


def is_local(location: str) -> bool:
    """Return whether this is a path, or a `file:` address."""
    scheme = urlsplit(location).scheme
    return len(scheme) <= 1 or scheme == "file"


def local_path(location: str) -> Path:
    """Return a path, or a `file:` address, as a path."""
    parts = urlsplit(location)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    if parts.scheme and len(parts.scheme) > 1:
        raise ConfigError(f"found {location!r}, wanted a path on a file system that the driver can write")
    return Path(location)


def walk(files: Files, folder: str, *, skip: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the addresses of all files below a folder, but for those in the folders of `skip`."""
    for name in files.names(folder):
        path = f"{folder}/{name}"
        if name in skip:
            continue
        below = files.names(path)
        if below:
            yield from walk(files, path)
        elif files.read(path) is not None:
            yield path


class LocalFiles:
    """Files of this machine."""

    is_create_conditional = True

    def read(self, path: str) -> bytes | None:
        try:
            bounded(path, local_path(path).stat().st_size)
            return local_path(path).read_bytes()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            return None

    def names(self, folder: str) -> list[str]:
        try:
            return sorted(file.name for file in local_path(folder).iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []

    def write(self, path: str, content: bytes) -> None:
        target = local_path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
        scratch.write_bytes(content)
        scratch.replace(target)

    def create(self, path: str, content: bytes) -> bool:
        target = local_path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with target.open("xb") as file:
                file.write(content)
        except FileExistsError:
            return False
        return True

    def delete(self, path: str) -> None:
        target = local_path(path)
        if target.is_dir():
            shutil.rmtree(target)
        else:
            target.unlink(missing_ok=True)

    def move(self, source: str, target: str) -> None:
        local_path(source).rename(local_path(target))


def _session() -> Any:
    """Return the session of this process whose JVM is here; None without one. Loads nothing."""
    module = sys.modules.get("pyspark.sql")
    if module is None:
        return None
    session = module.SparkSession.getActiveSession() or getattr(module.SparkSession, "_instantiatedSession", None)
    return None if getattr(session, "_jvm", None) is None else session


def bounded(path: str, size: int) -> None:
    if size > LARGEST:
        raise ConfigError(f"{path}: found {size:,} bytes, wanted at most {LARGEST:,}: this is no file of a checkpoint")


@contextmanager
def as_config_error(path: str) -> Iterator[None]:
    """Say of which address the store could not be read or written."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        if not (isinstance(error, OSError) or type(error).__module__.startswith(("pyarrow", "py4j", "pyspark"))):
            raise
        raise ConfigError(f"{path}: {_first_line(error)}") from error


def _first_line(error: BaseException) -> str:
    java: Any = getattr(error, "java_exception", None)
    text = str(java.toString()) if java is not None else str(error)
    return text.splitlines()[0] if text else type(error).__name__
