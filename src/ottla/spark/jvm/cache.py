"""Small programs that Ottla writes once and Spark starts: the folder for them, and writing one as a whole."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path


def cache_folder() -> Path:
    """Return `~/.cache/ottla`, or a temporary folder if the home cannot be written."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    try:
        folder = cache / "ottla"
        folder.mkdir(parents=True, exist_ok=True)
        return folder
    except OSError:
        return Path(tempfile.mkdtemp(prefix="ottla-"))


def write_program(path: Path, text: str) -> Path:
    """Write an executable script with this text, and return its path. Another process may be executing the existing
    one."""
    if not path.is_file() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_name(f"{path.name}.{os.getpid()}")
        scratch.write_text(text)
        scratch.chmod(scratch.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        scratch.replace(path)
    return path
