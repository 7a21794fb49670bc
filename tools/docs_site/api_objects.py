"""The public names as the reference sees them: read from the sources, with the members that belong to each."""

from __future__ import annotations

import ast
import functools
import gc
import importlib
import inspect
from collections.abc import Iterable, Iterator
from typing import Any, cast

import griffe
import yaml

from docs_site.project import ROOT, from_root
from docs_site.public_api import PUBLIC_MODULES, PublicName, public_names


def api_objects() -> Iterator[griffe.Object]:
    """The public names, and their members that the reference shows."""
    seen: set[str] = set()
    for module in PUBLIC_MODULES:
        for each in public_names(module):
            for found in _with_members(load(f"{defined_in_module(each)}.{each.name}")):
                if found.path not in seen:
                    seen.add(found.path)
                    yield found


@functools.cache
def public_paths() -> dict[str, str]:
    return {
        each.name: f"{defined_in_module(each)}.{each.name}"
        for module in PUBLIC_MODULES
        for each in public_names(module)
    }


@functools.cache
def load(path: str) -> griffe.Object:
    loader = _loader()
    package = path.split(".", 1)[0]
    if package not in loader.modules_collection:
        gc.disable()  # all of it stays: to look for garbage in it again and again takes a fifth of the time
        try:
            loader.load(package)
        finally:
            gc.enable()
    found = cast("griffe.Object | griffe.Alias", loader.modules_collection[path])
    return cast(griffe.Object, found.final_target if isinstance(found, griffe.Alias) else found)


@functools.cache
def _loader() -> griffe.GriffeLoader:
    extensions = griffe.load_extensions(*map(from_root, _options_of_pages()["extensions"]))
    return griffe.GriffeLoader(extensions=extensions, search_paths=[ROOT / "src", ROOT])


def _options_of_pages() -> dict[str, Any]:
    """The options of the pages' own loader: what a check reads is what a page shows."""
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    found: dict[str, Any]
    (found,) = (each["mkdocstrings"]["handlers"]["python"]["options"] for each in config["plugins"] if each != "search")
    return found


def _with_members(found: griffe.Object) -> Iterator[griffe.Object]:
    yield found
    if not isinstance(found, griffe.Class):
        return
    yield from (cast(griffe.Object, each) for name, each in found.members.items() if _is_shown(name))
    for name in inherited_members(found):
        yield cast(griffe.Object, cast(griffe.Alias, found.inherited_members[name]).final_target)


def inherited_members(found: griffe.Object) -> list[str]:
    """Public members that a class has from bases that are not public themselves, and so have no entry of their own."""
    if not isinstance(found, griffe.Class):
        return []
    public = set(public_paths().values())
    return [
        name
        for name, alias in found.inherited_members.items()
        if _is_shown(name)
        and name != "__init__"
        and (alias.is_function or "property" in alias.labels or alias.docstring is not None)
        and alias.final_target.path.rpartition(".")[0] not in public
    ]


def _is_shown(name: str) -> bool:
    return name == "__init__" or not name.startswith("_")


def defined_in_module(each: PublicName) -> str:
    """The module in which griffe finds the name: of a constant, the module that the package imports it from."""
    if each.home != each.module:
        return each.home
    homes = _lazy_homes(each.module)
    return homes.get(each.name, each.module)


def _lazy_homes(module: str) -> dict[str, str]:
    """Read from the source: `from HOME import NAME as NAME` below TYPE_CHECKING, or a plain import."""
    tree = ast.parse(inspect.getsource(importlib.import_module(module)))
    imports: Iterable[ast.ImportFrom] = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    return {alias.asname or alias.name: node.module for node in imports for alias in node.names if node.module}
