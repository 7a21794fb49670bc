"""Where a public name is defined: file and line, as words, or as a link once the project has an address."""

from __future__ import annotations

import ast
import functools
import importlib.util
from pathlib import Path

from docs_site.project import ROOT, address, project


def defined_in(module: str, name: str) -> str:
    """`src/ottla/app/app.py`, line 60."""
    path, lines, imported = _definitions(module)
    if name in imported:
        return defined_in(*imported[name])
    line = lines.get(name)
    words = f"`{path}`" + (f", line {line}" if line else "")
    repository = address("Repository")
    if repository is None:
        return words
    return f"[{words}]({repository.rstrip('/')}/blob/v{project()['version']}/{path}{f'#L{line}' if line else ''})"


@functools.cache
def _definitions(module: str) -> tuple[str, dict[str, int], dict[str, tuple[str, str]]]:
    """The file of a module from the root, the line of each name that it defines, and where it imports others from."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"found no file of {module}")
    path = Path(spec.origin).resolve()
    lines: dict[str, int] = {}
    imported: dict[str, tuple[str, str]] = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            lines[node.name] = node.lineno
        elif isinstance(node, ast.Assign):
            lines |= {each.id: node.lineno for each in node.targets if isinstance(each, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            lines[node.target.id] = node.lineno
        elif isinstance(node, ast.ImportFrom) and node.module:
            imported |= {each.asname or each.name: (node.module, each.name) for each in node.names}
    return path.relative_to(ROOT).as_posix(), lines, imported
