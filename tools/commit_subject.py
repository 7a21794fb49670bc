"""Check the subject of a commit message: `area: what changes`, in at most 72 characters.

    python tools/commit_subject.py .git/COMMIT_EDITMSG

The hook `commit-msg` of .pre-commit-config.yaml runs it. Subjects that git writes (merges, reverts, fixups) pass.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

LONGEST = 72
SUBJECT = re.compile(r"[a-z][a-z0-9_ ./-]*: \S.*")
OF_GIT = ("Merge ", "Revert ", "fixup! ", "squash! ", "amend! ")
EXAMPLE = "columns: parse quotes as bitmaps (JSON 2x faster)"


def problem(message: str) -> str | None:
    """Return what is wrong with the subject: what was found, and what is wanted. None if nothing is."""
    lines = [line for line in message.splitlines() if not line.startswith("#")]
    subject = next((line.rstrip() for line in lines if line.strip()), "")
    if subject.startswith(OF_GIT):
        return None
    if not SUBJECT.fullmatch(subject):
        return f"found the subject {subject!r}, wanted `area: what changes`, such as {EXAMPLE!r}"
    if len(subject) > LONGEST:
        return f"found a subject of {len(subject)} characters, wanted {LONGEST} at most: {subject!r}"
    if subject.endswith("."):
        return f"found a full stop at the end of the subject, wanted none: {subject!r}"
    after = lines[lines.index(next(line for line in lines if line.strip())) + 1 :]
    if after and after[0].strip():
        return f"found {after[0]!r} directly below the subject, wanted an empty line"
    return None


def main() -> int:
    found = problem(Path(sys.argv[1]).read_text(encoding="utf-8"))
    if found is not None:
        print(f"commit message: {found}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
