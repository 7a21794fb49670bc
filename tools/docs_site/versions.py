"""Sites of several versions beside each other, in the layout that the theme's version menu reads (that of mike).

versions/versions.json     [{"version": "0.2", "title": "0.2", "aliases": ["latest"]}, ...], the newest first
versions/0.2/...           the site of a version
versions/latest/...        a copy of the newest one's, for addresses that last
versions/index.html        goes to latest/
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

LATEST = "latest"
_TO_LATEST = f'<!doctype html><meta http-equiv="refresh" content="0; url={LATEST}/"><title>Ottla</title>\n'


def add_version(site: Path, folder: Path, version: str) -> None:
    """Put a built site beside those of other versions. A version that is there already is replaced.

    Raises ValueError for a version that is not numbers with dots between them, as in ``0.2``.
    """
    if not re.fullmatch(r"\d+(\.\d+)+", version):
        raise ValueError(f"found version {version!r}, wanted numbers with dots between them, as in 0.2")
    folder.mkdir(parents=True, exist_ok=True)
    _replace(site, folder / version)
    found = sorted((path.name for path in folder.iterdir() if path.name[0].isdigit()), key=_numbers, reverse=True)
    if found[0] == version:
        _replace(site, folder / LATEST)
    listed = [{"version": each, "title": each, "aliases": [LATEST] if each == found[0] else []} for each in found]
    (folder / "versions.json").write_text(json.dumps(listed, indent=1) + "\n", encoding="utf-8")
    (folder / "index.html").write_text(_TO_LATEST, encoding="utf-8")


def _replace(site: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(site, target)


def _numbers(version: str) -> list[int]:
    return list(map(int, version.split(".")))
