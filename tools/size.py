"""Count product lines, and the lines that both shells of the SDK have in common: `python tools/size.py [FOLDER]`.

A product line is one of `src` or `broker_embedded` that is neither blank nor part of an import. Shared lines are those
of files of the same name in `ottla/sync` and `ottla/aio`, without `await` and `async`, in runs of three or more.
"""

from __future__ import annotations

import ast
import re
import sys
from difflib import SequenceMatcher
from pathlib import Path

_RUN = 3
_ASYNC = re.compile(r"\b(?:await|async) |\bAsync|_async\b")


def product_lines(path: Path) -> list[str]:
    """Return the lines of a file that are neither blank nor part of an import."""
    text = path.read_text()
    imports = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    return [line for number, line in enumerate(text.splitlines(), 1) if line.strip() and number not in imports]


def shared_lines(sync: Path, aio: Path) -> tuple[int, int, int]:
    """Return how many lines of `aio` are also in files of the same name of `sync`, how many lines these files have, and
    how many lines `aio` has."""
    shared = same_named = whole = 0
    for path in sorted(aio.rglob("*.py")):
        lines = [_ASYNC.sub("", line).strip() for line in product_lines(path)]
        whole += len(lines)
        other = sync / path.relative_to(aio)
        if other.exists():
            same_named += len(lines)
            theirs = [_ASYNC.sub("", line).strip() for line in product_lines(other)]
            blocks = SequenceMatcher(None, theirs, lines, autojunk=False).get_matching_blocks()
            shared += sum(block.size for block in blocks if block.size >= _RUN)
    return shared, same_named, whole


def main(root: Path) -> None:
    total = 0
    for folder in ("src/ottla", "src/ottla_wire", "broker_embedded"):
        files = sorted((root / folder).rglob("*.py"))
        lines = sum(len(product_lines(path)) for path in files)
        total += lines
        print(f"{folder}: {len(files)} files, {lines:,} lines")
    print(f"all: {total:,} lines")
    shared, same_named, whole = shared_lines(root / "src/ottla/sync", root / "src/ottla/aio")
    print(f"both shells: {shared} lines; {shared / same_named:.1%} of aio's {same_named:,} in files of the same name,")
    print(f"             {shared / whole:.1%} of all its {whole:,}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
