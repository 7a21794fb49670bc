"""Stdout and stderr of a command: what happens where their reader has gone, or the disk behind them is full.

1. A command goes on without them: what it was asked to change is changed, and its exit code stays what it found.
2. A reader that has gone (`| head`) is nothing to complain of. Any other failure of stdout (a full disk, a descriptor
   that was closed before the start) is one line on stderr, and exit code 1 in place of 0.
3. A command that only prints, for long or for ever, calls `end_without_reader`, and ends when it fails to print.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import click

_READER_GONE: Final = (errno.EPIPE, errno.ECONNRESET)
_SOMETHING_FAILED: Final = 1
_NOTHING_EVENTFUL: Final = 0
"""poll() reports an error, which a pipe without a reader is, whatever it was asked for."""


class _Channel:
    """State of stdout or stderr: whether it has failed, and how a failure is handled."""

    def __init__(self, name: str, stream: Any) -> None:
        self.name = name
        self.failure: OSError | None = None if stream is not None else OSError(errno.EBADF, "it is closed")
        self.is_reported = False
        self.ends_command = False
        # Opening takes the lowest descriptor that is free: the closed one, which no socket can get then.
        self.stream = stream if stream is not None else os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")

    def failed(self, error: OSError) -> None:
        """Note a failure at the first write that meets it. Raises `Exit` where nothing but printing is left to do."""
        if self.failure is None:
            self.failure = error
            discard(self.stream)
        if not self.is_reported:
            self.is_reported = True
            if self.name == "stdout" and not self.has_lost_reader:
                click.echo(f"ottla: cannot write to stdout: {self.failure.strerror}", err=True)
        if self.ends_command:
            raise click.exceptions.Exit(0 if self.has_lost_reader else _SOMETHING_FAILED)

    @property
    def has_lost_reader(self) -> bool:
        return self.failure is not None and self.failure.errno in _READER_GONE


class GuardedStream:
    """A text stream, or the binary one below it, that fails once and is silent from then on.

    Everything but writing is the stream's own.
    """

    def __init__(self, stream: Any, channel: _Channel) -> None:
        self._stream = stream
        self.channel = channel
        below = getattr(stream, "buffer", None)
        if below is not None:
            self.buffer = GuardedStream(below, channel)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: Any) -> int:
        """Write, and return the length of all; also where nothing is written any more."""
        channel = self.channel
        if channel.failure is not None:
            channel.failed(channel.failure)
            return len(text)
        try:
            self._stream.write(text)
        except OSError as error:
            channel.failed(error)
        return len(text)

    def writelines(self, lines: Iterable[Any]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        channel = self.channel
        if channel.failure is not None:
            return
        try:
            self._stream.flush()
        except OSError as error:
            channel.failed(error)

    def isatty(self) -> bool:
        return self.channel.failure is None and bool(self._stream.isatty())


@contextlib.contextmanager
def guarded_streams() -> Iterator[Callable[[int], int]]:
    """Guard both while the block lasts. Yields what makes the exit code of a command's own."""
    before = sys.stdout, sys.stderr
    out, err = (_Channel(name, getattr(sys, name)) for name in ("stdout", "stderr"))
    guarded = GuardedStream(out.stream, out)
    sys.stdout, sys.stderr = guarded, GuardedStream(err.stream, err)

    def exit_code(code: int) -> int:
        out.ends_command = False
        with contextlib.suppress(ValueError):  # closed by the service that ran
            guarded.flush()
        is_lost = out.is_reported and not out.has_lost_reader
        return _SOMETHING_FAILED if is_lost and code == 0 else code

    try:
        yield exit_code
    finally:
        sys.stdout, sys.stderr = before


def as_they_were() -> None:
    """Give both back to a program that is not the command's: a service prints as it does without `ottla`."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, GuardedStream):
            setattr(sys, name, stream.channel.stream)


def end_without_reader() -> None:
    """End the command at the first failure to print: its only purpose is to print."""
    channel = _stdout()
    if channel is not None:
        channel.ends_command = True


def has_failed() -> bool:
    """Return whether something was to be printed, and could not be."""
    channel = _stdout()
    return channel is not None and channel.failure is not None and channel.is_reported


def wait_for_reader(seconds: float) -> bool:
    """Sleep. Returns False, at once, if the reader of stdout has gone."""
    channel = _stdout()
    if channel is not None and channel.failure is not None:
        return False
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), _NOTHING_EVENTFUL)
        is_gone = bool(poll.poll(seconds * 1000))
    except (AttributeError, OSError, ValueError):  # no poll here, or no file
        time.sleep(seconds)
        return True
    if is_gone and channel is not None:
        channel.failed(OSError(errno.EPIPE, os.strerror(errno.EPIPE)))
    return not is_gone


def discard(stream: Any) -> None:
    """Redirect the stream to nowhere, so that buffered output cannot fail when the interpreter flushes it at exit."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
    except (OSError, ValueError):  # no file
        pass


def _stdout() -> _Channel | None:
    return sys.stdout.channel if isinstance(sys.stdout, GuardedStream) else None
