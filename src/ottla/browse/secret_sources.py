"""Sources of secrets that stand in no file: a variable of the environment, or the first line that a command prints.

A source is ("env", variable), or ("command", program, argument, ...). What a command printed is in no error.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.errors import ConfigError
from ottla.lazy import LazyModule

if TYPE_CHECKING:
    import shlex
    import subprocess
else:  # of most commands, which have no secret
    shlex, subprocess = map(LazyModule, ("shlex", "subprocess"))

COMMAND: Final = "_command"
ENVIRONMENT: Final = "_env"
"""How names in a file end that say where a secret comes from: `password_command`, `password_env`."""
_COMMAND_S: Final = 60.0


def secret_of(source: Sequence[str], *, where: str, environ: Mapping[str, str] | None = None) -> str:
    """Return the secret of a source. ConfigError names the place in the file, and what failed."""
    kind, *arguments = source
    if kind != "env":
        return _printed_by(arguments, where=where + COMMAND)
    value = (os.environ if environ is None else environ).get(arguments[0])
    if value is None:
        raise ConfigError(f"{where}{ENVIRONMENT}: {arguments[0]} is not set in the environment")
    return value


def command_arguments(value: Any, where: str) -> list[str]:
    """Return a command in a file as its arguments: a list of them, or a line as a shell splits it."""
    if isinstance(value, str):
        try:
            value = shlex.split(value)
        except ValueError as error:
            raise ConfigError(f"{where}: found a command that cannot be read: {error}") from None
    if not isinstance(value, list) or not value or not all(isinstance(part, str) for part in value):
        raise ConfigError(f'{where}: wanted a command, as in ["pass", "show", "kafka/prod"]')
    return value


def _printed_by(command: list[str], *, where: str) -> str:
    try:
        ended = subprocess.run(command, stdout=subprocess.PIPE, timeout=_COMMAND_S, check=False)
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        problem = f"took longer than {_COMMAND_S:g} s" if isinstance(error, subprocess.TimeoutExpired) else str(error)
        raise ConfigError(f"{where}: {command[0]}: {problem}") from None
    if ended.returncode:
        raise ConfigError(f"{where}: {command[0]} ended with {ended.returncode}")
    try:
        value = ended.stdout.decode("utf-8").split("\n", 1)[0].rstrip("\r")
    except UnicodeDecodeError:
        raise ConfigError(f"{where}: {command[0]} printed bytes that are not UTF-8") from None
    if not value:
        raise ConfigError(f"{where}: {command[0]} printed nothing")
    return value


def refuse_if_others_write(path: Path, found: os.stat_result) -> None:
    """Raise ConfigError for a file that names commands, and that another user owns or may write."""
    if os.name != "posix":
        return
    if found.st_uid not in (os.getuid(), 0):
        raise ConfigError(f"{path}: another user owns it, and it names commands that would be run")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ConfigError(
            f"{path}: others may write it (mode {stat.S_IMODE(found.st_mode):o}), and it names commands that would be"
            f" run: chmod 600 {path}"
        )
