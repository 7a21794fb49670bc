"""Where a public name is defined: file and line, as words, or as a link once the project has an address."""

from __future__ import annotations

import ast
import functools
import importlib.util
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def defined_in(module: str, name: str) -> str:
    """`src/ottla/app/app.py`, line 60."""
    path, lines, imported = _definitions(module)
    if name in imported:
        return defined_in(*imported[name])
    line = lines.get(name)
    words = f"`{path}`" + (f", line {line}" if line else "")
    repository, version = _project()
    return f"[{words}]({repository}/blob/v{version}/{path}{f'#L{line}' if line else ''})" if repository else words


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


@functools.cache
def _project() -> tuple[str | None, str]:
    """The project URL `Repository`, which `pyproject.toml` alone has, and the version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    repository: str | None = project.get("urls", {}).get("Repository")
    return repository and repository.rstrip("/"), project["version"]
