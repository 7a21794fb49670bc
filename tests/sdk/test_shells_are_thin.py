"""What stands in both shells is waiting, and calling a client: everything else is decided once, below them.

Counted are statements, and the first lines of those that have a body. `await` makes no difference. Imports and
declarations (signatures, overloads, docstrings) are what users of either shell see, and are not counted; nor are
statements that say nothing by themselves.
"""

from __future__ import annotations

import ast
import re
import runpy
from collections.abc import Iterator
from difflib import SequenceMatcher
from pathlib import Path

import ottla

SHELLS = [Path(ottla.__file__).parent / name for name in ("sync", "aio")]
MOST_SHARED = 0.085
MOST_SHARED_LINES = 0.12
_WORDS = re.compile(r"\b(?:await|async) |\bAsync")
_SAYS_NOTHING = {"return", "return None", "return self", "raise", "continue", "break", "pass", "try:"}


def statements(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if is_text or isinstance(node, ast.Import | ast.ImportFrom):
            continue
        is_declaration = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        if not is_declaration:
            yield ast.unparse(node).splitlines()[0]
        for inner in parts(node):
            if isinstance(inner, ast.match_case):
                yield ast.unparse(inner).splitlines()[0]
            yield from statements(inner.body if hasattr(inner, "body") else inner)


def parts(node: ast.stmt) -> Iterator[ast.ExceptHandler | ast.match_case | list[ast.stmt]]:
    if isinstance(node, ast.FunctionDef) and any(ast.unparse(each) == "overload" for each in node.decorator_list):
        return
    for name in ("body", "handlers", "cases", "orelse", "finalbody"):
        found = getattr(node, name, None) or []
        if name in ("handlers", "cases"):
            yield from found
        elif found:
            yield found


def said_in(path: Path) -> list[str]:
    plain = (_WORDS.sub("", text) for text in statements(ast.parse(path.read_text()).body))
    return [text for text in plain if text not in _SAYS_NOTHING]


def test_few_lines_of_the_shells_stand_in_both() -> None:
    """Declarations count here: signatures that users see are most of what is left."""
    tool = Path(__file__).parents[2] / "tools" / "size.py"
    shared, same_named, _ = runpy.run_path(str(tool))["shared_lines"](*SHELLS)

    assert shared / same_named < MOST_SHARED_LINES, f"{shared} of {same_named:,} lines of files of the same name"


def test_little_of_the_shells_stands_in_both() -> None:
    said = [{path.relative_to(shell): said_in(path) for path in shell.rglob("*.py")} for shell in SHELLS]
    threads, loop = said
    both: dict[str, int] = {}
    for path in threads.keys() & loop.keys():
        blocks = SequenceMatcher(None, threads[path], loop[path], autojunk=False).get_matching_blocks()
        both[str(path)] = sum(block.size for block in blocks)
    total = sum(len(found) for shell in said for found in shell.values())
    share = 2 * sum(both.values()) / total
    largest = sorted(both.items(), key=lambda each: -each[1])[:8]
    assert share < MOST_SHARED, f"{share:.1%} of {total:,} statements; most in {largest}"
