"""Find private words in docstrings and comments: part of `make lint`.

    python tools/plain_words.py [--all] [--update] [PACKAGE ...]

A package may have as many findings as `tools/plain_words.toml` says, and none if it is not named there. `--all` prints
every finding of the packages given (of all, without an argument); `--update` writes today's counts, which may only go
down. docs/contributing/style.md says what to write instead.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parent.parent
SOURCES: Final = ("src", "broker_embedded")
BASELINE: Final = ROOT / "tools" / "plain_words.toml"

BEGINS: Final = re.compile(r"(?:What|Of|Where|Those|Whose|Whom|Who|Whether|Which|How)\b")
"""How the docstring of a function must not begin."""
BEGINS_ADVICE: Final = "begin the docstring of a function with its verb"

WORDS: Final = {
    r"told|tells?|telling": "say who is called or what is returned, reported, logged",
    r"anew": "again, restart, reset",
    r"whom": "name the caller or the receiver",
    r"(?:lets?|letting) go": "release, revoke",
    r"in vain": "say what fails",
    r"keeps? house|keeping house": "name the upkeep: expire, delete, close",
    r"nobody|somebody": "name the party, or use the passive",
    r"(?<!dead[ _-])letters?(?! of (?:the|an) alphabet)": "dead letter; for a retry topic: failed write",
    r"hears?|heard": "receives, is called with",
    r"wish(?:es)?": "options, request",
    r"goes away|went away|gone away": "is revoked, disconnects, stops",
    r"is at it|at its end|is over": "is running, has ended",
}
"""Words that hide the subject or are private metaphors, with what to write instead."""
_WORD: Final = re.compile(
    "|".join(rf"(?P<w{n}>\b(?:{pattern})\b)".replace(" ", r"\s+") for n, pattern in enumerate(WORDS)), re.IGNORECASE
)
_ADVICE: Final = tuple(WORDS.values())
_CANDIDATE: Final = re.compile(rf"{_WORD.pattern}|\"\"\"{BEGINS.pattern}", re.IGNORECASE)
"""Found in every file with a finding: parsing all files would take ten times as long."""


class Finding(NamedTuple):
    line: int
    found: str
    advice: str


def findings(source: str) -> list[Finding]:
    """Return the findings in one module, in the order of lines."""
    if not _CANDIDATE.search(source):
        return []
    found = [*_in_docstrings(ast.parse(source))]
    if any("#" in line and _WORD.search(line) for line in source.splitlines()):
        found += _in_comments(source)
    return sorted(found)


def package_of(path: Path) -> str:
    """Return the package that the counts name: `ottla.consumer`, `broker_embedded.controller`, `ottla_wire`."""
    parts = path.parts[1:] if path.parts[0] == "src" else path.parts
    return ".".join(parts[:2] if len(parts) > 2 else parts[:1])


def all_findings(root: Path = ROOT) -> dict[Path, list[Finding]]:
    """Return the findings by file, relative to `root`."""
    paths = sorted(path for folder in SOURCES for path in (root / folder).rglob("*.py"))
    return {path.relative_to(root): found for path in paths if (found := findings(path.read_text()))}


def above(counts: Counter[str], baseline: dict[str, int]) -> list[str]:
    """Return the packages with more findings than the baseline has."""
    return sorted(package for package, count in counts.items() if count > baseline.get(package, 0))


def _in_docstrings(tree: ast.Module) -> Iterator[Finding]:
    for node in _statements(tree):
        match node:
            case (
                ast.FunctionDef(body=[ast.Expr(value=ast.Constant(value=str(text))), *_])
                | ast.AsyncFunctionDef(body=[ast.Expr(value=ast.Constant(value=str(text))), *_])
            ) if begins := BEGINS.match(text):
                yield Finding(node.body[0].lineno, begins[0], BEGINS_ADVICE)
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield from _words(text, node.lineno)
            case _:
                pass


def _statements(parent: ast.AST) -> Iterator[ast.stmt]:
    for name in ("body", "orelse", "handlers", "finalbody", "cases"):
        for node in getattr(parent, name, ()):
            if isinstance(node, ast.stmt):
                yield node
            yield from _statements(node)


def _in_comments(source: str) -> Iterator[Finding]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield from _words(token.string, token.start[0])


def _words(text: str, line: int) -> Iterator[Finding]:
    for match in _WORD.finditer(text):
        yield Finding(line + text.count("\n", 0, match.start()), match[0], _ADVICE[int(str(match.lastgroup)[1:])])


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Find private words in docstrings and comments.")
    parser.add_argument("--all", action="store_true", help="print every finding, not only those above the baseline")
    parser.add_argument("--update", action="store_true", help="write today's counts where they are lower")
    parser.add_argument("packages", nargs="*", help="only these, such as ottla.once")
    options = parser.parse_args(arguments)
    baseline: dict[str, int] = tomllib.loads(BASELINE.read_text())["findings"] if BASELINE.exists() else {}
    by_file = all_findings()
    counts = Counter(package_of(path) for path, found in by_file.items() for _ in found)
    too_many = above(counts, baseline)
    shown = options.packages or (counts if options.all else too_many)
    for path, found in by_file.items():
        if package_of(path) in shown:
            print("".join(f"{path}:{line}: {word!r}: {advice}\n" for line, word, advice in found), end="")
    for package in too_many:
        print(f"{package}: {counts[package]} findings, at most {baseline.get(package, 0)} wanted", file=sys.stderr)
    if options.update and not too_many:
        lines = [f'"{package}" = {counts[package]}' for package in sorted(baseline) if counts[package]]
        BASELINE.write_text("\n".join([_HEAD, "[findings]", *lines, ""]))
    return 1 if too_many else 0


_HEAD: Final = "# At most so many findings of tools/plain_words.py per package; none where a package is not named."

if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
