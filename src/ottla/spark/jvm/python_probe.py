"""Which Python Spark asks for the data source `ottla`, and what to say where that one does not have it.

Spark starts a Python of its own beside the driver to look data sources up: PYSPARK_DRIVER_PYTHON, else PYSPARK_PYTHON,
else the `python3` of the PATH; on executors PYSPARK_PYTHON or `python3`. It is not the one that runs the driver's
program: where a virtual environment is not activated, Spark says only that it finds no data source.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ottla.errors import ConfigError

_VARIABLES: Final = ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON")
_LOOKS: Final = "import importlib.util, sys; sys.exit(0 if importlib.util.find_spec('pyspark_ottla') else 3)"
_LACKS: Final = 3
_START_S: Final = 30.0


class RequestedPython(NamedTuple):
    """A Python that Spark starts, and what said so."""

    program: str
    said_by: str

    def __str__(self) -> str:
        return f"{self.program} ({self.said_by})"


def requested_python(environ: Mapping[str, str | None]) -> RequestedPython:
    """Return the one that is asked on the driver's machine, by the environment of its JVM."""
    for name in _VARIABLES:
        program = environ.get(name)
        if program:
            return RequestedPython(program, name)
    return RequestedPython("python3", "from the PATH, as neither PYSPARK_DRIVER_PYTHON nor PYSPARK_PYTHON is set")


def python_of_the_jvm(spark: Any) -> RequestedPython | None:
    """Return the Python that a session requests; None if unknown, as in Spark Connect: it is the server's."""
    try:
        environment = spark._jvm.System
        return requested_python({name: environment.getenv(name) for name in _VARIABLES})
    except Exception:
        return None


def check_python(asked: RequestedPython) -> None:
    """Raise `ConfigError` when this Python cannot be started, or starts without Ottla."""
    try:
        ended = subprocess.run([asked.program, "-c", _LOOKS], capture_output=True, timeout=_START_S, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        raise ConfigError(f"Spark's Python is {asked}, which cannot be started: {error}") from error
    if ended.returncode == _LACKS:
        raise lacks_the_package(asked)


def lacks_the_package(asked: RequestedPython | None) -> ConfigError:
    """Return the error for a Python that Spark starts without `ottla`."""
    which = "the Python of the Spark Connect server" if asked is None else f"{asked}"
    return ConfigError(
        f"Spark asked {which} for the data source 'ottla', and the package is not there. Install ottla[spark] in it, "
        "or set PYSPARK_PYTHON (for executors, on their machines) and PYSPARK_DRIVER_PYTHON to a Python that has it, "
        "before the session starts: export PYSPARK_DRIVER_PYTHON=$(which python)"
    )


def is_not_found(error: BaseException) -> bool:
    """Return whether Spark reports that it finds no data source `ottla`."""
    text = str(error)
    return "DATA_SOURCE_NOT_FOUND" in text and "ottla" in text
