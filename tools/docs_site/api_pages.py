"""Reference of the public names: one page for each module, filled by mkdocstrings from docstrings and signatures."""

from __future__ import annotations

import inspect
from collections.abc import Iterable

from docs_site.public_api import PUBLIC_MODULES, PublicName, public_names
from docs_site.sources import defined_in


def api_pages() -> dict[str, str]:
    """Path in the documentation: text."""
    pages = {f"reference/api/{module}.md": _page(module, about) for module, about in PUBLIC_MODULES.items()}
    pages["reference/api/index.md"] = _index()
    return pages


def _index() -> str:
    rows = "".join(
        f"| [`{module}`]({module}.md) | {about} | {len(public_names(module))} |\n"
        for module, about in PUBLIC_MODULES.items()
    )
    return (
        "# Python API\n\nThese modules are public: their names keep their meaning as "
        "[compatibility](../compatibility.md) promises. Anything else may change in any release.\n\n"
        f"| module | holds | names |\n|---|---|---|\n{rows}"
    )


def _page(module: str, about: str) -> str:
    names = public_names(module)
    elsewhere = {each.name for other in PUBLIC_MODULES if other == "ottla" != module for each in public_names(other)}
    own = [each for each in names if each.name not in elsewhere]
    again = [each.name for each in names if each.name in elsewhere]
    page = f"# `{module}`\n\n{about}.\n"
    if again:
        links = ", ".join(f"[`{name}`](ottla.md#{_target('ottla', name)})" for name in again)
        page += f"\nAlso here, described with `ottla`: {links}.\n"
    return page + "".join(_entry(each) for each in own)


def _target(module: str, name: str) -> str:
    (found,) = (each for each in public_names(module) if each.name == name)
    return f"{_defined_in(found)}.{name}"


def _entry(each: PublicName) -> str:
    return (
        f"\n::: {_defined_in(each)}.{each.name}\n    options:\n"
        f"      heading: {each.module}.{each.name}\n      toc_label: {each.name}\n"
        f"\n`{each.name}` is defined in {defined_in(_defined_in(each), each.name)}.\n"
    )


def _defined_in(each: PublicName) -> str:
    """The module in which griffe finds the name: of a constant, the module that the package imports it from."""
    if each.home != each.module:
        return each.home
    homes = _lazy_homes(each.module)
    return homes.get(each.name, each.module)


def _lazy_homes(module: str) -> dict[str, str]:
    """Read from the source: `from HOME import NAME as NAME` below TYPE_CHECKING, or a plain import."""
    import ast
    import importlib

    tree = ast.parse(inspect.getsource(importlib.import_module(module)))
    imports: Iterable[ast.ImportFrom] = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    return {alias.asname or alias.name: node.module for node in imports for alias in node.names if node.module}
