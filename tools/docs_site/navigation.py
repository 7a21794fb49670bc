"""The navigation of the site: what `mkdocs.yml` lists, completed by the pages that it does not list.

A page that is new belongs to the section of its folder: whoever writes a page need not touch `mkdocs.yml`. A folder
that no section lists becomes a section of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any


def completed(nav: list[Any], pages: Iterable[str], titles: dict[str, str]) -> list[Any]:
    """`nav` with every page of `pages`, each after its neighbours of the same folder, by title."""
    listed = set(paths_in(nav))
    for page in sorted(set(pages) - listed, key=lambda each: titles.get(each, each).lower()):
        _section_of(nav, str(PurePosixPath(page).parent)).append({titles.get(page, page): page})
    return nav


def paths_in(nav: Any) -> Iterator[str]:
    """The pages that a navigation lists, in its order."""
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict):
        for value in nav.values():
            yield from paths_in(value)
    else:
        for each in nav:
            yield from paths_in(each)


def title_of(page: Path) -> str:
    """The first heading, without its markup."""
    found = re.search(r"^# (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return re.sub(r"[`*]", "", found[1]) if found else page.stem


def _section_of(nav: list[Any], folder: str) -> list[Any]:
    """The list that holds pages of this folder, or of the nearest folder above it."""
    found = _holder(nav, folder)
    if found is not None:
        return found
    if folder == ".":
        return nav
    parent = str(PurePosixPath(folder).parent)
    above = nav if parent == "." else _section_of(nav, parent)
    section: list[Any] = []
    above.append({PurePosixPath(folder).name.replace("-", " ").capitalize(): section})
    return section


def _holder(nav: list[Any], folder: str) -> list[Any] | None:
    for each in nav:
        own = next(iter(each.values())) if isinstance(each, dict) else each
        if isinstance(own, str) and str(PurePosixPath(own).parent) == folder:
            return nav
    for each in nav:
        own = next(iter(each.values())) if isinstance(each, dict) else each
        if isinstance(own, list) and (found := _holder(own, folder)) is not None:
            return found
    return None
