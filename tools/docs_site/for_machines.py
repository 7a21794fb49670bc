"""Files for programs that read documentation: `llms.txt`, `llms-full.txt`, and the Markdown of each page beside it.

`llms.txt` is an index: a title, what the project is, and a line for each page, in the order of the navigation. The page
`how-to/consuming/` is `how-to/consuming.md` as Markdown, with relative links to such files. `llms-full.txt` has all
pages that are written by hand, one after the other.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from docs_site.navigation import paths_in, title_of
from docs_site.project import address, project

_ENTRY = re.compile(r"^::: (\S+)\n((?:    .*\n)*)", re.MULTILINE)
_MADE_OF_CODE = ("reference/api/", "reference/cli/")


def write_for_machines(build: Path, site: Path) -> None:
    """Write the files into `site`, from the pages and the navigation in `build`."""
    pages = build / "docs"
    config = yaml.safe_load((build / "mkdocs.yml").read_text(encoding="utf-8"))
    listed = list(dict.fromkeys(paths_in(config["nav"])))
    for name in listed:
        target = site / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_plain((pages / name).read_text(encoding="utf-8")), encoding="utf-8")
    (site / "llms.txt").write_text(_index(config, pages), encoding="utf-8")
    whole = [(site / name).read_text(encoding="utf-8") for name in listed if not name.startswith(_MADE_OF_CODE)]
    (site / "llms-full.txt").write_text("\n\n---\n\n".join(text.strip() for text in whole) + "\n", encoding="utf-8")


def _index(config: dict[str, Any], pages: Path) -> str:
    start = (address("Documentation") or "").rstrip("/")
    prefix = f"{start}/" if start else ""
    lines = [f"# {config['site_name']}", "", f"> {project()['description']}.", ""]
    lines += ["`llms-full.txt` has all guides in one file.", ""]
    for section in config["nav"]:
        ((title, below),) = section.items() if isinstance(section, dict) else ((title_of(pages / section), section),)
        lines += [f"## {title}", ""]
        for name in paths_in(below):
            words = _first_sentence((pages / name).read_text(encoding="utf-8"))
            lines.append(f"- [{title_of(pages / name)}]({prefix}{name}){f': {words}' if words else ''}")
        lines.append("")
    return "\n".join(lines)


def _first_sentence(text: str) -> str:
    """Return the first sentence of a page's first paragraph, without markup."""
    body = re.sub(r"^```.*?^```|<!--.*?-->", "", text, flags=re.DOTALL | re.MULTILINE)
    for paragraph in re.split(r"\n\s*\n", body):
        words = " ".join(paragraph.split())
        if words and words[0] not in "#|!:<-1":
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", words).replace("*", "")
            return re.split(r"(?<=[.?!]) ", plain)[0][:200]
    return ""


def _plain(text: str) -> str:
    """Return a page with entries of the API reference as signatures and docstrings."""
    return _ENTRY.sub(lambda found: _entry(found[1], found[2]), text)


def _entry(name: str, options: str) -> str:
    heading = re.search(r"heading: (\S+)", options)
    inherited = re.search(r"inherited_members: (\[.*\])", options)
    module, _, attribute = name.rpartition(".")
    found = getattr(importlib.import_module(module), attribute)
    lines = [f"## `{heading[1] if heading else name}`", ""]
    lines += _described(found, attribute)
    if inspect.isclass(found):
        also = json.loads(inherited[1]) if inherited else []
        for member, value in _members(found, also):
            lines += [f"### `{attribute}.{member}`", "", *_described(value, member)]
    return "\n".join(lines)


def _members(owner: type, also: list[str]) -> Iterator[tuple[str, Any]]:
    for member in [*vars(owner), *also]:
        value = inspect.getattr_static(owner, member, None)
        value = getattr(value, "__func__", value)
        if not member.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
            yield member, value


def _described(found: Any, name: str) -> list[str]:
    try:
        signature = f"{name}{inspect.signature(found)}".replace("'", "")
    except (TypeError, ValueError):
        signature = ""
    lines = ["```python", signature, "```", ""] if signature else []
    words = inspect.getdoc(found) if callable(found) or isinstance(found, property) else None
    return [*lines, words, ""] if words else lines
