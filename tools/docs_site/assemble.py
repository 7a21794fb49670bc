"""Everything that the site is built from, in one folder: pages of `docs/`, generated pages, and the configuration."""

from __future__ import annotations

import posixpath
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

import yaml

from docs_site.api_pages import api_pages
from docs_site.cli_pages import cli_pages
from docs_site.error_pages import error_pages
from docs_site.navigation import completed, title_of
from docs_site.project import ROOT, address, from_root
from docs_site.settings_page import settings_pages

DOCS = ROOT / "docs"
LEFT_OUT = {"changes"}
"""Folders of `docs/` that are no pages: fragments of the changelog."""

_LINK_OR_CODE = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)|`[^`]*`")


def assemble(build: Path, *, generated: dict[str, str] | None = None, has_versions: bool = False) -> Path:
    """Write `build/docs` and `build/mkdocs.yml`; returns the latter. `has_versions`: its pages get a menu of them."""
    pages = made_from_code() if generated is None else generated
    target = build / "docs"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    copy_pages(target, pages)
    return write_config(build, target, has_versions=has_versions)


def made_from_code() -> dict[str, str]:
    """The pages that nobody writes by hand."""
    return {**api_pages(), **cli_pages(), **settings_pages(), **error_pages(DOCS)}


def copy_pages(target: Path, generated: dict[str, str]) -> None:
    """The pages of `docs/`, the changelog and the generated ones. Links that would leave the site become plain text."""
    sources = [path for path in sorted(DOCS.rglob("*")) if path.is_file() and _is_in_site(path)]
    known = {path.relative_to(DOCS).as_posix() for path in sources} | set(generated) | {"changelog.md"}
    texts = {}
    for path in sources:
        name = path.relative_to(DOCS).as_posix()
        if path.suffix == ".md":
            texts[name] = path.read_text(encoding="utf-8")
        else:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target / name)
    texts |= generated  # of an error, the page in docs/ is a part of the generated one
    texts["changelog.md"] = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    for name, text in texts.items():
        page = target / name
        page.parent.mkdir(parents=True, exist_ok=True)
        written = within_site(name, text, known)
        if not page.exists() or page.read_text(encoding="utf-8") != written:
            page.write_text(written, encoding="utf-8")


def write_config(build: Path, target: Path, *, has_versions: bool = False) -> Path:
    """`mkdocs.yml` of the repository, with every page in its navigation."""
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    pages = sorted(path.relative_to(target).as_posix() for path in target.rglob("*.md"))
    titles = {page: title_of(target / page) for page in pages}
    config["nav"] = completed(config["nav"], pages, titles)
    config["docs_dir"], config["site_dir"] = "docs", "site"
    if found := address("Documentation"):
        config["site_url"] = found
    if has_versions:
        config["extra"] = {**config.get("extra", {}), "version": {"provider": "mike", "default": "latest"}}
    for path in _lists_of_paths(config):
        path[:] = map(from_root, path)
    written = build / "mkdocs.yml"
    written.write_text(yaml.safe_dump(config, sort_keys=False, allow_unicode=True), encoding="utf-8")
    return written


def _lists_of_paths(config: dict[str, list[object]]) -> Iterable[list[str]]:
    for plugin in config["plugins"]:
        if isinstance(plugin, dict) and "mkdocstrings" in plugin:
            python = plugin["mkdocstrings"]["handlers"]["python"]
            yield python["paths"]
            yield python["options"]["extensions"]


def _is_in_site(path: Path) -> bool:
    return path.relative_to(DOCS).parts[0] not in LEFT_OUT


def within_site(name: str, text: str, known: set[str]) -> str:
    r"""Return the page with plain words for links to files of the repository that are no pages.

    Code stays, but for the `\|` that GitHub needs in a table: Python-Markdown would show that backslash.
    """

    def judged(match: re.Match[str]) -> str:
        words, target = match.groups()
        if target is None:
            return match[0].replace("\\|", "|") if match.string.startswith("|") else match[0]
        path = target.partition("#")[0]
        if not path or re.match(r"[a-z]+:", target):
            return match[0]
        aim = posixpath.normpath(posixpath.join(posixpath.dirname(name), path))
        if aim.removeprefix("../") == "CHANGELOG.md":
            return f"[{words}]({posixpath.relpath('changelog.md', posixpath.dirname(name) or '.')})"
        return match[0] if aim in known else words

    lines, is_code = [], False
    for line in text.split("\n"):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        lines.append(line if is_code else _LINK_OR_CODE.sub(judged, line))
    return "\n".join(lines)
