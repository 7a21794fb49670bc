"""The small files beside a checkpoint, wherever it is: local disk, HDFS, an object store.

- A path, or `file:`: this machine's files.
- Any other address where there is a Spark session: Hadoop's file systems, with the jars and rights of the session.
- Any other address without a session (the command line, `Pipeline.lag()`): `pyarrow.fs`, for `s3a://`, `s3://`, `gs://`
  and what else Arrow knows, with the credentials of the environment.

A file is replaced as a whole: whoever reads it finds the old or the new content. `LocalFiles` raises OSError. The
others raise `ConfigError` with the address when their store refuses or cannot be reached.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import unquote, urlsplit

from ottla.errors import ConfigError

LARGEST: Final = 64 * 2**20
"""The largest file that is read, in bytes: offsets of 100,000 partitions are 1 MB."""


_RENAMES: Final = ("file", "hdfs", "viewfs", "webhdfs")
"""Hadoop's file systems in which a rename is one step, and a file that is being written can be seen."""


class Files(Protocol):
    """Small files, by their full address."""

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
    session = _session()
    return ArrowFiles(location) if session is None else HadoopFiles(session)


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

    def read(self, path: str) -> bytes | None:
        try:
            _bounded(path, local_path(path).stat().st_size)
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
        scratch = target.with_name(f".{target.name}.{os.getpid()}")
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


class HadoopFiles:
    """Files of any file system that the session's Hadoop knows."""

    def __init__(self, spark: Any) -> None:
        self._jvm = spark._jvm
        self._gateway = spark.sparkContext._gateway
        self._conf = spark._jsparkSession.sessionState().newHadoopConf()

    def read(self, path: str) -> bytes | None:
        with _as_config_error(path):
            fs, there = self._open(path)
            if not fs.exists(there):
                return None
            status = fs.getFileStatus(there)
            if status.isDirectory():
                return None
            _bounded(path, status.getLen())
            stream = fs.open(there)
            try:
                return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
            finally:
                stream.close()

    def names(self, folder: str) -> list[str]:
        with _as_config_error(folder):
            fs, there = self._open(folder)
            if not fs.exists(there) or not fs.getFileStatus(there).isDirectory():
                return []
            return sorted(str(status.getPath().getName()) for status in fs.listStatus(there))

    def write(self, path: str, content: bytes) -> None:
        """By one request to an object store, which is atomic. Elsewhere a file beside it takes its place by a rename;
        Spark's own `createAtomic` leaves a file that exists as it is.
        """
        with _as_config_error(path):
            fs, there = self._open(path)
            if fs.getScheme() not in _RENAMES:
                self._put(fs, there, content)
                return
            fs.mkdirs(there.getParent())
            scratch = self._jvm.org.apache.hadoop.fs.Path(there.getParent(), f".{there.getName()}.{os.getpid()}")
            self._put(fs, scratch, content)
            hadoop = self._jvm.org.apache.hadoop.fs
            overwrite = self._gateway.new_array(getattr(hadoop, "Options$Rename"), 1)
            overwrite[0] = getattr(hadoop, "Options$Rename").OVERWRITE
            hadoop.FileContext.getFileContext(there.toUri(), self._conf).rename(scratch, there, overwrite)

    def create(self, path: str, content: bytes) -> bool:
        """By one conditional request where the file system has it: HDFS, and S3A of Hadoop 3.4.2 and later."""
        try:
            with _as_config_error(path):
                fs, there = self._open(path)
                self._put(fs, there, content, is_replaced=False)
        except ConfigError:
            if self.read(path) is None:
                raise
            return False
        return True

    def delete(self, path: str) -> None:
        with _as_config_error(path):
            fs, there = self._open(path)
            fs.delete(there, True)

    def move(self, source: str, target: str) -> None:
        with _as_config_error(source):
            fs, there = self._open(source)
            fs.rename(there, self._open(target)[1])

    def _put(self, fs: Any, there: Any, content: bytes, *, is_replaced: bool = True) -> None:
        stream = fs.create(there, is_replaced)
        stream.write(content)
        stream.close()

    def _open(self, path: str) -> tuple[Any, Any]:
        with _as_config_error(path):
            there = self._jvm.org.apache.hadoop.fs.Path(path)
            return there.getFileSystem(self._conf), there


class ArrowFiles:
    """Files of a store that Arrow knows, without Java. `create` is not conditional: it looks, then writes."""

    def __init__(self, location: str) -> None:
        try:
            self._fs = arrow_file_system(location)[0]
        except ImportError as error:
            raise ConfigError(f"{location}: without a Spark session this needs pip install 'ottla[arrow]'") from error
        except (OSError, ValueError) as error:
            raise ConfigError(f"{location}: found no file system for it without a Spark session: {error}") from error

    def read(self, path: str) -> bytes | None:
        from pyarrow.fs import FileType

        with _as_config_error(path):
            info = self._fs.get_file_info(_key(path))
            if info.type is not FileType.File:
                return None
            _bounded(path, info.size)
            with self._fs.open_input_stream(_key(path)) as stream:
                return bytes(stream.read())

    def names(self, folder: str) -> list[str]:
        from pyarrow.fs import FileSelector

        with _as_config_error(folder):
            found = self._fs.get_file_info(FileSelector(_key(folder), allow_not_found=True))
            return sorted(info.base_name for info in found)

    def write(self, path: str, content: bytes) -> None:
        with _as_config_error(path), self._fs.open_output_stream(_key(path)) as stream:
            stream.write(content)

    def create(self, path: str, content: bytes) -> bool:
        if self.read(path) is not None:
            return False
        self.write(path, content)
        return True

    def delete(self, path: str) -> None:
        from pyarrow.fs import FileType

        with _as_config_error(path):
            kind = self._fs.get_file_info(_key(path)).type
            if kind is FileType.File:
                self._fs.delete_file(_key(path))
            elif kind is FileType.Directory:
                self._fs.delete_dir(_key(path))

    def move(self, source: str, target: str) -> None:
        from pyarrow.fs import FileSelector

        with _as_config_error(source):
            for info in self._fs.get_file_info(FileSelector(_key(source), recursive=True)):
                if info.is_file:
                    self._fs.copy_file(info.path, f"{_key(target)}{info.path.removeprefix(_key(source))}")
            self._fs.delete_dir(_key(source))


def arrow_file_system(location: str) -> tuple[Any, str]:
    """Return Arrow's file system for this address, and the address in it. Without Spark, also on executors."""
    from pyarrow import fs

    if is_local(location):
        return fs.LocalFileSystem(), str(local_path(location).absolute())
    scheme = urlsplit(location).scheme
    if scheme not in ("s3", "s3a", "s3n"):
        return fs.FileSystem.from_uri(location)[0], _key(location)
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    store = fs.S3FileSystem(
        region=region or ("us-east-1" if endpoint else fs.resolve_s3_region(urlsplit(location).netloc)),
        endpoint_override=endpoint,
    )
    return store, _key(location)


def _key(location: str) -> str:
    """Return an address as Arrow's file systems have it: bucket and key."""
    parts = urlsplit(location)
    return f"{parts.netloc}{parts.path}".rstrip("/")


def _session() -> Any:
    """Return the session of this process whose JVM is here; None without one. Loads nothing."""
    module = sys.modules.get("pyspark.sql")
    if module is None:
        return None
    session = module.SparkSession.getActiveSession() or getattr(module.SparkSession, "_instantiatedSession", None)
    return None if getattr(session, "_jvm", None) is None else session


def _bounded(path: str, size: int) -> None:
    if size > LARGEST:
        raise ConfigError(f"{path}: found {size:,} bytes, wanted at most {LARGEST:,}: this is no file of a checkpoint")


@contextmanager
def _as_config_error(path: str) -> Iterator[None]:
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
