"""Checks of the built site: every link inside it leads to a page and an anchor, and no page loads from elsewhere."""

from __future__ import annotations

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
    pages = {path: read_page(path) for path in sorted(site.rglob("*.html"))}
    found = defaultdict(list)
    for path, page in pages.items():
        if path.name == "404.html":  # its addresses begin at the site's root, wherever that will be
            continue
        for target in page.loads:
            if urlsplit(target).scheme in ("http", "https") or target.startswith("//"):
                found[f"loads {target}"].append(path)
            elif not target.startswith("data:") and not _file(site, path, target).exists():
                found[f"loads {target}, which is not there"].append(path)
        for target in page.links:
            split = urlsplit(target)
            if split.scheme or split.netloc:
                continue
            aim = _file(site, path, target)
            if aim not in pages and not aim.exists():
                found[f"links to {target}, which is not there"].append(path)
            elif split.fragment and aim in pages and unquote(split.fragment) not in pages[aim].anchors:
                found[f"links to {target}, which has no such anchor"].append(path)
    return [f"{paths[0].relative_to(site)}: {what}" + _more(paths) for what, paths in sorted(found.items())]


def _file(site: Path, page: Path, target: str) -> Path:
    path = unquote(urlsplit(target).path)
    if not path:
        return page
    aim = (site / path.lstrip("/")) if path.startswith("/") else (page.parent / path)
    aim = aim.resolve()
    return aim / "index.html" if aim.is_dir() else aim


def _more(paths: list[Path]) -> str:
    return f" (and on {len(paths) - 1} other pages)" if len(paths) > 1 else ""
