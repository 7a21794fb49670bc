"""Which Python Spark starts for the data source `ottla`, and what to say where that one does not have it.

A source that is registered (`registration.py`) is planned beside the driver and run on executors by one Python,
PYSPARK_PYTHON, else the `python3` of the PATH: each machine must have it under that name. It is not the one that runs
the driver's program. Where nobody registers the source, Spark looks for it with PYSPARK_DRIVER_PYTHON, if that is set.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from ottla.errors import ConfigError

_LOOKS: Final = "import importlib.util, sys; sys.exit(0 if importlib.util.find_spec('pyspark_ottla') else 3)"
_LACKS: Final = 3
_START_S: Final = 30.0


class RequestedPython(NamedTuple):
    """A Python that Spark starts, and what said so."""

    program: str
    said_by: str

    def __str__(self) -> str:
        return f"{self.program} ({self.said_by})"


def requested_python(environ: Mapping[str, str]) -> RequestedPython:
    """Return the one that plans and runs the source, by the environment of the driver's program."""
    program = environ.get("PYSPARK_PYTHON")
    if program:
        return RequestedPython(program, "PYSPARK_PYTHON")
    return RequestedPython("python3", "from the PATH, as PYSPARK_PYTHON is not set")


def check_python(asked: RequestedPython) -> None:
    """Raise `ConfigError` when this Python cannot be started here, or starts without Ottla."""
    try:
        ended = subprocess.run([asked.program, "-c", _LOOKS], capture_output=True, timeout=_START_S, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        raise cannot_be_started(asked, str(error)) from error
    if ended.returncode == _LACKS:
        raise lacks_the_package(asked)


def cannot_be_started(asked: RequestedPython, reason: str) -> ConfigError:
    """Return the error for a Python that is not on the driver's machine, with the command that puts it there."""
    return ConfigError(
        f"Spark's Python is {asked}, which cannot be started here: {reason}. Spark plans the source beside the driver"
        f" with the Python of the executors, so both need one under this name; here by: {_link(asked.program)}"
    )


def lacks_the_package(asked: RequestedPython | None) -> ConfigError:
    """Return the error for a Python that Spark starts without `ottla`."""
    which = "the Python of the Spark Connect server" if asked is None else f"{asked}"
    return ConfigError(
        f"Spark asked {which} for the data source 'ottla', and the package is not there. Install ottla[spark] in it, "
        "or set PYSPARK_PYTHON to a Python that has it, on the driver's machine and on those of executors, before the"
        f" session starts: export PYSPARK_PYTHON={shlex.quote(sys.executable)}"
    )


def explained(error: BaseException, spark: Any) -> ConfigError | None:
    """Return a `ConfigError` that says how to fix an error of Spark that is caused by its Python; None for any other
    error."""
    text = str(error)
    is_connect = not hasattr(spark, "_jvm")
    asked = None if is_connect else requested_python(os.environ)
    if ("DATA_SOURCE_NOT_FOUND" in text and "ottla" in text) or any(
        f"No module named '{name}" in text for name in ("ottla", "pyspark_ottla")
    ):
        return lacks_the_package(asked)
    if asked is not None and f'Cannot run program "{asked.program}"' in text:
        return cannot_be_started(asked, "No such file or directory")
    return None


def _link(program: str) -> str:
    """Return the command that makes this Python one of `program`'s name."""
    path = Path(program)
    if path.parts[-2:-1] == ("bin",) and len(path.parts) > 2:  # an unpacked environment
        return f"ln -s {shlex.quote(sys.prefix)} {shlex.quote(str(path.parent.parent))}"
    return f"ln -s {shlex.quote(sys.executable)} {shlex.quote(program)}"
