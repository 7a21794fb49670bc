"""The directory of a cluster whose data nobody keeps.

`tempfile` and `shutil` load what takes archives apart, which a start need not wait for: they are imported where they
are needed, and so is `pathlib`.
"""

from __future__ import annotations

import os
import sys

REMOVERS = 8
MANY_PARTITIONS = 100

_PREFIX = "ottla-broker-"


def make() -> str:
    """Return a new private directory in TMPDIR or in the default directory of `tempfile`, which a program may have
    set."""
    if "tempfile" in sys.modules:
        return _made_by_tempfile()
    path = os.path.abspath(f"{os.environ.get('TMPDIR') or '/tmp'}/{_PREFIX}{os.urandom(8).hex()}")
    try:
        os.mkdir(path, 0o700)
    except OSError:
        return _made_by_tempfile()
    return path


def _made_by_tempfile() -> str:
    import tempfile

    return tempfile.mkdtemp(prefix=_PREFIX)


def remove(directory: str) -> None:
    """Remove a folder with several threads: ten thousand partitions have thirty thousand files."""
    import shutil
    from pathlib import Path

    partitions = list(Path(directory).glob("*/*-*"))
    if len(partitions) > MANY_PARTITIONS:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(REMOVERS) as removers:
            for each in partitions:
                removers.submit(shutil.rmtree, each, ignore_errors=True)
    shutil.rmtree(directory, ignore_errors=True)
