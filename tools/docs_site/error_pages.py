"""One page for each public error class, completed with its module and bases; and the index of all."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

from docs_site.public_api import PUBLIC_MODULES
from ottla import errors

_HEAD = """\
# Errors

The base of every error that Ottla raises on purpose is [`OttlaError`](ottla-error.md). Classes are sorted by what the
caller should do, so that `except` says it too:

| caught as | do |
|---|---|
| [`InputError`](input-error.md) | fix what was passed or configured; a retry gives the same answer |
| [`RetriableError`](retriable-error.md) | try again later; nothing is wrong with the input |
| [`DeliveryError`](delivery-error.md) | decide about the records that the error lists |
| [`FencedError`](fenced-error.md) | close this instance; a newer one took over |
| [`LifecycleError`](lifecycle-error.md) | make a new object |

## All of them

| error | module | is also | what to do |
|---|---|---|---|
"""


def error_classes() -> dict[str, tuple[type[BaseException], str]]:
    """Return name: (class, the first public module that has it), of each class that has a page of its own."""
    found: dict[str, tuple[type[BaseException], str]] = {}
    for module_name in PUBLIC_MODULES:
        module = importlib.import_module(module_name)
        for name in module.__all__:
            value = getattr(module, name)
            if isinstance(value, type) and issubclass(value, BaseException) and _has_page(value):
                found.setdefault(name, (value, module_name))
    return found


def _has_page(error: type[BaseException]) -> bool:
    """`class X(Y, has_page=False)` shares the page of its base."""
    return getattr(error, "_explained_as", error.__name__) in (error.__name__, errors.OttlaError.__name__)


def page_of(name: str) -> str:
    """`UnknownTopic`: `unknown-topic.md`."""
    return f"{errors.page_of(name)}.md"


def error_pages(docs: Path) -> dict[str, str]:
    """Path in the documentation: text. Each page of `docs/errors` gets its first lines from the code."""
    classes = error_classes()
    pages, rows = {}, ""
    for name in sorted(classes):
        error, module = classes[name]
        written = docs / "errors" / page_of(name)
        heading, _, rest = written.read_text(encoding="utf-8").partition("\n")
        pages[f"errors/{page_of(name)}"] = f"{heading}\n\n{_facts(error, module)}{rest}"
        bases = ", ".join(f"`{base.__name__}`" for base in error.__bases__ if base.__name__ not in classes)
        first = (inspect.getdoc(error) or "").split("\n\n")[0].replace("\n", " ")
        rows += f"| [`{name}`]({page_of(name)}) | `{module}` | {bases} | {first} |\n"
    return {**pages, "errors/index.md": _HEAD + rows}


def _facts(error: type[BaseException], module: str) -> str:
    bases = [f"`{base.__name__}`" for base in error.__mro__[1:-1] if base not in (BaseException, Exception)]
    return f"`from {module} import {error.__name__}`" + (f". It is also {_listed(bases)}." if bases else ".") + "\n"


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
