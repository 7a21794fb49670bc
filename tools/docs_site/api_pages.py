"""Reference of the public names: one page for each module, filled by mkdocstrings from docstrings and signatures."""

from __future__ import annotations

import json

from docs_site.api_objects import defined_in_module, inherited_members, load
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
    return f"{defined_in_module(found)}.{name}"


def _entry(each: PublicName) -> str:
    home = defined_in_module(each)
    more = inherited_members(load(f"{home}.{each.name}"))
    return (
        f"\n::: {home}.{each.name}\n    options:\n"
        f"      heading: {each.module}.{each.name}\n      toc_label: {each.name}\n"
        f"      inherited_members: {json.dumps(more)}\n"
        f"\n`{each.name}` is defined in {defined_in(home, each.name)}.\n"
    )
