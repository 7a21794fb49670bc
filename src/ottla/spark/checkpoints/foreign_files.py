"""Small files of a checkpoint on storage that is not this machine's: by Hadoop with a session, by Arrow without."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import urlsplit

from ottla.errors import ConfigError
from ottla.retrying import try_again
from ottla.spark.checkpoints.files import as_config_error, bounded, is_local, local_path

_READS: Final = 6
"""How often a read is tried. Arrow repeats other requests itself; it takes a 503 with a text that is longer than the
file for a broken stream, and does not repeat that. Hadoop repeats requests too, but not a read that met a change, nor,
on S3A, one whose connection was closed in the middle of the content."""
_REPLACED: Final = ("java.io.FileNotFoundException", "org.apache.hadoop.fs.ChecksumException")
"""What Hadoop says of a file that is deleted or replaced between two steps of a read. A local one has a checksum in a
file of its own, which is replaced a moment later."""
_RENAMES: Final = ("file", "hdfs", "viewfs", "webhdfs")
"""Hadoop's file systems in which a rename is one step, and a file that is being written can be seen."""

_CREATES: Final = ("hdfs", "webhdfs")
"""Hadoop's file systems that create a file by one request to the NameNode, which refuses one that exists."""
_CONDITIONAL: Final = "fs.option.create.conditional.overwrite"


class HadoopFiles:
    """Files of any file system that the session's Hadoop knows."""

    def __init__(self, spark: Any, location: str) -> None:
        self._location = location
        self._jvm = spark._jvm
        self._gateway = spark.sparkContext._gateway
        self._conf = spark._jsparkSession.sessionState().newHadoopConf()

    @property
    def is_create_conditional(self) -> bool:
        """Return whether the file system of the location creates in one step. Others may look first, then write."""
        with as_config_error(self._location):
            fs, there = self._mounted(self._location)
            return fs.getScheme() in _CREATES or bool(fs.hasPathCapability(there, _CONDITIONAL))

    def read(self, path: str) -> bytes | None:
        with as_config_error(path):
            fs, there = self._open(path)
            return try_again(
                lambda: self._content(path, fs, there),
                what=f"content of {path}",
                errors=(OSError,),
                attempts=_READS,
            )

    def _content(self, path: str, fs: Any, there: Any) -> bytes | None:
        """Return the content, or None. Raises OSError where the file was replaced or deleted meanwhile, or its content
        was cut off."""
        with _as_os_error(*_REPLACED):
            return self._content_now(path, fs, there)

    def _content_now(self, path: str, fs: Any, there: Any) -> bytes | None:
        if not fs.exists(there):
            return None
        status = fs.getFileStatus(there)
        if status.isDirectory():
            return None
        bounded(path, status.getLen())
        stream = fs.open(there)
        try:
            with _as_os_error():
                return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def names(self, folder: str) -> list[str]:
        with as_config_error(folder):
            fs, there = self._open(folder)
            if not fs.exists(there) or not fs.getFileStatus(there).isDirectory():
                return []
            return sorted(str(status.getPath().getName()) for status in fs.listStatus(there))

    def write(self, path: str, content: bytes) -> None:
        """By one request to an object store, which is atomic. Elsewhere a file beside it takes its place by a rename;
        Spark's own `createAtomic` leaves a file that exists as it is.
        """
        with as_config_error(path):
            fs, there = self._open(path)
            if fs.getScheme() not in _RENAMES:
                self._put(fs, there, content)
                return
            fs.mkdirs(there.getParent())
            scratch = self._jvm.org.apache.hadoop.fs.Path(there.getParent(), f".{there.getName()}.{uuid.uuid4().hex}")
            self._put(fs, scratch, content)
            hadoop = self._jvm.org.apache.hadoop.fs
            overwrite = self._gateway.new_array(getattr(hadoop, "Options$Rename"), 1)
            overwrite[0] = getattr(hadoop, "Options$Rename").OVERWRITE
            hadoop.FileContext.getFileContext(there.toUri(), self._conf).rename(scratch, there, overwrite)

    def create(self, path: str, content: bytes) -> bool:
        """By one conditional request where the file system has it, see `is_create_conditional`."""
        try:
            with as_config_error(path):
                fs, folder = self._mounted(path.rpartition("/")[0], make=True)
                there = self._jvm.org.apache.hadoop.fs.Path(folder, path.rpartition("/")[2])
                # S3A takes `create(path, overwrite=False)` as: look, then write. Only this option makes it one request.
                builder = fs.createFile(there).overwrite(False).recursive().opt(_CONDITIONAL, "true")
                self._fill(builder.build(), content)
        except ConfigError:
            if self.read(path) is None:
                raise
            return False
        return True

    def delete(self, path: str) -> None:
        with as_config_error(path):
            fs, there = self._open(path)
            fs.delete(there, True)

    def move(self, source: str, target: str) -> None:
        with as_config_error(source):
            fs, there = self._open(source)
            fs.rename(there, self._open(target)[1])

    def _put(self, fs: Any, there: Any, content: bytes) -> None:
        self._fill(fs.create(there, True), content)

    def _fill(self, stream: Any, content: bytes) -> None:
        stream.write(content)
        stream.close()

    def _mounted(self, folder: str, *, make: bool = False) -> tuple[Any, Any]:
        """Return the file system that `viewfs` mounts here, and the folder in it. `viewfs` itself promises what that
        one can do, and drops the option that asks for it."""
        fs, there = self._open(folder)
        if fs.getScheme() != "viewfs":
            return fs, there
        if make:
            fs.mkdirs(there)  # only what is there has a file system behind it
        if not fs.exists(there):
            return fs, there
        target = fs.resolvePath(there)
        return target.getFileSystem(self._conf), target

    def _open(self, path: str) -> tuple[Any, Any]:
        with as_config_error(path):
            there = self._jvm.org.apache.hadoop.fs.Path(path)
            return there.getFileSystem(self._conf), there


@contextmanager
def _as_os_error(*kinds: str) -> Iterator[None]:
    """Raise OSError for Java's exceptions of these kinds; without kinds, for all of them."""
    try:
        yield
    except Exception as error:
        java: Any = getattr(error, "java_exception", None)
        if java is not None and (not kinds or java.getClass().getName() in kinds):
            raise OSError(java.toString()) from error
        raise


class ArrowFiles:
    """Files of a store that Arrow knows, without Java. `create` looks, then writes."""

    is_create_conditional = False

    def __init__(self, location: str) -> None:
        try:
            self._fs = arrow_file_system(location)[0]
        except ImportError as error:
            raise ConfigError(f"{location}: without a Spark session this needs pip install 'ottla[arrow]'") from error
        except (OSError, ValueError) as error:
            raise ConfigError(f"{location}: found no file system for it without a Spark session: {error}") from error

    def read(self, path: str) -> bytes | None:
        from pyarrow.fs import FileType

        with as_config_error(path):
            info = self._fs.get_file_info(_key(path))
            if info.type is not FileType.File:
                return None
            bounded(path, info.size)
            return try_again(
                lambda: self._content(path),
                what=f"content of {path}",
                errors=(OSError,),
                attempts=_READS,
            )

    def _content(self, path: str) -> bytes:
        with self._fs.open_input_stream(_key(path)) as stream:
            return bytes(stream.read())

    def names(self, folder: str) -> list[str]:
        from pyarrow.fs import FileSelector

        with as_config_error(folder):
            found = self._fs.get_file_info(FileSelector(_key(folder), allow_not_found=True))
            return sorted(info.base_name for info in found)

    def write(self, path: str, content: bytes) -> None:
        with as_config_error(path), self._fs.open_output_stream(_key(path)) as stream:
            stream.write(content)

    def create(self, path: str, content: bytes) -> bool:
        if self.read(path) is not None:
            return False
        self.write(path, content)
        return True

    def delete(self, path: str) -> None:
        from pyarrow.fs import FileType

        with as_config_error(path):
            kind = self._fs.get_file_info(_key(path)).type
            if kind is FileType.File:
                self._fs.delete_file(_key(path))
            elif kind is FileType.Directory:
                self._fs.delete_dir(_key(path))

    def move(self, source: str, target: str) -> None:
        from pyarrow.fs import FileSelector

        with as_config_error(source):
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
        # A small file is then one request, which may be repeated. As three, the last one fails when it is repeated
        # after a lost answer, on stores that forget an upload when it is complete.
        allow_delayed_open=True,
    )
    return store, _key(location)


def _key(location: str) -> str:
    """Return a location as Arrow's file systems name it: bucket and key."""
    parts = urlsplit(location)
    return f"{parts.netloc}{parts.path}".rstrip("/")
