"""Checks of the built site: every link inside it leads to a page and an anchor, and no page loads from elsewhere."""

from __future__ import annotations

import functools
import posixpath
from collections import defaultdict
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


@dataclass
class Page:
    """What a page links to, what it loads, and the anchors that others may link to."""

    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page = Page()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if "id" in given:
            self.page.anchors.add(given["id"])
        if tag == "a" and "name" in given:
            self.page.anchors.add(given["name"])
        if tag == "a" and "href" in given:
            self.page.links.append(given["href"])
        if tag in ("img", "script", "iframe", "source") and "src" in given:
            self.page.loads.append(given["src"])
        if tag == "link" and given.get("rel") not in ("canonical", "next", "prev", "edit"):
            self.page.loads.append(given.get("href", ""))


def read_page(path: Path) -> Page:
    reader = _Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    return reader.page


def problems(site: Path) -> list[str]:
    """One line for each link or file that leads nowhere, and for each thing that is loaded from elsewhere."""
    pages = {str(path): read_page(path) for path in sorted(site.rglob("*.html"))}
    places = _Places(str(site))
    found = defaultdict(list)
    for path, page in pages.items():
        if posixpath.basename(path) == "404.html":  # its addresses begin at the site's root, wherever that will be
            continue
        for target in page.loads:
            if urlsplit(target).scheme in ("http", "https") or target.startswith("//"):
                found[f"loads {target}"].append(path)
            elif not target.startswith("data:") and not places.has(places.aim(path, target)):
                found[f"loads {target}, which is not there"].append(path)
        for target in page.links:
            split = urlsplit(target)
            if split.scheme or split.netloc:
                continue
            aim = places.aim(path, target)
            if aim not in pages and not places.has(aim):
                found[f"links to {target}, which is not there"].append(path)
            elif split.fragment and aim in pages and unquote(split.fragment) not in pages[aim].anchors:
                found[f"links to {target}, which has no such anchor"].append(path)
    return [f"{Path(paths[0]).relative_to(site)}: {what}{_more(paths)}" for what, paths in sorted(found.items())]


class _Places:
    """Where links of a site lead. Each page links to all of the navigation: a file is looked for once, as text."""

    def __init__(self, site: str) -> None:
        self._site = site
        self.has = functools.cache(posixpath.exists)
        self._is_dir = functools.cache(posixpath.isdir)

    def aim(self, page: str, target: str) -> str:
        path = unquote(urlsplit(target).path)
        if not path:
            return page
        start = self._site if path.startswith("/") else posixpath.dirname(page)
        aim = posixpath.normpath(f"{start}/{path}")
        return f"{aim}/index.html" if self._is_dir(aim) else aim


def _more(paths: list[str]) -> str:
    return f" (and on {len(paths) - 1} other pages)" if len(paths) > 1 else ""
